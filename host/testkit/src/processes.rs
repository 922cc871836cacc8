//! Finding every process that a test started, however far down and whatever became of its parents.

use std::fs;

/// Variable that marks a test's processes: children inherit it.
pub(crate) const MARK: &str = "BLACKSTART_TEST_MARK";

/// A living process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen {
    /// Its id.
    pub pid: u32,
    /// State letter of `/proc/<pid>/stat`.
    pub state: char,
    /// Its command line, arguments separated by spaces.
    pub command: String,
}

/// Living processes whose environment carries this mark. Zombies are not alive.
pub fn marked(mark: &str) -> Vec<Seen> {
    let wanted = format!("{MARK}={mark}");
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir("/proc") else {
        return found;
    };
    for entry in entries.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|n| n.parse::<u32>().ok())
        else {
            continue;
        };
        // A process that ends between two reads is simply absent; another user's is not ours.
        let Ok(environ) = fs::read(entry.path().join("environ")) else {
            continue;
        };
        if !environ.split(|b| *b == 0).any(|v| v == wanted.as_bytes()) {
            continue;
        }
        let Some(state) = state(pid).filter(|s| !matches!(s, 'Z' | 'X' | 'x')) else {
            continue;
        };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command)
            .replace('\0', " ")
            .trim_end()
            .to_owned();
        found.push(Seen {
            pid,
            state,
            command,
        });
    }
    found
}

/// State letter of a process; `None` = there is none of this id.
pub(crate) fn state(pid: u32) -> Option<char> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name in parentheses may hold anything, also a parenthesis.
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}
