//! The instrument's side of the watchdog.

use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use blackstart_clock::{NS_PER_MS, NS_PER_S, monotonic_ns, sleep_until};
use blackstart_targets::Reexec;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::undo::Undo;
use super::wire::{Op, Reply, Request};
use super::{ACK_TIMEOUT_NS, BEAT_NS, BYE_TIMEOUT_NS, MAX_LINE_BYTES};

/// The watchdog cannot be relied upon.
#[derive(Debug, Clone, thiserror::Error)]
pub enum WatchdogError {
    /// It could not be started.
    #[error(
        "the watchdog could not be started: {0}; without it no effect that needs an undo may fire"
    )]
    Start(String),
    /// It refused.
    #[error("the watchdog refused: {0}")]
    Refused(String),
    /// It ended or does not answer.
    #[error("the watchdog does not answer: {0}; no effect that needs an undo may fire")]
    Lost(String),
}

/// A running watchdog. Dropping it says farewell: it undoes what is still registered and ends.
pub struct Watchdog {
    link: Arc<Mutex<Link>>,
    pid: u32,
    child: Mutex<Child>,
    beat: Mutex<Option<(Sender<()>, JoinHandle<()>)>>,
}

impl Watchdog {
    /// Starts it and waits until it is ready. Its journal is created or appended to.
    ///
    /// # Errors
    /// [`WatchdogError::Start`]; then no effect that needs an undo may be fired.
    pub fn spawn(exec: &Reexec, journal_path: &Path) -> Result<Self, WatchdogError> {
        let start = |reason: String| WatchdogError::Start(reason);
        // It must not depend on the instrument's working directory.
        let journal = std::path::absolute(journal_path).map_err(|e| start(e.to_string()))?;
        let mut child = exec
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| start(format!("`{}`: {e}", exec.program.display())))?;
        let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(start("it has no pipes".to_owned()));
        };
        let pid = child.id();
        let link = Arc::new(Mutex::new(Link {
            stdin: Some(stdin),
            stdout,
            bytes: Vec::new(),
            seq: 0,
            lost: None,
        }));
        let this = Self {
            link: link.clone(),
            pid,
            child: Mutex::new(child),
            beat: Mutex::new(None),
        };
        this.call(Op::Open { journal })
            .map_err(|e| start(e.to_string()))?;
        let (stop, stopped) = channel::<()>();
        let every = Duration::from_nanos(BEAT_NS.unsigned_abs());
        let thread = std::thread::Builder::new()
            .name("watchdog-beat".to_owned())
            .spawn(move || {
                while let Err(RecvTimeoutError::Timeout) = stopped.recv_timeout(every) {
                    // A failure is remembered in the link and refuses the next registration.
                    if lock(&link).call(Op::Beat).is_err() {
                        break;
                    }
                }
            })
            .map_err(|e| start(e.to_string()))?;
        *lock(&this.beat) = Some((stop, thread));
        Ok(this)
    }

    /// Its pid: protected from every effect.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Makes it remember how to undo an effect, at the latest at a monotonic instant. When this
    /// returns, the entry is on disk and in force. Registering a key again replaces its entry.
    ///
    /// # Errors
    /// When it is not in force; then the effect must not fire.
    pub fn register(&self, key: &str, deadline_ns: i64, action: Undo) -> Result<(), WatchdogError> {
        self.call(Op::Register {
            key: key.to_owned(),
            deadline_ns,
            action,
        })
    }

    /// The effect was undone, or never fired.
    ///
    /// # Errors
    /// When the watchdog did not hear it; it will undo once more, which does no harm.
    pub fn done(&self, key: &str) -> Result<(), WatchdogError> {
        self.call(Op::Done {
            key: key.to_owned(),
        })
    }

    /// Whether it still answers.
    ///
    /// # Errors
    /// Why not.
    pub fn check(&self) -> Result<(), WatchdogError> {
        self.call(Op::Beat)
    }

    fn call(&self, op: Op) -> Result<(), WatchdogError> {
        lock(&self.link).call(op)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        if let Some((stop, thread)) = lock(&self.beat).take() {
            drop(stop);
            let _ = thread.join();
        }
        lock(&self.link).bye();
        // It is never killed: should it still be undoing something, it must go on.
        let mut child = lock(&self.child);
        let until = monotonic_ns() + BYE_TIMEOUT_NS;
        while let Ok(None) = child.try_wait() {
            if monotonic_ns() >= until {
                tracing::warn!(
                    pid = self.pid,
                    "the watchdog is still undoing effects and was left running"
                );
                break;
            }
            sleep_until(monotonic_ns() + 2 * NS_PER_MS);
        }
    }
}

/// The pipes. After a missed answer nothing that comes can be trusted: the link stays lost.
struct Link {
    stdin: Option<ChildStdin>,
    stdout: ChildStdout,
    bytes: Vec<u8>,
    seq: u64,
    lost: Option<String>,
}

impl Link {
    fn call(&mut self, op: Op) -> Result<(), WatchdogError> {
        if let Some(reason) = &self.lost {
            return Err(WatchdogError::Lost(reason.clone()));
        }
        match self.exchange(op) {
            Ok(None) => Ok(()),
            Ok(Some(error)) => Err(WatchdogError::Refused(error)),
            Err(reason) => {
                self.lost = Some(reason.clone());
                Err(WatchdogError::Lost(reason))
            }
        }
    }

    fn exchange(&mut self, op: Op) -> Result<Option<String>, String> {
        let seq = self.send(op)?;
        let until = monotonic_ns() + ACK_TIMEOUT_NS;
        loop {
            if let Some(end) = self.bytes.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                let reply: Reply =
                    serde_json::from_slice(&line).map_err(|e| format!("its answer: {e}"))?;
                if reply.seq == seq {
                    return Ok(reply.error);
                }
                continue;
            }
            self.read(until)?;
        }
    }

    fn send(&mut self, op: Op) -> Result<u64, String> {
        self.seq += 1;
        let request = Request { seq: self.seq, op };
        let mut line = serde_json::to_vec(&request).map_err(|e| e.to_string())?;
        line.push(b'\n');
        if line.len() > MAX_LINE_BYTES {
            return Err("the request is too long".to_owned());
        }
        let stdin = self.stdin.as_mut().ok_or("it was said farewell")?;
        stdin
            .write_all(&line)
            .map_err(|e| format!("its pipe: {e}"))?;
        Ok(self.seq)
    }

    fn read(&mut self, until: i64) -> Result<(), String> {
        let left = until - monotonic_ns();
        if left <= 0 {
            return Err(format!("no answer within {} s", ACK_TIMEOUT_NS / NS_PER_S));
        }
        let timeout = Timespec {
            tv_sec: left / NS_PER_S,
            tv_nsec: left % NS_PER_S,
        };
        let mut fds = [PollFd::new(&self.stdout, PollFlags::IN)];
        match poll(&mut fds, Some(&timeout)) {
            Ok(0) | Err(Errno::INTR) => return Ok(()),
            Ok(_) => {}
            Err(e) => return Err(e.to_string()),
        }
        let mut chunk = [0; 4096];
        match rustix::io::read(&self.stdout, &mut chunk) {
            Ok(0) => Err("it has ended".to_owned()),
            Ok(n) => {
                self.bytes.extend_from_slice(&chunk[..n]);
                if self.bytes.len() > MAX_LINE_BYTES {
                    return Err("its answer is too long".to_owned());
                }
                Ok(())
            }
            Err(Errno::INTR) => Ok(()),
            Err(e) => Err(e.to_string()),
        }
    }

    fn bye(&mut self) {
        // Closing the pipe makes it undo everything too; the farewell only names the reason.
        let _ = self.send(Op::Bye);
        self.stdin = None;
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}
