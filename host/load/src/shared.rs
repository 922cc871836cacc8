//! What the threads of one load share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use blackstart_clock::RunClock;
use blackstart_record::Event;
use tokio::sync::Notify;

use crate::pacing::State;
use crate::progress::ThreadProgress;

/// Events that are held until the caller takes them; older ones are dropped beyond it.
const MAX_HELD_EVENTS: usize = 100_000;

/// State of one load.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) clock: RunClock,
    pub(crate) pacing: State,
    /// Requests of the schedule whose time has come, for each load thread.
    released: Vec<AtomicU64>,
    /// When the load was ended early.
    cancelled_at_ns: OnceLock<i64>,
    /// One for each load thread: the load was ended early.
    pub(crate) wakes: Vec<Notify>,
    /// One for each load thread.
    pub(crate) progress: Vec<ThreadProgress>,
    events: Mutex<Vec<Event>>,
    /// Why records cannot be written any more.
    write_failure: OnceLock<String>,
}

/// A lock whose holder panicked still guards plain data.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    pub(crate) fn new(clock: RunClock, pacing: State, threads: usize) -> Self {
        Self {
            clock,
            pacing,
            released: (0..threads).map(|_| AtomicU64::new(0)).collect(),
            cancelled_at_ns: OnceLock::new(),
            wakes: (0..threads).map(|_| Notify::new()).collect(),
            progress: (0..threads).map(|_| ThreadProgress::default()).collect(),
            events: Mutex::new(Vec::new()),
            write_failure: OnceLock::new(),
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.pacing.total()
    }

    /// Requests whose time has come.
    pub(crate) fn released(&self) -> u64 {
        match self.pacing {
            State::Open { .. } => self
                .released
                .iter()
                .map(|n| n.load(Ordering::Acquire))
                .sum(),
            State::Closed { .. } => self.total(),
        }
    }

    /// A load thread has released another request of the schedule.
    pub(crate) fn release(&self, thread: usize) {
        self.released[thread].fetch_add(1, Ordering::AcqRel);
    }

    /// Ends the load; the first call counts.
    pub(crate) fn cancel(&self) {
        self.cancelled_at_ns.get_or_init(|| self.clock.now());
        for wake in &self.wakes {
            wake.notify_one();
        }
    }

    /// When the load was ended early, if it was.
    pub(crate) fn cancelled(&self) -> Option<i64> {
        self.cancelled_at_ns.get().copied()
    }

    /// Ends the load because its records cannot be written; the first reason counts.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.write_failure.set(reason);
        self.cancel();
    }

    /// Why records cannot be written, if so.
    pub(crate) fn write_failure(&self) -> Option<String> {
        self.write_failure.get().cloned()
    }

    pub(crate) fn push_event(&self, event: Event) {
        let mut events = lock(&self.events);
        if events.len() == MAX_HELD_EVENTS {
            events.remove(0);
        }
        events.push(event);
    }

    pub(crate) fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut *lock(&self.events))
    }
}
