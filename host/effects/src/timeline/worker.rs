//! A thread for each effect that may block, so that a silent server delays no other effect.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use blackstart_clock::{NS_PER_MS, SleepPlan, monotonic_ns, sleep_until, wait_until};

use super::{Report, Shared};
use crate::http::{self, HttpRequest};
use crate::operation::Task;

/// How often an undo is tried. The effect itself is tried once only.
const UNDO_ATTEMPTS: u32 = 3;
/// Pause between two tries.
const UNDO_PAUSE_NS: i64 = 200 * NS_PER_MS;

/// What a worker carries out.
pub(super) enum Work {
    /// A request, and the one that undoes it.
    Http {
        sender: Box<http::Sender>,
        request: Box<HttpRequest>,
        on_expiry: Option<Box<HttpRequest>>,
    },
    /// An operation on a replica's surroundings.
    Task(Box<dyn Task>),
    /// A wait until something holds. Says the instants between which it began to hold.
    Wait(Box<dyn FnMut() -> Result<(i64, i64), String> + Send>),
}

/// Something that was done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Done {
    /// Monotonic clock directly before.
    pub(super) before: i64,
    /// Directly after.
    pub(super) after: i64,
    /// A detail for the record, or why it failed.
    pub(super) result: Result<String, Undone>,
}

/// Why nothing succeeded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Undone {
    /// Nothing was done: the instant at which the effect had to be undone had passed.
    EndHadPassed,
    /// It failed; whether it had an effect is not known.
    Failed(String),
}

impl std::fmt::Display for Undone {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::EndHadPassed => http::END_HAD_PASSED,
            Self::Failed(reason) => reason,
        })
    }
}

impl From<http::Sent> for Done {
    fn from(sent: http::Sent) -> Self {
        Self {
            before: sent.before,
            after: sent.after,
            result: match sent.result {
                Ok(status) => Ok(format!("status {status}")),
                Err(http::Unsent::EndHadPassed) => Err(Undone::EndHadPassed),
                Err(http::Unsent::Failed(reason)) => Err(Undone::Failed(reason)),
            },
        }
    }
}

impl Done {
    fn panicked() -> Self {
        let now = monotonic_ns();
        Self {
            before: now,
            after: now,
            result: Err(Undone::Failed("internal error: it panicked".to_owned())),
        }
    }

    /// Waits for a monotonic instant and does it between two clock reads.
    fn bracketed(
        at: i64,
        until: Option<i64>,
        act: impl FnOnce() -> Result<String, String>,
    ) -> Self {
        let before = wait_until(at, SleepPlan::DEFAULT);
        if until.is_some_and(|until| before >= until) {
            return Self {
                before,
                after: before,
                result: Err(Undone::EndHadPassed),
            };
        }
        let result = act().map_err(Undone::Failed);
        Self {
            before,
            after: monotonic_ns(),
            result,
        }
    }
}

impl Work {
    fn fire(&mut self, at: i64, until: Option<i64>) -> Done {
        match self {
            Self::Http {
                sender, request, ..
            } => sender.send(request, at, until).into(),
            Self::Task(task) => Done::bracketed(at, until, || task.fire()),
            Self::Wait(wait) => {
                wait_until(at, SleepPlan::DEFAULT);
                let held = wait();
                let now = monotonic_ns();
                let (before, after) = *held.as_ref().unwrap_or(&(now, now));
                Done {
                    before,
                    after,
                    result: held.map(|_| String::new()).map_err(Undone::Failed),
                }
            }
        }
    }

    /// `None` where there is nothing to undo.
    fn undo(&mut self, at: i64) -> Option<Done> {
        match self {
            Self::Http {
                sender, on_expiry, ..
            } => on_expiry
                .as_ref()
                .map(|request| sender.send_undo(request, at).into()),
            Self::Task(task) => {
                let mut done = Done::bracketed(at, None, || task.undo());
                for _ in 1..UNDO_ATTEMPTS {
                    if done.result.is_ok() {
                        break;
                    }
                    sleep_until(monotonic_ns() + UNDO_PAUSE_NS);
                    done = Done::bracketed(0, None, || task.undo());
                }
                Some(done)
            }
            Self::Wait(_) => None,
        }
    }
}

enum Order {
    /// Not before a monotonic instant, and not at or after another.
    Fire { at: i64, until: Option<i64> },
    /// Undo, not before a monotonic instant.
    Undo(i64),
}

/// A thread with its work ready. It ends when this is dropped.
pub(super) struct Worker(Sender<Order>);

impl Worker {
    pub(super) fn start(id: u32, mut work: Work, shared: Arc<Shared>) -> Result<Self, String> {
        let (orders, inbox) = channel();
        std::thread::Builder::new()
            .name(format!("effect-{id}"))
            .spawn(move || {
                // A refusal costs some tenths of a millisecond, and the bracket shows them.
                let _ = blackstart_clock::request_real_time(blackstart_clock::Urgency::Instants);
                while let Ok(order) = inbox.recv() {
                    let undo = matches!(order, Order::Undo(_));
                    let done = catch_unwind(AssertUnwindSafe(|| match order {
                        Order::Fire { at, until } => Some(work.fire(at, until)),
                        Order::Undo(at) => work.undo(at),
                    }));
                    // The timeline waits for every order's end.
                    let done = done.unwrap_or_else(|_| Some(Done::panicked()));
                    if let Some(done) = done {
                        shared.report(Report::Done { id, undo, done });
                    }
                }
            })
            .map_err(|e| format!("thread: {e}"))?;
        Ok(Self(orders))
    }

    /// Both instants on the monotonic clock. False when the thread has ended, by a panic.
    pub(super) fn fire(&self, at: i64, until: Option<i64>) -> bool {
        self.0.send(Order::Fire { at, until }).is_ok()
    }

    /// False when the thread has ended, by a panic.
    pub(super) fn undo(&self, at_monotonic_ns: i64) -> bool {
        self.0.send(Order::Undo(at_monotonic_ns)).is_ok()
    }
}
