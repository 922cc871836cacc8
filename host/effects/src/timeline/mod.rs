//! The timeline: effects in the order of their instants, one thread that keeps them.

mod condition;
mod engine;
mod outbox;
mod prepare;
mod worker;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RealTime, RunClock, RunNs, monotonic_ns};
use blackstart_record::{EffectStep, Event};
use blackstart_targets::{Reexec, Targets};

use crate::action::{Action, ScheduleError};
use crate::operation::{self, FactBoard};
use crate::watchdog::Watchdog;
pub use condition::Condition;
pub use engine::CANCEL_TIMEOUT_NS;
use engine::Engine;
use outbox::Outbox;

/// Most effects of a run.
pub const MAX_EFFECTS: usize = 1024;
/// Longest time between an effect and its undo.
pub const MAX_EFFECT_NS: i64 = 3600 * NS_PER_S;
/// How long before its instant an effect's victim is looked up and registered: long enough for a
/// host that is busy with the very server under test. What the look-up found is looked at again
/// [`RECHECK_NS`] before the instant, and used as it is should that second look come too late.
pub const PREPARE_NS: i64 = 5 * NS_PER_S;
/// How long before its instant the victim is looked up again.
pub const RECHECK_NS: i64 = 25 * NS_PER_MS;
/// How long before its instant the thread begins its precise wait.
pub const FIRE_WAKE_NS: i64 = 3 * NS_PER_MS;

/// Receives the steps of effects, for the record.
pub type EffectSink = Arc<dyn Fn(Event) + Send + Sync>;
/// Receives what happened to an effect, for the plugin's `observe`; it may schedule more.
pub type NoticeSink = Arc<dyn Fn(u32, Notice) + Send + Sync>;

/// What happened to an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Notice {
    /// It fired (in a negative control: would have); the middle of its bracket.
    Started(RunNs),
    /// It was undone; the middle of its bracket.
    Undone(RunNs),
    /// It did not fire, or could not be undone.
    Failed(String),
}

/// Whether operations are carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// They are.
    Real,
    /// Everything but the operation: victims are looked up, clocks read, steps recorded as
    /// `withheld`. Nothing is registered with the watchdog, since there is nothing to undo.
    NegativeControl,
}

/// What a timeline needs.
pub struct TimelineOptions {
    /// The run's clock.
    pub clock: RunClock,
    /// The system under test.
    pub targets: Arc<Targets>,
    /// The dead-man's switch.
    pub watchdog: Arc<Watchdog>,
    /// Gets `scheduled`, `started`, `undone`, `failed` and `withheld` steps.
    pub sink: EffectSink,
    /// Gets notices, on a thread that keeps no time.
    pub notice: NoticeSink,
    /// Starts the helper that takes memory (`run_balloon`); without it no such effect is possible.
    pub helper: Option<Reexec>,
    /// Whether operations are carried out.
    pub mode: Mode,
}

/// The timeline could not be started.
#[derive(Debug, thiserror::Error)]
#[error("the effect timeline could not start a thread: {0}")]
pub struct TimelineError(String);

/// An effect on the timeline.
#[derive(Debug, Clone)]
struct Effect {
    id: u32,
    action: Action,
    at: RunNs,
    until: Option<RunNs>,
}

/// What helper threads tell the timeline's thread.
enum Report {
    /// An effect's means were looked up.
    Prepared { id: u32, means: prepare::Means },
    /// A worker has done its work, or undone it.
    Done {
        id: u32,
        undo: bool,
        done: worker::Done,
    },
}

#[derive(Default)]
struct State {
    inbox: VecDeque<Effect>,
    reports: VecDeque<Report>,
    /// Windows in which something is changed: effect, what, at, until.
    held: Vec<(u32, String, RunNs, RunNs)>,
    next_id: u32,
    /// Effects that have not come to their end.
    open: usize,
    cancelled: bool,
    ended: bool,
}

/// What threads share.
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    /// Told apart from every other timeline of this host by it.
    name: String,
    /// Facts of what is in force.
    board: Arc<FactBoard>,
    /// Probes of the replicas.
    probes: condition::Probes,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn report(&self, report: Report) {
        self.lock().reports.push_back(report);
        self.changed.notify_all();
    }
}

/// Puts effects on a timeline, from any thread.
#[derive(Clone)]
pub struct Scheduler {
    shared: Arc<Shared>,
    targets: Arc<Targets>,
    outbox: Outbox,
    clock: RunClock,
}

impl Scheduler {
    /// Puts an effect on the timeline and returns its id. An instant that is past fires at once.
    ///
    /// # Errors
    /// See [`ScheduleError`]; nothing is scheduled then.
    pub fn schedule(
        &self,
        action: Action,
        at_ns: RunNs,
        until_ns: Option<RunNs>,
    ) -> Result<u32, ScheduleError> {
        action.check(at_ns, until_ns)?;
        match &action {
            Action::Signal { replica, role, .. } => self.targets.check_role(replica, role)?,
            Action::Http { replica, .. } => {
                if let Some(replica) = replica {
                    self.targets.replica(replica)?;
                }
            }
            // Also in a negative control: what the fault would need is tried out in it, too.
            Action::Operation { replica, operation } => {
                self.targets.replica(replica)?;
                operation::preflight(operation, &self.targets, replica).map_err(|reason| {
                    ScheduleError::Operation {
                        operation: action.describe(),
                        reason,
                    }
                })?;
            }
            Action::Watch { replica, .. } => {
                self.targets.replica(replica)?;
            }
        }
        let mut state = self.shared.lock();
        if state.cancelled || state.ended {
            return Err(ScheduleError::Closed);
        }
        let id = state.next_id;
        if id as usize >= MAX_EFFECTS {
            return Err(ScheduleError::TooMany);
        }
        if let (Some(what), Some(until)) = (action.holds(), until_ns) {
            if let Some(other) = state
                .held
                .iter()
                .find(|h| h.1 == what && h.2 <= until && at_ns <= h.3)
            {
                return Err(ScheduleError::Overlap {
                    what,
                    other: other.0,
                });
            }
            state.held.push((id, what, at_ns, until));
        }
        state.next_id += 1;
        state.open += 1;
        // Sent while the lock is held: it stands in the record before any other step of it.
        self.outbox.step(
            self.clock.now(),
            EffectStep {
                effect: id,
                step: "scheduled".to_owned(),
                action: action.describe(),
                replica: action.replica().map(str::to_owned),
                planned_ns: at_ns,
                before_ns: None,
                after_ns: None,
                detail: until_ns.map(|u| format!("until {u} ns")),
                by: "instrument".to_owned(),
            },
        );
        state.inbox.push_back(Effect {
            id,
            action,
            at: at_ns,
            until: until_ns,
        });
        drop(state);
        self.shared.changed.notify_all();
        Ok(id)
    }

    /// How many effects have not come to their end (fired, and undone where that is due).
    pub fn open_effects(&self) -> usize {
        self.shared.lock().open
    }
}

/// A running timeline. Dropping it cancels it: everything in force is undone.
pub struct Timeline {
    scheduler: Scheduler,
    real_time: RealTime,
    engine: Mutex<Option<JoinHandle<()>>>,
    outbox: Mutex<Option<JoinHandle<()>>>,
}

impl Timeline {
    /// Starts the timeline's threads. The watchdog becomes protected from every effect.
    ///
    /// # Errors
    /// When the system gives no thread.
    pub fn new(options: TimelineOptions) -> Result<Self, TimelineError> {
        let TimelineOptions {
            clock,
            targets,
            watchdog,
            sink,
            notice,
            helper,
            mode,
        } = options;
        targets.protected().protect(watchdog.pid());
        let failed = |e: std::io::Error| TimelineError(e.to_string());
        let (outbox, outbox_thread) = Outbox::start(sink, notice).map_err(failed)?;
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            name: format!("{}_{:x}", std::process::id(), monotonic_ns()),
            board: Arc::default(),
            probes: condition::Probes::default(),
        });
        let scheduler = Scheduler {
            shared: shared.clone(),
            targets: targets.clone(),
            outbox: outbox.clone(),
            clock,
        };
        let engine =
            Engine::new(shared, clock, targets, watchdog, helper, outbox, mode).map_err(failed)?;
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("timeline".to_owned())
            .spawn(move || engine.run(tell))
            .map_err(failed)?;
        let real_time = told
            .recv()
            .unwrap_or_else(|_| RealTime::Refused("the timeline's thread ended".to_owned()));
        Ok(Self {
            scheduler,
            real_time,
            engine: Mutex::new(Some(thread)),
            outbox: Mutex::new(Some(outbox_thread)),
        })
    }

    /// Whether effects are fired under real-time priority.
    pub fn real_time(&self) -> &RealTime {
        &self.real_time
    }

    /// A handle that schedules, for callbacks.
    pub fn scheduler(&self) -> Scheduler {
        self.scheduler.clone()
    }

    /// See [`Scheduler::schedule`].
    ///
    /// # Errors
    /// See [`Scheduler::schedule`].
    pub fn schedule(
        &self,
        action: Action,
        at_ns: RunNs,
        until_ns: Option<RunNs>,
    ) -> Result<u32, ScheduleError> {
        self.scheduler.schedule(action, at_ns, until_ns)
    }

    /// What can be read about a replica through the effects that are in force, and the last that
    /// could be read through those that have ended.
    pub fn facts(&self, replica: &str) -> Vec<(String, Option<String>)> {
        self.scheduler.shared.board.read(replica)
    }

    /// Tells of an inference probe straight to a replica: [`Condition::ServingAgain`] is seen in these.
    pub fn probed(&self, replica: &str, sent_ns: RunNs, first_token_ns: Option<RunNs>) {
        self.scheduler
            .shared
            .probes
            .take(replica, sent_ns, first_token_ns);
    }

    /// Undoes everything in force, drops what has not fired, and returns when that is done and
    /// every step has been handed to the sink. Cancelling twice is harmless.
    pub fn cancel(&self) {
        self.scheduler.shared.lock().cancelled = true;
        self.scheduler.shared.changed.notify_all();
        join(&self.engine);
        self.scheduler.outbox.stop();
        join(&self.outbox);
    }
}

/// Waits for a thread, unless it is the caller's own (a callback that drops the timeline).
fn join(slot: &Mutex<Option<JoinHandle<()>>>) {
    let thread = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
    if let Some(thread) = thread
        && thread.thread().id() != std::thread::current().id()
    {
        // Its panic was dealt with inside.
        let _ = thread.join();
    }
}

impl Drop for Timeline {
    fn drop(&mut self) {
        self.cancel();
    }
}
