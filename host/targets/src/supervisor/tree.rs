//! The supervisor's descendants: list them, stop them, kill them to the last.

use std::collections::HashSet;

use blackstart_clock::{NS_PER_MS, monotonic_ns};
use rustix::process::{WaitOptions, WaitStatus};

use super::KILL_TIMEOUT_NS;
use super::wire::Orphan;
use crate::proc;
use crate::process_ref::{ProcessRef, Signal};

/// Pause between two rounds of killing.
const KILL_ROUND_NS: i64 = 5 * NS_PER_MS;

/// Living descendants of this process.
pub(super) fn descendants() -> Vec<Orphan> {
    // Without /proc nothing can be found; the caller's own child is still known to it.
    let Ok(all) = proc::snapshot() else {
        return Vec::new();
    };
    all.descendants(std::process::id())
        .into_iter()
        .map(|s| Orphan {
            pid: s.pid,
            start_time: s.start_time,
            title: proc::title(s),
        })
        .collect()
}

/// Sends a signal to one process, if it is still the same.
pub(super) fn signal(process: &Orphan, signal: Signal) {
    if let Ok(held) = ProcessRef::open_same(process.pid, process.start_time) {
        // It may end between the two; then there is nothing to do.
        let _ = held.send(signal);
    }
}

/// Reaps every ended child; calls back with pid and status.
pub(super) fn reap(mut ended: impl FnMut(u32, WaitStatus)) {
    while let Ok(Some((pid, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        ended(pid.as_raw_nonzero().get() as u32, status);
    }
}

/// Kills all descendants, also those that are born meanwhile, and reaps them. Returns all that
/// were killed and those that would not go within [`KILL_TIMEOUT_NS`].
pub(super) fn kill_all(mut ended: impl FnMut(u32, WaitStatus)) -> (u32, Vec<Orphan>) {
    let deadline = monotonic_ns() + KILL_TIMEOUT_NS;
    let mut killed = HashSet::new();
    loop {
        reap(&mut ended);
        let left = descendants();
        if left.is_empty() {
            reap(&mut ended);
            return (killed.len() as u32, left);
        }
        if monotonic_ns() >= deadline {
            return (killed.len() as u32, left);
        }
        for process in &left {
            signal(process, Signal::Kill);
            killed.insert((process.pid, process.start_time));
        }
        blackstart_clock::sleep_until(monotonic_ns() + KILL_ROUND_NS);
    }
}
