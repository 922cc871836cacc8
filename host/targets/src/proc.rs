//! Processes as `/proc` shows them: state, parents, start times, command lines, trees.
//!
//! Everything read here was written by processes that may be hostile: sizes are bounded, bytes
//! are shown lossily, and a process that ends between two reads is simply absent.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::{self, Read};

/// Most processes looked at in one snapshot.
pub const MAX_PROCESSES: usize = 65_536;
/// Most bytes of a command line that are read.
pub const MAX_CMDLINE_BYTES: u64 = 16 * 1024;
/// Longest title shown to people, in characters.
pub const MAX_TITLE_CHARS: usize = 160;
/// Longest chain of parents followed.
pub const MAX_ANCESTORS: usize = 256;

/// One process at one moment (fields of `/proc/<pid>/stat`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Its id.
    pub pid: u32,
    /// Its parent; 0 for the first process and for kernel threads.
    pub ppid: u32,
    /// Its session.
    pub session: u32,
    /// `R`, `S`, `D`, `T` (stopped), `t` (traced), `Z` (zombie), `X` (dead), …
    pub state: char,
    /// Clock ticks between boot and its start; with the pid it names one process for ever.
    pub start_time: u64,
    /// Its short name (15 bytes).
    pub comm: String,
}

impl Stat {
    /// Whether it can still do something: not a zombie and not dead.
    pub fn lives(&self) -> bool {
        !matches!(self.state, 'Z' | 'X' | 'x')
    }
}

/// Reads one process.
///
/// # Errors
/// `NotFound` when there is no such process, `InvalidData` when the file has another form.
pub fn stat(pid: u32) -> io::Result<Stat> {
    let mut text = Vec::with_capacity(512);
    fs::File::open(format!("/proc/{pid}/stat"))?
        .take(4096)
        .read_to_end(&mut text)
        .map_err(gone_is_not_found)?;
    parse_stat(&text).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("/proc/{pid}/stat has an unknown form"),
        )
    })
}

/// A process that ends between open and read gives ESRCH.
fn gone_is_not_found(error: io::Error) -> io::Error {
    if error.raw_os_error() == Some(libc::ESRCH) {
        io::Error::from(io::ErrorKind::NotFound)
    } else {
        error
    }
}

fn parse_stat(bytes: &[u8]) -> Option<Stat> {
    // The name stands in brackets and may itself hold brackets and spaces: the last one ends it.
    let open = bytes.iter().position(|&b| b == b'(')?;
    let close = bytes.iter().rposition(|&b| b == b')')?;
    let pid = std::str::from_utf8(bytes.get(..open)?).ok()?.trim();
    let comm = String::from_utf8_lossy(bytes.get(open + 1..close)?).into_owned();
    let rest = std::str::from_utf8(bytes.get(close + 1..)?).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    Some(Stat {
        pid: pid.parse().ok()?,
        state: fields.first()?.chars().next()?,
        ppid: fields.get(1)?.parse().ok()?,
        session: fields.get(3)?.parse::<i64>().ok()?.max(0) as u32,
        start_time: fields.get(19)?.parse().ok()?,
        comm,
    })
}

/// Command line with its arguments joined by spaces; what a process titled itself, if it did.
/// `None` when the process is gone, is a zombie or a kernel thread.
pub fn cmdline(pid: u32) -> Option<String> {
    let mut bytes = Vec::new();
    fs::File::open(format!("/proc/{pid}/cmdline"))
        .ok()?
        .take(MAX_CMDLINE_BYTES)
        .read_to_end(&mut bytes)
        .ok()?;
    while bytes.last() == Some(&0) {
        bytes.pop();
    }
    if bytes.is_empty() {
        return None;
    }
    for byte in &mut bytes {
        if *byte == 0 {
            *byte = b' ';
        }
    }
    Some(String::from_utf8_lossy(&bytes).trim_end().to_owned())
}

/// What to show people for a process: its command line, or its short name in brackets. Bounded,
/// without control characters.
pub fn title(stat: &Stat) -> String {
    let text = cmdline(stat.pid).unwrap_or_else(|| format!("[{}]", stat.comm));
    let mut shown: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(MAX_TITLE_CHARS)
        .collect();
    if text.chars().nth(MAX_TITLE_CHARS).is_some() {
        shown.push('…');
    }
    shown
}

/// All processes of the host at about one moment. Processes that come or go meanwhile may be
/// missing.
///
/// # Errors
/// When `/proc` cannot be listed.
pub fn snapshot() -> io::Result<Snapshot> {
    let mut processes = HashMap::new();
    for entry in fs::read_dir("/proc")?.take(MAX_PROCESSES) {
        let Ok(entry) = entry else { continue };
        let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
            continue;
        };
        if let Ok(stat) = stat(pid) {
            processes.insert(pid, stat);
        }
    }
    Ok(Snapshot { processes })
}

/// Processes by pid.
#[derive(Debug, Clone, Default)]
pub struct Snapshot {
    processes: HashMap<u32, Stat>,
}

impl Snapshot {
    /// One process.
    pub fn get(&self, pid: u32) -> Option<&Stat> {
        self.processes.get(&pid)
    }

    /// All processes, in no order.
    pub fn iter(&self) -> impl Iterator<Item = &Stat> {
        self.processes.values()
    }

    /// Living descendants of a process, without itself, oldest first. Also those below a zombie.
    pub fn descendants(&self, root: u32) -> Vec<&Stat> {
        let mut children: HashMap<u32, Vec<&Stat>> = HashMap::new();
        for stat in self.processes.values() {
            children.entry(stat.ppid).or_default().push(stat);
        }
        let mut found = Vec::new();
        let mut seen = HashSet::from([root]);
        let mut queue = vec![root];
        while let Some(pid) = queue.pop() {
            for &child in children.get(&pid).map(Vec::as_slice).unwrap_or_default() {
                if seen.insert(child.pid) {
                    queue.push(child.pid);
                    if child.lives() {
                        found.push(child);
                    }
                }
            }
        }
        found.sort_by_key(|s| (s.start_time, s.pid));
        found
    }

    /// Parents of a process, nearest first, without itself.
    pub fn ancestors(&self, pid: u32) -> Vec<u32> {
        let parent_of = |pid| self.processes.get(&pid).map(|s| s.ppid);
        chain(pid, parent_of)
    }
}

/// Parents of a process, nearest first, without itself, read afresh.
pub fn ancestors(pid: u32) -> Vec<u32> {
    chain(pid, |pid| stat(pid).ok().map(|s| s.ppid))
}

fn chain(pid: u32, parent_of: impl Fn(u32) -> Option<u32>) -> Vec<u32> {
    let mut found = Vec::new();
    let mut at = pid;
    while found.len() < MAX_ANCESTORS {
        match parent_of(at) {
            Some(parent) if parent != 0 => {
                found.push(parent);
                at = parent;
            }
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_spaces_does_not_confuse() {
        let line = b"77 (a) b) (c) T 5 6 7 0 -1 1 2 3 4 5 6 7 8 9 20 0 1 0 4242 99 1\n";
        let stat = parse_stat(line).expect("parses");
        assert_eq!(stat.comm, "a) b) (c");
        assert_eq!((stat.pid, stat.ppid, stat.session), (77, 5, 7));
        assert_eq!((stat.state, stat.start_time), ('T', 4242));
    }

    #[test]
    fn broken_lines_are_refused() {
        for line in [&b""[..], b"1 (x", b"1 (x) S 1", b") 1 (", b"x (y) S 1 1 1"] {
            assert_eq!(parse_stat(line), None, "{line:?}");
        }
    }

    #[test]
    fn this_process_is_found_below_its_parent() {
        let me = stat(std::process::id()).expect("own stat");
        assert!(me.lives());
        let all = snapshot().expect("proc");
        assert_eq!(all.ancestors(me.pid).first(), Some(&me.ppid));
        assert!(all.descendants(me.ppid).iter().any(|s| s.pid == me.pid));
        assert!(cmdline(me.pid).is_some());
    }

    #[test]
    fn an_absent_process_is_not_found() {
        // Beyond the largest pid that Linux gives.
        let error = stat(u32::MAX).expect_err("absent");
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
