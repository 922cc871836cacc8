//! Looks up victims and registers undos, on a thread of its own: reading `/proc` and the
//! watchdog's write to disk take milliseconds that no effect's instant may wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use blackstart_clock::{RunClock, Urgency, request_real_time};
use blackstart_targets::{ProcessRef, Reexec, Signal, Targets};

use super::worker::{Work, Worker};
use super::{Effect, Mode, Report, Shared, condition};
use crate::action::Action;
use crate::http;
use crate::operation::{self, Operation};
use crate::watchdog::{Undo, Watchdog};

/// What an effect is carried out with.
pub(super) enum Means {
    /// The victim, held and authorised; its undo, if it has one, is registered.
    Process(ProcessRef),
    /// A thread with the work ready; its undo, if it has one, is registered.
    Work(Worker),
    /// An effect that is withheld (negative control).
    Withheld,
    /// There are none, and why.
    Missing(String),
}

enum Job {
    /// Look up; `known` is the victim found before.
    Prepare {
        effect: Box<Effect>,
        known: Option<(u32, u64)>,
    },
    /// The watchdog can forget the effect.
    Done(u32),
}

/// The thread. Dropping it waits for the jobs it has been given.
pub(super) struct Preparer {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
}

impl Preparer {
    pub(super) fn start(
        shared: Arc<Shared>,
        clock: RunClock,
        targets: Arc<Targets>,
        watchdog: Arc<Watchdog>,
        helper: Option<Reexec>,
        mode: Mode,
    ) -> std::io::Result<Self> {
        let (jobs, inbox) = channel();
        let bench = Bench {
            shared,
            clock,
            targets,
            watchdog,
            helper,
            mode,
        };
        let thread = std::thread::Builder::new()
            .name("effect-prepare".to_owned())
            .spawn(move || {
                // A victim that is looked up late is hit late. A refusal shows in the fire error.
                let _ = request_real_time(Urgency::Observing);
                bench.run(&inbox);
            })?;
        Ok(Self {
            jobs: Some(jobs),
            thread: Some(thread),
        })
    }

    // The thread ends only when this is dropped, so a send cannot fail.
    fn send(&self, job: Job) {
        if let Some(jobs) = &self.jobs {
            let _ = jobs.send(job);
        }
    }

    pub(super) fn prepare(&self, effect: &Effect, known: Option<(u32, u64)>) {
        self.send(Job::Prepare {
            effect: Box::new(effect.clone()),
            known,
        });
    }

    pub(super) fn done(&self, id: u32) {
        self.send(Job::Done(id));
    }
}

impl Drop for Preparer {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn key(id: u32) -> String {
    format!("effect-{id}")
}

struct Bench {
    shared: Arc<Shared>,
    clock: RunClock,
    targets: Arc<Targets>,
    watchdog: Arc<Watchdog>,
    helper: Option<Reexec>,
    mode: Mode,
}

impl Bench {
    fn run(&self, inbox: &Receiver<Job>) {
        while let Ok(job) = inbox.recv() {
            match job {
                Job::Prepare { effect, known } => {
                    let means = catch_unwind(AssertUnwindSafe(|| self.prepare(&effect, known)))
                        .unwrap_or_else(|_| {
                            Means::Missing("internal error: its preparation panicked".to_owned())
                        });
                    let id = effect.id;
                    self.shared.report(Report::Prepared { id, means });
                }
                // Should it fail, the watchdog undoes once more, which does no harm.
                Job::Done(id) => {
                    if let Err(e) = self.watchdog.done(&key(id)) {
                        tracing::warn!(effect = id, "{e}");
                    }
                }
            }
        }
    }

    fn prepare(&self, effect: &Effect, known: Option<(u32, u64)>) -> Means {
        let result = match &effect.action {
            Action::Signal {
                replica,
                role,
                signal,
            } => self.process(effect, known, replica, role, *signal),
            _ if self.mode == Mode::NegativeControl => Ok(Means::Withheld),
            Action::Http {
                request, on_expiry, ..
            } => http::Sender::new().and_then(|sender| {
                if let Some(undo) = on_expiry {
                    self.register(effect, Undo::Http(undo.clone()))?;
                }
                self.work(
                    effect,
                    Work::Http {
                        sender: Box::new(sender),
                        request: Box::new(request.clone()),
                        on_expiry: on_expiry.clone().map(Box::new),
                    },
                )
            }),
            Action::Operation { replica, operation } => self.operation(effect, replica, operation),
            Action::Watch {
                replica,
                condition,
                deadline,
            } => {
                let (shared, targets, clock) =
                    (self.shared.clone(), self.targets.clone(), self.clock);
                let (replica, condition, deadline) = (replica.clone(), *condition, *deadline);
                self.work(
                    effect,
                    Work::Wait(Box::new(move || {
                        condition::wait(&shared, &targets, clock, &replica, condition, deadline)
                    })),
                )
            }
        };
        result.unwrap_or_else(Means::Missing)
    }

    fn work(&self, effect: &Effect, work: Work) -> Result<Means, String> {
        Worker::start(effect.id, work, self.shared.clone()).map(Means::Work)
    }

    fn operation(
        &self,
        effect: &Effect,
        replica: &str,
        operation: &Operation,
    ) -> Result<Means, String> {
        let bench = operation::Bench {
            targets: &self.targets,
            namespace: &self.shared.name,
            exec: self.helper.as_ref(),
            board: &self.shared.board,
        };
        let victim = operation::Victim::find(&self.targets, effect.id, replica)?;
        let duration_ns = effect.until.map_or(0, |until| until - effect.at);
        let mut register = |undo| self.register(effect, undo);
        let task = operation::prepare(operation, &bench, victim, duration_ns, &mut register)?;
        self.work(effect, Work::Task(task))
    }

    fn process(
        &self,
        effect: &Effect,
        known: Option<(u32, u64)>,
        replica: &str,
        role: &str,
        signal: Signal,
    ) -> Result<Means, String> {
        let victim = self
            .targets
            .resolve_role(replica, role)
            .map_err(|e| e.to_string())?;
        let (pid, start_time) = (victim.pid(), victim.start_time());
        if signal == Signal::Stop && self.mode == Mode::Real {
            if known == Some((pid, start_time)) {
                self.watchdog.check().map_err(|e| e.to_string())?;
            } else {
                self.register(effect, Undo::Cont { pid, start_time })?;
            }
        }
        Ok(Means::Process(victim))
    }

    fn register(&self, effect: &Effect, undo: Undo) -> Result<(), String> {
        let until = effect.until.ok_or("an effect with an undo has no end")?;
        self.watchdog
            .register(&key(effect.id), self.clock.to_monotonic(until), undo)
            .map_err(|e| e.to_string())
    }
}
