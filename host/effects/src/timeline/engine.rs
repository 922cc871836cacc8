//! The thread that keeps the instants. It does nothing slow: others look up, register, record.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use blackstart_clock::{
    NS_PER_MS, NS_PER_S, RealTime, RunClock, RunNs, SleepPlan, Urgency, monotonic_ns,
    request_real_time, wait_until,
};
use blackstart_record::{EffectStep, EventKind};
use blackstart_targets::{ProcessRef, Reexec, Signal, Targets};

use super::outbox::Outbox;
use super::prepare::{Means, Preparer};
use super::worker::{Done, Undone, Worker};
use super::{Effect, FIRE_WAKE_NS, Mode, Notice, PREPARE_NS, RECHECK_NS, Report, Shared};
use crate::action::Action;
use crate::http::{END_HAD_PASSED, HTTP_TIMEOUT_NS};
use crate::watchdog::{GRACE_NS, Watchdog};

/// Longest wait without a look at the world.
const IDLE_NS: i64 = 60 * NS_PER_S;
/// How long after its instant a late preparation may still lead to a fire.
const LATE_PREPARATION_NS: i64 = 30 * NS_PER_S;
/// How long a cancel waits for requests under way and their undos.
pub const CANCEL_TIMEOUT_NS: i64 = 5 * HTTP_TIMEOUT_NS;

/// Where an effect stands.
enum Phase {
    /// Its victim is not looked up yet.
    Waiting,
    /// It is being looked up for the first time (or again, because it was missing).
    Preparing,
    /// It is known.
    Ready(Means),
    /// It is known, and being looked up again.
    Rechecking(Means),
    /// It is known freshly.
    Checked(Means),
    /// The request is under way.
    Firing(Worker),
    /// In force until its end.
    Active(Means),
    /// The undoing request is under way; its thread reports and ends by itself.
    Undoing,
    /// Nothing is left to do.
    Done,
}

struct Entry {
    effect: Effect,
    phase: Phase,
    /// Whether the watchdog may know of it.
    registered: bool,
    /// Whether the look-up at its very instant, after which there is no other, was asked for.
    looked_last: bool,
}

impl Entry {
    /// When something is to be done for it.
    fn next(&self) -> Option<RunNs> {
        let at = self.effect.at;
        match &self.phase {
            Phase::Waiting => Some(at - PREPARE_NS),
            Phase::Preparing => Some(at + LATE_PREPARATION_NS),
            Phase::Ready(_) => Some(at - RECHECK_NS),
            Phase::Rechecking(_) | Phase::Checked(_) => Some(at - FIRE_WAKE_NS),
            Phase::Active(_) => self.effect.until.map(|u| u - FIRE_WAKE_NS),
            Phase::Firing(_) | Phase::Undoing | Phase::Done => None,
        }
    }

    fn take_phase(&mut self) -> Phase {
        std::mem::replace(&mut self.phase, Phase::Done)
    }
}

pub(super) struct Engine {
    shared: Arc<Shared>,
    clock: RunClock,
    outbox: Outbox,
    mode: Mode,
    preparer: Preparer,
    entries: Vec<Entry>,
}

/// A bracketed operation.
struct Bracket {
    before: i64,
    after: i64,
}

impl Engine {
    pub(super) fn new(
        shared: Arc<Shared>,
        clock: RunClock,
        targets: Arc<Targets>,
        watchdog: Arc<Watchdog>,
        helper: Option<Reexec>,
        outbox: Outbox,
        mode: Mode,
    ) -> io::Result<Self> {
        let preparer = Preparer::start(shared.clone(), clock, targets, watchdog, helper, mode)?;
        Ok(Self {
            shared,
            clock,
            outbox,
            mode,
            preparer,
            entries: Vec::new(),
        })
    }

    /// Until cancelled. Tells once whether it runs under real-time priority.
    pub(super) fn run(mut self, tell: Sender<RealTime>) {
        // Whoever asked may be gone; then nobody needs the answer.
        let _ = tell.send(request_real_time(Urgency::Instants));
        if catch_unwind(AssertUnwindSafe(|| self.keep())).is_err() {
            let text =
                "internal error: the effect timeline panicked; everything in force is undone"
                    .to_owned();
            self.outbox
                .event(self.clock.now(), EventKind::Note { text });
            // What this cannot undo any more, the watchdog still knows.
            let _ = catch_unwind(AssertUnwindSafe(|| self.cancel()));
        }
        let mut state = self.shared.lock();
        state.ended = true;
        state.open = 0;
        drop(state);
        self.shared.changed.notify_all();
    }

    fn keep(&mut self) {
        loop {
            if self.collect() {
                self.cancel();
                return;
            }
            let now = self.clock.now();
            let next = self
                .entries
                .iter()
                .enumerate()
                .filter_map(|(i, e)| e.next().map(|t| (t, e.effect.at, e.effect.id, i)))
                .min();
            match next {
                Some((t, _, _, index)) if t <= now => self.step(index),
                next => self.wait(next.map_or(IDLE_NS, |n| n.0 - now)),
            }
        }
    }

    /// Takes what others left; whether the timeline is cancelled.
    fn collect(&mut self) -> bool {
        let mut state = self.shared.lock();
        let fresh: Vec<Effect> = state.inbox.drain(..).collect();
        let reports: Vec<Report> = state.reports.drain(..).collect();
        let cancelled = state.cancelled;
        drop(state);
        self.entries.extend(fresh.into_iter().map(|effect| Entry {
            effect,
            phase: Phase::Waiting,
            registered: false,
            looked_last: false,
        }));
        for report in reports {
            self.take(report);
        }
        let before = self.entries.len();
        self.entries.retain(|e| !matches!(e.phase, Phase::Done));
        let ended = before - self.entries.len();
        if ended > 0 {
            let mut state = self.shared.lock();
            state.open = state.open.saturating_sub(ended);
        }
        cancelled
    }

    fn wait(&self, ns: i64) {
        let state = self.shared.lock();
        if state.inbox.is_empty() && state.reports.is_empty() && !state.cancelled {
            let ns = ns.clamp(0, IDLE_NS).unsigned_abs();
            // Woken early or late, the next round looks at the clock.
            drop(
                self.shared
                    .changed
                    .wait_timeout(state, Duration::from_nanos(ns)),
            );
        }
    }

    fn step(&mut self, index: usize) {
        let now = self.clock.now();
        let entry = &mut self.entries[index];
        match entry.take_phase() {
            Phase::Waiting => {
                self.preparer.prepare(&entry.effect, None);
                entry.registered = self.mode == Mode::Real && entry.effect.until.is_some();
                entry.phase = Phase::Preparing;
            }
            Phase::Preparing => {
                let reason = "it could not be prepared in time".to_owned();
                self.fail(index, reason, None);
            }
            Phase::Ready(Means::Process(victim)) if now < entry.effect.at - FIRE_WAKE_NS => {
                let known = (victim.pid(), victim.start_time());
                self.preparer.prepare(&entry.effect, Some(known));
                entry.phase = Phase::Rechecking(Means::Process(victim));
            }
            // It may have come back since.
            Phase::Ready(Means::Missing(reason)) if now < entry.effect.at - FIRE_WAKE_NS => {
                self.preparer.prepare(&entry.effect, None);
                entry.phase = Phase::Rechecking(Means::Missing(reason));
            }
            // The rest has nothing to look up again.
            Phase::Ready(means) if now < entry.effect.at - FIRE_WAKE_NS => {
                entry.phase = Phase::Checked(means);
            }
            Phase::Ready(means) | Phase::Rechecking(means) | Phase::Checked(means) => {
                self.fire(index, means);
            }
            Phase::Active(means) => {
                let until = entry.effect.until.unwrap_or(now);
                self.undo(index, means, self.clock.to_monotonic(until));
            }
            other => entry.phase = other,
        }
    }

    fn take(&mut self, report: Report) {
        let (Report::Prepared { id, .. } | Report::Done { id, .. }) = &report;
        let Some(index) = self.entries.iter().position(|e| e.effect.id == *id) else {
            return;
        };
        let now = self.clock.now();
        let entry = &mut self.entries[index];
        match (entry.take_phase(), report) {
            (Phase::Preparing, Report::Prepared { means, .. }) => match means {
                Means::Missing(reason) if entry.looked_last => self.fail(index, reason, None),
                means if entry.looked_last || now >= entry.effect.at - RECHECK_NS => {
                    entry.phase = Phase::Checked(means);
                }
                means => entry.phase = Phase::Ready(means),
            },
            (Phase::Rechecking(_), Report::Prepared { means, .. }) => {
                entry.phase = Phase::Checked(means);
            }
            (
                Phase::Firing(worker),
                Report::Done {
                    undo: false, done, ..
                },
            ) => {
                self.work_fired(index, worker, &done);
            }
            (
                Phase::Undoing,
                Report::Done {
                    undo: true, done, ..
                },
            ) => {
                self.work_undone(index, &done);
            }
            // A second look that came after the fire.
            (phase, _) => entry.phase = phase,
        }
    }

    fn fire(&mut self, index: usize, means: Means) {
        let entry = &mut self.entries[index];
        let at = self.clock.to_monotonic(entry.effect.at);
        let until = entry.effect.until.map(|u| self.clock.to_monotonic(u));
        match means {
            Means::Process(victim) => {
                let Action::Signal { signal, .. } = entry.effect.action else {
                    return;
                };
                let now = wait_until(at, SleepPlan::DEFAULT);
                // What should be undone by now must not begin any more.
                if until.is_some_and(|until| now >= until) {
                    self.fail(index, END_HAD_PASSED.to_owned(), None);
                    return;
                }
                // A signal to a zombie succeeds and does nothing.
                let ended = victim.has_ended();
                if ended && !entry.looked_last {
                    // Found seconds ago, replaced since, and the second look came too late.
                    entry.looked_last = true;
                    self.preparer.prepare(&entry.effect, None);
                    entry.phase = Phase::Preparing;
                    return;
                }
                let before = monotonic_ns();
                let sent = match self.mode {
                    _ if ended => Err(io::Error::from_raw_os_error(libc::ESRCH)),
                    Mode::Real => victim.send(signal),
                    Mode::NegativeControl => Ok(()),
                };
                let bracket = Bracket {
                    before,
                    after: monotonic_ns(),
                };
                self.signal_fired(index, victim, signal, sent, bracket);
            }
            Means::Work(worker) => {
                if worker.fire(at, until) {
                    entry.phase = Phase::Firing(worker);
                } else {
                    let reason = "internal error: its thread has ended".to_owned();
                    self.fail(index, reason, None);
                }
            }
            Means::Withheld => {
                let before = wait_until(at, SleepPlan::DEFAULT);
                let bracket = Bracket {
                    before,
                    after: monotonic_ns(),
                };
                if entry.effect.until.is_some() {
                    entry.phase = Phase::Active(Means::Withheld);
                }
                self.started(index, &bracket, None);
            }
            Means::Missing(_) => {
                // It may just be between two lives: one more look, at its instant.
                wait_until(at, SleepPlan::DEFAULT);
                entry.looked_last = true;
                self.preparer.prepare(&entry.effect, None);
                entry.phase = Phase::Preparing;
            }
        }
    }

    fn signal_fired(
        &mut self,
        index: usize,
        victim: ProcessRef,
        signal: Signal,
        sent: io::Result<()>,
        bracket: Bracket,
    ) {
        let pid = victim.pid();
        match sent {
            Ok(()) => {
                let detail = format!("pid {pid}, start time {}", victim.start_time());
                if signal == Signal::Stop {
                    self.entries[index].phase = Phase::Active(Means::Process(victim));
                }
                self.started(index, &bracket, Some(detail));
            }
            Err(e) => {
                let reason = if e.raw_os_error() == Some(libc::ESRCH) {
                    format!("victim process {pid} had ended before the signal")
                } else {
                    format!("signal to process {pid}: {e}")
                };
                self.fail(index, reason, Some(&bracket));
            }
        }
    }

    fn work_fired(&mut self, index: usize, worker: Worker, done: &Done) {
        let bracket = Bracket {
            before: done.before,
            after: done.after,
        };
        let undoable = self.entries[index].effect.until.is_some();
        match &done.result {
            Ok(detail) => {
                if undoable {
                    self.entries[index].phase = Phase::Active(Means::Work(worker));
                }
                let detail = Some(detail.clone()).filter(|d| !d.is_empty());
                self.started(index, &bracket, detail);
            }
            Err(Undone::EndHadPassed) => self.fail(index, END_HAD_PASSED.to_owned(), None),
            Err(reason) => {
                let text = format!("{reason}; {}", if undoable { "it is undone" } else { "" });
                let text = text.trim_end_matches("; ").to_owned();
                self.failed_step(index, &text, Some(&bracket));
                // The answer may have been lost, and not the request.
                if undoable && worker.undo(0) {
                    self.entries[index].phase = Phase::Undoing;
                }
            }
        }
    }

    fn work_undone(&mut self, index: usize, done: &Done) {
        let bracket = Bracket {
            before: done.before,
            after: done.after,
        };
        match &done.result {
            Ok(detail) => {
                let detail = Some(detail.clone()).filter(|d| !d.is_empty());
                self.undone(index, &bracket, detail);
            }
            Err(reason) => {
                // Stays registered: the watchdog tries again.
                let text = format!("could not be undone: {reason}; the watchdog will try again");
                self.failed_step(index, &text, Some(&bracket));
            }
        }
    }

    /// Undoes not before a monotonic instant.
    fn undo(&mut self, index: usize, means: Means, not_before: i64) {
        match means {
            Means::Process(victim) => {
                let before = wait_until(not_before, SleepPlan::DEFAULT);
                let sent = match self.mode {
                    Mode::Real => victim.send(Signal::Cont),
                    Mode::NegativeControl => Ok(()),
                };
                let bracket = Bracket {
                    before,
                    after: monotonic_ns(),
                };
                match sent {
                    Err(e) if e.raw_os_error() != Some(libc::ESRCH) => {
                        let text = format!("could not be undone: {e}; the watchdog will try again");
                        self.failed_step(index, &text, Some(&bracket));
                    }
                    _ => {
                        let state = victim.state().filter(|_| !victim.has_ended());
                        let detail = match state {
                            Some(state) => format!("pid {}, state {state} after it", victim.pid()),
                            None => format!("pid {} had ended meanwhile", victim.pid()),
                        };
                        self.undone(index, &bracket, Some(detail));
                    }
                }
            }
            Means::Work(worker) => {
                if worker.undo(not_before) {
                    self.entries[index].phase = Phase::Undoing;
                } else {
                    let text = "could not be undone: internal error, its thread has ended; the \
                                watchdog will try again";
                    self.failed_step(index, text, None);
                }
            }
            Means::Withheld | Means::Missing(_) => {
                let before = wait_until(not_before, SleepPlan::DEFAULT);
                let bracket = Bracket {
                    before,
                    after: monotonic_ns(),
                };
                self.undone(index, &bracket, None);
            }
        }
    }

    /// Undoes what is in force, drops the rest, waits for requests under way.
    fn cancel(&mut self) {
        for index in 0..self.entries.len() {
            self.cancel_one(index);
        }
        let until = monotonic_ns() + CANCEL_TIMEOUT_NS;
        loop {
            self.collect();
            for index in 0..self.entries.len() {
                self.cancel_one(index);
            }
            self.entries.retain(|e| !matches!(e.phase, Phase::Done));
            if self.entries.is_empty() {
                return;
            }
            if monotonic_ns() >= until {
                let text = format!(
                    "{} effects could not be undone in time; the watchdog undoes them",
                    self.entries.len()
                );
                self.outbox
                    .event(self.clock.now(), EventKind::Note { text });
                return;
            }
            // Not `wait`: a cancelled timeline does not wait there.
            let state = self.shared.lock();
            if state.reports.is_empty() {
                let tick = Duration::from_millis(50);
                drop(self.shared.changed.wait_timeout(state, tick));
            }
        }
    }

    fn cancel_one(&mut self, index: usize) {
        let entry = &mut self.entries[index];
        match entry.take_phase() {
            Phase::Active(means) => self.undo(index, means, 0),
            phase @ (Phase::Firing(_) | Phase::Undoing | Phase::Done) => entry.phase = phase,
            _ => self.fail(index, "cancelled before its instant".to_owned(), None),
        }
    }

    fn started(&mut self, index: usize, bracket: &Bracket, detail: Option<String>) {
        let effect = &self.entries[index].effect;
        let step = match self.mode {
            Mode::Real => "started",
            Mode::NegativeControl => "withheld",
        };
        let action = effect.action.describe();
        self.record(effect, step, action, effect.at, Some(bracket), detail);
        self.outbox
            .notice(effect.id, Notice::Started(self.middle(bracket)));
    }

    fn undone(&mut self, index: usize, bracket: &Bracket, detail: Option<String>) {
        let entry = &self.entries[index];
        let effect = &entry.effect;
        if entry.registered {
            self.preparer.done(effect.id);
        }
        let step = match self.mode {
            Mode::Real => "undone",
            Mode::NegativeControl => "withheld",
        };
        let planned = effect.until.unwrap_or(effect.at);
        let action = effect.action.describe_undo();
        let late_ns = bracket.before - self.clock.to_monotonic(planned);
        if entry.registered && late_ns >= GRACE_NS {
            // Whatever this found, the effect's end is not known here: it gets no instant.
            let late = format!(
                "{} ms late: the watchdog may have undone it before, undo.jsonl says when",
                late_ns / NS_PER_MS
            );
            let detail = detail.map_or_else(|| late.clone(), |d| format!("{d}; {late}"));
            self.record(effect, step, action, planned, None, Some(detail));
        } else {
            self.record(effect, step, action, planned, Some(bracket), detail);
        }
        self.outbox
            .notice(effect.id, Notice::Undone(self.middle(bracket)));
    }

    /// It did not fire: there is nothing to undo.
    fn fail(&mut self, index: usize, reason: String, bracket: Option<&Bracket>) {
        let entry = &self.entries[index];
        if entry.registered {
            self.preparer.done(entry.effect.id);
        }
        self.failed_step(index, &reason, bracket);
    }

    fn failed_step(&mut self, index: usize, reason: &str, bracket: Option<&Bracket>) {
        let effect = &self.entries[index].effect;
        let action = effect.action.describe();
        let detail = Some(reason.to_owned());
        self.record(effect, "failed", action, effect.at, bracket, detail);
        self.outbox
            .notice(effect.id, Notice::Failed(reason.to_owned()));
    }

    fn middle(&self, bracket: &Bracket) -> RunNs {
        let middle = bracket.before + (bracket.after - bracket.before) / 2;
        self.clock.from_monotonic(middle)
    }

    fn record(
        &self,
        effect: &Effect,
        step: &str,
        action: String,
        planned_ns: RunNs,
        bracket: Option<&Bracket>,
        detail: Option<String>,
    ) {
        let step = EffectStep {
            effect: effect.id,
            step: step.to_owned(),
            action,
            replica: effect.action.replica().map(str::to_owned),
            planned_ns,
            before_ns: bracket.map(|b| self.clock.from_monotonic(b.before)),
            after_ns: bracket.map(|b| self.clock.from_monotonic(b.after)),
            detail,
            by: "instrument".to_owned(),
        };
        self.outbox.step(self.clock.now(), step);
    }
}
