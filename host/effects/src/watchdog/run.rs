//! The watchdog process.

use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use blackstart_clock::{NS_PER_S, Urgency, monotonic_ns, request_real_time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::journal::{Journal, JournalStep};
use super::undo::Undo;
use super::wire::{Op, Reply, Request};
use super::{GRACE_NS, MAX_ENTRIES, MAX_LINE_BYTES};

/// Longest time between two looks at the deadlines.
const IDLE_NS: i64 = NS_PER_S;
/// Bytes of one read.
const READ_BYTES: usize = 64 * 1024;

const DIED: &str = "instrument died";
const LATE: &str = "deadline passed";
const LEFT: &str = "left at the farewell";

/// The watchdog process: requests on standard input, answers on standard output, until the
/// instrument says farewell or dies. Ends only after everything was undone.
pub fn run() -> ExitCode {
    detach();
    // On a starved host an undo must not wait. A refusal costs only that.
    let _ = request_real_time(Urgency::Observing);
    let mut watchdog = Process {
        journal: None,
        entries: Vec::new(),
        overdue: Vec::new(),
        last_beat: monotonic_ns(),
        undoing: Vec::new(),
        bytes: Vec::new(),
    };
    let because = watchdog.serve();
    // A frozen process must not wait for a request's answer.
    let (signals, requests): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut watchdog.entries)
        .into_iter()
        .chain(std::mem::take(&mut watchdog.overdue))
        .partition(|e| !e.action.waits());
    for entry in signals.into_iter().chain(requests) {
        watchdog.undo(entry, because);
    }
    for thread in std::mem::take(&mut watchdog.undoing) {
        // A panic in it was one failed undo; the others go on.
        let _ = thread.join();
    }
    // A journal that cannot be written is no reason to stay.
    let _ = watchdog.append(JournalStep::Closed);
    ExitCode::SUCCESS
}

/// Own session, deaf to what may end the instrument. Only SIGKILL and its work's end stop it.
fn detach() {
    // Fails only for a group leader, which a terminal's Ctrl-C does not reach either.
    let _ = rustix::process::setsid();
    // SAFETY: setting a disposition to "ignore" touches no memory of ours.
    unsafe {
        for signal in [
            libc::SIGINT,
            libc::SIGTERM,
            libc::SIGHUP,
            libc::SIGQUIT,
            libc::SIGPIPE,
        ] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

#[derive(Clone)]
struct Entry {
    key: String,
    deadline_ns: i64,
    action: Undo,
}

struct Process {
    journal: Option<Arc<Mutex<Journal>>>,
    entries: Vec<Entry>,
    /// Undone at their deadline, and the instrument has not said that they are over: it may have
    /// been late, and begun the effect after that. They are undone again at its end.
    overdue: Vec<Entry>,
    last_beat: i64,
    undoing: Vec<JoinHandle<()>>,
    bytes: Vec<u8>,
}

impl Process {
    /// Until the end of the instrument; says how it ended.
    fn serve(&mut self) -> &'static str {
        loop {
            let now = monotonic_ns();
            let (late, rest): (Vec<Entry>, Vec<Entry>) = std::mem::take(&mut self.entries)
                .into_iter()
                .partition(|e| e.deadline_ns.saturating_add(GRACE_NS) <= now);
            self.entries = rest;
            for entry in late {
                self.overdue.push(entry.clone());
                self.undo(entry, LATE);
            }
            self.undoing.retain(|t| !t.is_finished());
            if !self.readable(now) {
                continue;
            }
            let mut chunk = vec![0; READ_BYTES];
            match rustix::io::read(std::io::stdin(), &mut chunk) {
                Ok(0) => return DIED,
                Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
                Err(Errno::INTR | Errno::AGAIN) => continue,
                Err(_) => return DIED,
            }
            while let Some(end) = self.bytes.iter().position(|&b| b == b'\n') {
                let line: Vec<u8> = self.bytes.drain(..=end).collect();
                match serde_json::from_slice::<Request>(&line) {
                    // Not answered: its answer is this process's end, after the last undo.
                    Ok(Request { op: Op::Bye, .. }) => return LEFT,
                    Ok(request) => {
                        let result = self.take(request.op);
                        reply(request.seq, result.err());
                    }
                    // A line cut by the instrument's death is followed by the pipe's end; any
                    // other nonsense means that the instrument is not to be trusted with it.
                    Err(_) => return DIED,
                }
            }
            if self.bytes.len() > MAX_LINE_BYTES {
                return DIED;
            }
        }
    }

    /// Waits for a request or the next deadline.
    fn readable(&self, now: i64) -> bool {
        let next = self
            .entries
            .iter()
            .map(|e| e.deadline_ns.saturating_add(GRACE_NS))
            .fold(now + IDLE_NS, i64::min);
        let wait = (next - now).max(0);
        let timeout = Timespec {
            tv_sec: wait / NS_PER_S,
            tv_nsec: wait % NS_PER_S,
        };
        let stdin = std::io::stdin();
        let mut fds = [PollFd::new(&stdin, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&timeout)), Ok(n) if n > 0)
    }

    fn take(&mut self, op: Op) -> Result<(), String> {
        self.last_beat = monotonic_ns();
        match op {
            Op::Open { journal } => {
                let opened = Journal::open(&journal)
                    .and_then(|mut j| {
                        j.append(JournalStep::Opened {
                            watchdog_pid: std::process::id(),
                            instrument_pid: parent(),
                            boot_id: std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
                                .ok()
                                .map(|s| s.trim().to_owned()),
                        })?;
                        Ok(j)
                    })
                    .map_err(|e| format!("journal `{}`: {e}", journal.display()))?;
                self.journal = Some(Arc::new(Mutex::new(opened)));
                Ok(())
            }
            Op::Register {
                key,
                deadline_ns,
                action,
            } => {
                if deadline_ns <= self.last_beat {
                    return Err("the effect's end has passed already".to_owned());
                }
                if self.entries.len() + self.overdue.len() >= MAX_ENTRIES {
                    return Err(format!("more than {MAX_ENTRIES} effects at a time"));
                }
                self.append(JournalStep::Registered {
                    key: key.clone(),
                    deadline_ns,
                    undo: action.describe(),
                    action: action.without_secrets(),
                })?;
                self.forget(&key);
                self.entries.push(Entry {
                    key,
                    deadline_ns,
                    action,
                });
                Ok(())
            }
            Op::Done { key } => {
                if self.forget(&key) {
                    self.append(JournalStep::Done { key })?;
                }
                Ok(())
            }
            Op::Beat | Op::Bye => Ok(()),
        }
    }

    /// Whether there was such an entry.
    fn forget(&mut self, key: &str) -> bool {
        let before = self.entries.len() + self.overdue.len();
        self.entries.retain(|e| e.key != key);
        self.overdue.retain(|e| e.key != key);
        self.entries.len() + self.overdue.len() < before
    }

    fn append(&self, step: JournalStep) -> Result<(), String> {
        let journal = self.journal.as_ref().ok_or("the journal is not open")?;
        journal
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .append(step)
            .map_err(|e| format!("journal: {e}"))
    }

    /// Signals and limits at once; what waits for others in a thread each, so that a silent server
    /// delays nothing else.
    fn undo(&mut self, entry: Entry, because: &'static str) {
        let work = Arc::new(Work {
            entry,
            because,
            journal: self.journal.clone(),
            last_beat_ns_ago: monotonic_ns() - self.last_beat,
        });
        if work.entry.action.waits() {
            let shared = work.clone();
            let spawned = std::thread::Builder::new().spawn(move || shared.carry_out());
            if let Ok(thread) = spawned {
                self.undoing.push(thread);
                return;
            }
        }
        work.carry_out();
    }
}

/// One undo.
struct Work {
    entry: Entry,
    because: &'static str,
    journal: Option<Arc<Mutex<Journal>>>,
    last_beat_ns_ago: i64,
}

impl Work {
    fn carry_out(&self) {
        let (error, state_after) = match self.entry.action.execute() {
            Ok(state) => (None, Some(state)),
            Err(reason) => (Some(reason), None),
        };
        let step = JournalStep::Undone {
            key: self.entry.key.clone(),
            because: self.because.to_owned(),
            undo: self.entry.action.describe(),
            error,
            state_after,
            last_beat_ns_ago: self.last_beat_ns_ago,
        };
        if let Some(journal) = &self.journal {
            let mut journal = journal.lock().unwrap_or_else(PoisonError::into_inner);
            // A journal that cannot be written must not keep anything from being undone.
            let _ = journal.append(step);
        }
    }
}

fn reply(seq: u64, error: Option<String>) {
    if let Ok(mut line) = serde_json::to_vec(&Reply { seq, error }) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        // A dead instrument is noticed on standard input.
        let _ = out.write_all(&line);
        let _ = out.flush();
    }
}

fn parent() -> u32 {
    rustix::process::getppid().map_or(0, |p| p.as_raw_nonzero().get().unsigned_abs())
}
