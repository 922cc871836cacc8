//! Takes the memory that a control group has left, so that the kernel ends someone in it.
//!
//! It writes into a file that has no name and lives in memory (`memfd`): its pages are charged to
//! the group and to no process, so the kernel's choice falls on the process that really uses most,
//! the server, and not on this helper. It ends, and gives everything back, when the kernel has
//! ended someone, when its deadline passes, when it is told so, or when the instrument dies.

use std::io::{BufRead, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use blackstart_clock::{NS_PER_MS, monotonic_ns, sleep_until};

use super::cgroup::{Group, Version, write};
use super::resources::oom_kills;

/// Written at a time.
const CHUNK: usize = 1 << 20;

/// The helper's process: the group's folder as its argument; on standard input, when it is time, an
/// amount of bytes and the monotonic instant at which it gives them back.
pub fn run(dir: &Path) -> ExitCode {
    // SAFETY: no memory is touched.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    match blow(dir.to_owned()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("memory helper: {e}");
            ExitCode::FAILURE
        }
    }
}

fn blow(dir: PathBuf) -> std::io::Result<()> {
    let version = if dir.join("memory.max").exists() {
        Version::V2
    } else {
        Version::V1
    };
    write(&dir.join("cgroup.procs"), &std::process::id().to_string())?;
    let group = Group {
        version,
        dir,
        inode: 0,
    };
    let file = rustix::fs::memfd_create("blackstart", rustix::fs::MemfdFlags::CLOEXEC)?;
    let chunk = vec![0x5a; CHUNK];
    println!("ready");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    let asked = line.trim().split_once(' ');
    let Some((Ok(bytes), Ok(deadline_ns))) =
        asked.map(|(bytes, until)| (bytes.parse::<u64>(), until.parse::<i64>()))
    else {
        return Ok(());
    };
    let kills = oom_kills(&group);
    let mut left = bytes;
    loop {
        if oom_kills(&group) != kills || monotonic_ns() >= deadline_ns {
            return Ok(());
        }
        if left == 0 {
            sleep_until(monotonic_ns() + 5 * NS_PER_MS);
            continue;
        }
        let part = &chunk[..CHUNK.min(usize::try_from(left).unwrap_or(CHUNK))];
        match rustix::io::write(file.as_fd(), part) {
            Ok(n) => left = left.saturating_sub(n as u64),
            // No memory: the kernel is choosing.
            Err(_) => sleep_until(monotonic_ns() + NS_PER_MS),
        }
    }
}
