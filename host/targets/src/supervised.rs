//! A replica that the instrument launches: the instrument's side of its supervisor.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, monotonic_ns};
use blackstart_plan::{ProcessPlan, ReplicaPlan, RuntimePlan};
use blackstart_record::{Event, EventKind, ReplicaStep};

use crate::error::TargetError;
use crate::guard::lock;
use crate::process_ref::{ProcessRef, Signal};
use crate::reexec::Reexec;
use crate::supervisor::{Command, Config, KILL_TIMEOUT_NS, Orphan, WireEvent};
use crate::{EventSink, lookup, proc};

/// How long the supervisor may take to start the command.
const LAUNCH_TIMEOUT: Duration = Duration::from_secs(20);
/// Most bytes of an event line: a crash may leave very many orphans.
const MAX_EVENT_BYTES: u64 = 16 << 20;
/// How much longer than the tree's own time limits the supervisor may take to end.
const STOP_SLACK_NS: i64 = 5 * NS_PER_S;

/// What the supervisor has said so far.
#[derive(Debug, Default)]
struct State {
    main: Option<(u32, u64)>,
    starts: u32,
    last_exit: Option<(Option<i32>, Option<i32>)>,
    orphans: Vec<Orphan>,
    failed: Option<String>,
    stopped: bool,
    ended: bool,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

/// A supervised replica. Dropping it stops its tree.
pub struct Supervised {
    replica: String,
    shared: Arc<Shared>,
    child: Mutex<Option<Child>>,
    stdin: Mutex<Option<ChildStdin>>,
    reader: Mutex<Option<JoinHandle<()>>>,
    supervisor: (u32, u64),
    stop_timeout_ns: i64,
}

impl Supervised {
    /// Checks command, directory and port, starts the supervisor, and waits until the command
    /// runs (not until it serves).
    ///
    /// # Errors
    /// See [`TargetError`]; nothing is left running then.
    pub fn launch(
        replica: &ReplicaPlan,
        log_path: &Path,
        clock: RunClock,
        exec: &Reexec,
        sink: EventSink,
    ) -> Result<Self, TargetError> {
        let RuntimePlan::Process(plan) = &replica.runtime else {
            return Err(TargetError::LaunchFailed {
                replica: replica.id.clone(),
                reason: "its runtime is not `process`".to_owned(),
            });
        };
        lookup::before_launch(&replica.id, &replica.base_url, plan)?;
        Self::start(&replica.id, plan, log_path, clock, exec, sink).map_err(|reason| {
            TargetError::LaunchFailed {
                replica: replica.id.clone(),
                reason,
            }
        })
    }

    fn start(
        replica: &str,
        plan: &ProcessPlan,
        log_path: &Path,
        clock: RunClock,
        exec: &Reexec,
        sink: EventSink,
    ) -> Result<Self, String> {
        // The supervisor must not depend on the instrument's working directory.
        let log_path = std::path::absolute(log_path).map_err(|e| e.to_string())?;
        let config = Config::new(replica, plan, log_path, &clock);
        let mut line = serde_json::to_vec(&config).map_err(|e| e.to_string())?;
        line.push(b'\n');
        let mut child = exec
            .command()
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("supervisor `{}`: {e}", exec.program.display()))?;
        let (Some(mut stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
            return Err("the supervisor has no pipes".to_owned());
        };
        let pid = child.id();
        let start_time = proc::stat(pid).map(|s| s.start_time).unwrap_or_default();
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
        });
        // From here on the supervisor is stopped when `this` is dropped, whatever fails.
        let sent = stdin.write_all(&line);
        let this = Self {
            replica: replica.to_owned(),
            shared: shared.clone(),
            child: Mutex::new(Some(child)),
            stdin: Mutex::new(Some(stdin)),
            reader: Mutex::new(None),
            supervisor: (pid, start_time),
            stop_timeout_ns: config.stop_timeout_ns,
        };
        let reader = Reader {
            replica: replica.to_owned(),
            clock,
            sink,
            shared,
            session: pid,
        };
        let thread = std::thread::Builder::new()
            .name(format!("super-{replica}"))
            .spawn(move || reader.run(stdout))
            .map_err(|e| format!("thread: {e}"))?;
        *lock(&this.reader) = Some(thread);
        let started = this.wait(LAUNCH_TIMEOUT, |s| {
            s.starts > 0 || s.failed.is_some() || s.ended
        });
        let state = lock(&this.shared.state);
        if let Some(reason) = &state.failed {
            return Err(reason.clone());
        }
        if state.starts > 0 {
            drop(state);
            return Ok(this);
        }
        drop(state);
        sent.map_err(|e| format!("supervisor: {e}"))?;
        Err(if started {
            "the supervisor ended before it started the command".to_owned()
        } else {
            format!("the supervisor did not start the command within {LAUNCH_TIMEOUT:?}")
        })
    }

    /// Name of the replica.
    pub fn replica(&self) -> &str {
        &self.replica
    }

    /// Pid of the supervisor.
    pub fn supervisor_pid(&self) -> u32 {
        self.supervisor.0
    }

    /// Pid and start time of the main process, `None` between its end and the next start.
    pub fn main(&self) -> Option<(u32, u64)> {
        lock(&self.shared.state).main
    }

    /// Starts after the first.
    pub fn restarts(&self) -> u32 {
        lock(&self.shared.state).starts.saturating_sub(1)
    }

    /// Exit code and signal of the main process that ended last.
    pub fn last_exit(&self) -> Option<(Option<i32>, Option<i32>)> {
        lock(&self.shared.state).last_exit
    }

    /// Descendants of earlier main processes that still live: pid and start time.
    pub fn living_orphans(&self) -> Vec<(u32, u64)> {
        let mut state = lock(&self.shared.state);
        state
            .orphans
            .retain(|o| proc::stat(o.pid).is_ok_and(|s| s.start_time == o.start_time && s.lives()));
        state
            .orphans
            .iter()
            .map(|o| (o.pid, o.start_time))
            .collect()
    }

    /// Whether the process is below the supervisor (which adopts orphans) and not itself.
    pub fn contains(&self, process: &ProcessRef) -> bool {
        let (pid, start_time) = self.supervisor;
        proc::stat(pid).is_ok_and(|s| s.start_time == start_time)
            && proc::ancestors(process.pid()).contains(&pid)
    }

    /// Stops the tree in good order, then by force, and waits for the supervisor's end. Returns
    /// titles of processes that could not be removed; empty is the rule. Stopping twice is
    /// harmless.
    pub fn stop(&self) -> Vec<String> {
        if let Some(mut stdin) = lock(&self.stdin).take()
            && let Ok(mut line) = serde_json::to_vec(&Command::Stop)
        {
            line.push(b'\n');
            // Closing it right after says the same, should this fail.
            let _ = stdin.write_all(&line);
        }
        let mut child = lock(&self.child);
        if let Some(child) = child.as_mut() {
            let limit = self.stop_timeout_ns + KILL_TIMEOUT_NS + STOP_SLACK_NS;
            if !ends_within(child, limit) {
                // It hangs; its main process dies with it (parent-death signal), the rest below.
                let _ = child.kill();
                let _ = child.wait();
            }
        }
        *child = None;
        if let Some(reader) = lock(&self.reader).take() {
            let _ = reader.join();
        }
        sweep_session(self.supervisor.0)
    }

    fn wait(&self, timeout: Duration, done: impl Fn(&State) -> bool) -> bool {
        let until = Instant::now() + timeout;
        let mut state = lock(&self.shared.state);
        while !done(&state) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self
                .shared
                .changed
                .wait_timeout(state, left)
                .unwrap_or_else(std::sync::PoisonError::into_inner)
                .0;
        }
        true
    }
}

impl Drop for Supervised {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Waits for a child's end, at most so long.
fn ends_within(child: &mut Child, limit_ns: i64) -> bool {
    let until = monotonic_ns() + limit_ns;
    loop {
        match child.try_wait() {
            Ok(None) if monotonic_ns() < until => {
                blackstart_clock::sleep_until(monotonic_ns() + 5 * NS_PER_MS);
            }
            Ok(None) => return false,
            Ok(Some(_)) | Err(_) => return true,
        }
    }
}

/// Kills whatever is left in the session that the supervisor opened. Only finds something when
/// the supervisor itself was killed. Returns titles of what does not go.
fn sweep_session(session: u32) -> Vec<String> {
    let until = monotonic_ns() + KILL_TIMEOUT_NS;
    loop {
        let Ok(all) = proc::snapshot() else {
            return Vec::new();
        };
        let left: Vec<&proc::Stat> = all
            .iter()
            .filter(|s| s.session == session && s.pid != session && s.lives())
            .collect();
        if left.is_empty() {
            return Vec::new();
        }
        if monotonic_ns() >= until {
            return left.iter().map(|s| proc::title(s)).collect();
        }
        for stat in left {
            if let Ok(held) = ProcessRef::open_same(stat.pid, stat.start_time) {
                let _ = held.send(Signal::Kill);
            }
        }
        blackstart_clock::sleep_until(monotonic_ns() + 5 * NS_PER_MS);
    }
}

/// Turns the supervisor's lines into state and events.
struct Reader {
    replica: String,
    clock: RunClock,
    sink: EventSink,
    shared: Arc<Shared>,
    session: u32,
}

impl Reader {
    fn run(self, stdout: ChildStdout) {
        let mut stdout = BufReader::new(stdout);
        loop {
            let mut line = Vec::new();
            match stdout
                .by_ref()
                .take(MAX_EVENT_BYTES)
                .read_until(b'\n', &mut line)
            {
                Ok(0) | Err(_) => break,
                Ok(_) => {}
            }
            if let Ok(event) = serde_json::from_slice::<WireEvent>(&line) {
                self.take(event);
            }
        }
        let unexpected = {
            let mut state = lock(&self.shared.state);
            state.ended = true;
            state.main = None;
            !state.stopped && state.failed.is_none()
        };
        self.shared.changed.notify_all();
        if unexpected {
            let left = sweep_session(self.session);
            let mut text = format!(
                "the supervisor of replica `{}` ended unexpectedly; its processes were killed",
                self.replica
            );
            if !left.is_empty() {
                text = format!("{text}, except: {}", left.join("; "));
            }
            self.emit(monotonic_ns(), EventKind::Note { text });
        }
    }

    fn emit(&self, at_monotonic_ns: i64, kind: EventKind) {
        (self.sink)(Event {
            at_ns: self.clock.from_monotonic(at_monotonic_ns),
            kind,
        });
    }

    fn take(&self, event: WireEvent) {
        let replica = self.replica.clone();
        let mut state = lock(&self.shared.state);
        let (at, kind) = match event {
            WireEvent::Started {
                at,
                pid,
                start_time,
                restarts,
            } => {
                state.main = Some((pid, start_time));
                state.starts = restarts.saturating_add(1);
                let step = ReplicaStep::Started {
                    replica,
                    pid,
                    restarts,
                };
                (at, EventKind::Replica(step))
            }
            WireEvent::Exited {
                at,
                pid,
                code,
                signal,
                orphans,
            } => {
                state.main = None;
                state.last_exit = Some((code, signal));
                let shown = orphans
                    .iter()
                    .map(|o| format!("{} {}", o.pid, o.title))
                    .collect();
                state.orphans.extend(orphans);
                let step = ReplicaStep::Exited {
                    replica,
                    pid,
                    code,
                    signal,
                    orphans: shown,
                };
                (at, EventKind::Replica(step))
            }
            WireEvent::OrphansGone { at, count, killed } => {
                let step = ReplicaStep::OrphansGone {
                    replica,
                    count,
                    killed,
                };
                (at, EventKind::Replica(step))
            }
            WireEvent::NotRestarted { at, reason } => (
                at,
                EventKind::Replica(ReplicaStep::NotRestarted { replica, reason }),
            ),
            WireEvent::LaunchFailed { reason, .. } => {
                state.failed = Some(reason);
                drop(state);
                self.shared.changed.notify_all();
                return;
            }
            WireEvent::LogFailed { at, reason } => {
                let text = format!(
                    "log of replica `{replica}` could not be written any further: {reason}"
                );
                (at, EventKind::Note { text })
            }
            WireEvent::Stopped { at, left } => {
                state.stopped = true;
                if left.is_empty() {
                    drop(state);
                    self.shared.changed.notify_all();
                    return;
                }
                let left: Vec<String> = left
                    .iter()
                    .map(|o| format!("{} {}", o.pid, o.title))
                    .collect();
                let text = format!(
                    "processes of replica `{replica}` did not end even by SIGKILL: {}",
                    left.join("; ")
                );
                (at, EventKind::Note { text })
            }
        };
        drop(state);
        // State first: whoever hears the event finds it so.
        self.shared.changed.notify_all();
        self.emit(at, kind);
    }
}
