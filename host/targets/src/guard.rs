//! Who may never be harmed: the first process, the instrument, its ancestors, its helpers.

use std::sync::Mutex;

use crate::proc;

/// Why a process may not be harmed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GuardError {
    /// Pid 0 or 1.
    #[error("refused: pid {pid} is the system's first process")]
    First {
        /// The pid.
        pid: u32,
    },
    /// The instrument.
    #[error("refused: pid {pid} is the instrument itself")]
    Instrument {
        /// The pid.
        pid: u32,
    },
    /// A parent of the instrument.
    #[error("refused: pid {pid} is an ancestor of the instrument")]
    Ancestor {
        /// The pid.
        pid: u32,
    },
    /// A supervisor or the watchdog.
    #[error("refused: pid {pid} is a helper of the instrument (supervisor or watchdog)")]
    Helper {
        /// The pid.
        pid: u32,
    },
    /// Not a process of the replica.
    #[error(
        "refused: pid {pid} ({title}) does not belong to replica `{replica}`; only processes of a \
         named replica can be harmed"
    )]
    Outside {
        /// The pid.
        pid: u32,
        /// What it is.
        title: String,
        /// The replica.
        replica: String,
    },
    /// It ended, or its pid now belongs to another.
    #[error("refused: process {pid} of replica `{replica}` has ended")]
    Ended {
        /// The pid.
        pid: u32,
        /// The replica.
        replica: String,
    },
}

/// Processes that no effect may touch.
#[derive(Debug, Default)]
pub struct Protected {
    /// Pid and start time of helpers. A few per run; ended ones do no harm, since the start time
    /// tells them from a later process with their pid.
    helpers: Mutex<Vec<(u32, u64)>>,
}

impl Protected {
    /// Only the instrument and its ancestors, so far.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a helper of the instrument.
    pub fn protect(&self, pid: u32) {
        if let Ok(stat) = proc::stat(pid) {
            lock(&self.helpers).push((pid, stat.start_time));
        }
    }

    /// Whether a process may be a victim at all.
    ///
    /// # Errors
    /// Who it is that may not be harmed.
    pub fn check(&self, pid: u32, start_time: u64) -> Result<(), GuardError> {
        let me = std::process::id();
        if pid <= 1 {
            return Err(GuardError::First { pid });
        }
        if pid == me {
            return Err(GuardError::Instrument { pid });
        }
        // Read afresh each time: the instrument's parent changes when its shell ends.
        if proc::ancestors(me).contains(&pid) {
            return Err(GuardError::Ancestor { pid });
        }
        if lock(&self.helpers).contains(&(pid, start_time)) {
            return Err(GuardError::Helper { pid });
        }
        Ok(())
    }
}

/// Locks; a panic of another holder leaves the plain data behind these locks whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instrument_and_those_above_it_are_safe() {
        let guard = Protected::new();
        let me = std::process::id();
        let parent = proc::stat(me).expect("own stat").ppid;
        assert_eq!(guard.check(me, 0), Err(GuardError::Instrument { pid: me }));
        assert_eq!(guard.check(1, 0), Err(GuardError::First { pid: 1 }));
        assert_eq!(guard.check(0, 0), Err(GuardError::First { pid: 0 }));
        if parent > 1 {
            assert_eq!(
                guard.check(parent, 0),
                Err(GuardError::Ancestor { pid: parent })
            );
        }
    }

    #[test]
    fn a_helper_is_safe_but_not_a_later_process_with_its_pid() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let pid = child.id();
        let start = proc::stat(pid).expect("stat").start_time;
        let guard = Protected::new();
        assert_eq!(guard.check(pid, start), Ok(()));
        guard.protect(pid);
        assert_eq!(guard.check(pid, start), Err(GuardError::Helper { pid }));
        assert_eq!(guard.check(pid, start + 1), Ok(()));
        child.kill().expect("kill");
        child.wait().expect("wait");
    }
}
