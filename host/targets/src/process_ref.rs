//! One process, held so that its pid cannot come to mean another.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open, pidfd_send_signal};

use crate::proc;

/// A signal that an effect may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// Ask to end.
    Term,
    /// End at once.
    Kill,
    /// Stop (freeze).
    Stop,
    /// Go on after a stop.
    Cont,
    /// Hang up.
    Hup,
    /// Interrupt.
    Int,
    /// User defined 1.
    Usr1,
    /// User defined 2.
    Usr2,
    /// Abort.
    Abrt,
    /// Invalid memory reference.
    Segv,
}

impl Signal {
    /// Name without `SIG`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Term => "TERM",
            Self::Kill => "KILL",
            Self::Stop => "STOP",
            Self::Cont => "CONT",
            Self::Hup => "HUP",
            Self::Int => "INT",
            Self::Usr1 => "USR1",
            Self::Usr2 => "USR2",
            Self::Abrt => "ABRT",
            Self::Segv => "SEGV",
        }
    }

    fn raw(self) -> rustix::process::Signal {
        use rustix::process::Signal as S;
        match self {
            Self::Term => S::TERM,
            Self::Kill => S::KILL,
            Self::Stop => S::STOP,
            Self::Cont => S::CONT,
            Self::Hup => S::HUP,
            Self::Int => S::INT,
            Self::Usr1 => S::USR1,
            Self::Usr2 => S::USR2,
            Self::Abrt => S::ABORT,
            Self::Segv => S::SEGV,
        }
    }
}

/// One process: pid, start time, and a pidfd that stays with it. A signal through the pidfd can
/// reach no other process, also after the pid was reused.
#[derive(Debug)]
pub struct ProcessRef {
    pid: u32,
    start_time: u64,
    pidfd: OwnedFd,
}

impl ProcessRef {
    /// Takes hold of the living process that has this pid now.
    ///
    /// # Errors
    /// `NotFound` when there is none or it is a zombie; the system's error otherwise.
    pub fn open(pid: u32) -> io::Result<Self> {
        let raw = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))?;
        let pidfd = pidfd_open(raw, PidfdFlags::empty()).map_err(|e| match e {
            rustix::io::Errno::SRCH => io::Error::from(io::ErrorKind::NotFound),
            // A thread id is not a process.
            e => io::Error::from(e),
        })?;
        // Read after the pidfd was opened, and only believed while the pidfd's process has not
        // ended: so pid, start time and pidfd are those of one process.
        let stat = proc::stat(pid)?;
        let this = Self {
            pid,
            start_time: stat.start_time,
            pidfd,
        };
        if !stat.lives() || this.has_ended() {
            return Err(io::Error::from(io::ErrorKind::NotFound));
        }
        Ok(this)
    }

    /// Takes hold of a process known by pid and start time.
    ///
    /// # Errors
    /// `NotFound` when it has ended, even if its pid was given to another.
    pub fn open_same(pid: u32, start_time: u64) -> io::Result<Self> {
        let this = Self::open(pid)?;
        if this.start_time == start_time {
            Ok(this)
        } else {
            Err(io::Error::from(io::ErrorKind::NotFound))
        }
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Clock ticks between boot and its start.
    pub fn start_time(&self) -> u64 {
        self.start_time
    }

    /// Whether it has ended (a zombie has).
    pub fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.pidfd, PollFlags::IN)];
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        matches!(poll(&mut fds, Some(&now)), Ok(n) if n > 0)
    }

    /// Its state now, `None` when it is gone.
    pub fn state(&self) -> Option<char> {
        proc::stat(self.pid)
            .ok()
            .filter(|s| s.start_time == self.start_time)
            .map(|s| s.state)
    }

    /// Sends a signal. One system call, no allocation: it stands between two clock reads.
    ///
    /// # Errors
    /// The system's error; `ESRCH` when the process has ended.
    pub fn send(&self, signal: Signal) -> io::Result<()> {
        pidfd_send_signal(self.pidfd.as_fd(), signal.raw()).map_err(io::Error::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_ended_is_not_mistaken() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .expect("sleep");
        let held = ProcessRef::open(child.id()).expect("held");
        assert!(!held.has_ended());
        assert!(ProcessRef::open_same(child.id(), held.start_time() + 1).is_err());
        held.send(Signal::Kill).expect("killed");
        child.wait().expect("reaped");
        assert!(held.has_ended());
        assert_eq!(held.state(), None);
        let error = held.send(Signal::Cont).expect_err("gone");
        assert_eq!(error.raw_os_error(), Some(libc::ESRCH));
        assert!(ProcessRef::open(child.id()).is_err());
    }
}
