//! How often a path is probed. Pure.
//!
//! - Before the fire: at the normal interval, whatever the probes say.
//! - From the fire: at the outage interval, for at least [`MIN_DENSE_NS`], because a fault may take
//!   seconds to show, and until [`OK_STREAK`] successive probes that were sent after the fire
//!   succeeded. Then at the normal interval again.
//! - A later failure goes back to the outage interval until the next such streak (flapping, a
//!   second effect).
//! - While [`HANGING_PROBES`] or more are unanswered, the interval is stretched so that at most
//!   [`MAX_OUTSTANDING`] of them fit into one probe timeout, evenly spaced: a path that hangs must
//!   not be loaded further, and the first probe after it heals must not be far away.

use blackstart_clock::{NS_PER_S, RunNs};

/// How long a path is probed densely after the fire, at least.
pub(crate) const MIN_DENSE_NS: i64 = 10 * NS_PER_S;
/// Successive successes that end dense probing.
pub(crate) const OK_STREAK: u32 = 3;
/// Unanswered probes of one path from which it counts as hanging.
pub(crate) const HANGING_PROBES: usize = 4;
/// Most unanswered probes of one path. A tick that would exceed it is skipped and counted.
pub(crate) const MAX_OUTSTANDING: usize = 16;
/// Shortest interval that is honoured.
pub(crate) const MIN_INTERVAL_NS: i64 = 1_000_000;

/// Decides the interval of one path's probes.
#[derive(Debug, Clone)]
pub(crate) struct Cadence {
    normal_ns: i64,
    outage_ns: i64,
    hanging_ns: i64,
    fired_at: Option<RunNs>,
    ok_streak: u32,
}

impl Cadence {
    pub(crate) fn new(normal_ns: i64, outage_ns: i64, timeout_ns: i64) -> Self {
        let spread = (MAX_OUTSTANDING - HANGING_PROBES) as i64;
        Self {
            normal_ns: normal_ns.max(MIN_INTERVAL_NS),
            outage_ns: outage_ns.max(MIN_INTERVAL_NS),
            hanging_ns: timeout_ns.max(0) / spread + 1,
            fired_at: None,
            ok_streak: 0,
        }
    }

    /// The fault was fired.
    pub(crate) fn fire(&mut self, at_ns: RunNs) {
        self.fired_at = Some(at_ns);
        self.ok_streak = 0;
    }

    /// A probe ended.
    pub(crate) fn ended(&mut self, sent_ns: RunNs, ok: bool) {
        if self.fired_at.is_none_or(|fire| sent_ns < fire) {
            return;
        }
        self.ok_streak = if ok {
            self.ok_streak.saturating_add(1)
        } else {
            0
        };
    }

    /// The interval that holds now.
    pub(crate) fn interval_ns(&self, now_ns: RunNs, outstanding: usize) -> i64 {
        let dense = self.fired_at.is_some_and(|fire| {
            now_ns < fire.saturating_add(MIN_DENSE_NS) || self.ok_streak < OK_STREAK
        });
        let interval = if dense {
            self.outage_ns
        } else {
            self.normal_ns
        };
        if outstanding >= HANGING_PROBES {
            interval.max(self.hanging_ns)
        } else {
            interval
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    fn cadence() -> Cadence {
        Cadence::new(1000 * MS, 100 * MS, 2400 * MS)
    }

    #[test]
    fn failures_before_the_fire_change_nothing() {
        let mut c = cadence();
        c.ended(5, false);
        assert_eq!(c.interval_ns(10, 0), 1000 * MS);
    }

    #[test]
    fn dense_from_the_fire_until_the_path_works_and_the_first_seconds_are_over() {
        let mut c = cadence();
        c.fire(0);
        assert_eq!(c.interval_ns(0, 0), 100 * MS);
        for i in 0..OK_STREAK {
            c.ended(i64::from(i), true);
        }
        assert_eq!(c.interval_ns(MIN_DENSE_NS - 1, 0), 100 * MS);
        assert_eq!(c.interval_ns(MIN_DENSE_NS, 0), 1000 * MS);
        c.ended(MIN_DENSE_NS, false);
        assert_eq!(c.interval_ns(MIN_DENSE_NS + 1, 0), 100 * MS);
        c.ended(MIN_DENSE_NS + 2, true);
        c.ended(MIN_DENSE_NS + 3, true);
        assert_eq!(c.interval_ns(MIN_DENSE_NS + 4, 0), 100 * MS);
        c.ended(MIN_DENSE_NS + 4, true);
        assert_eq!(c.interval_ns(MIN_DENSE_NS + 5, 0), 1000 * MS);
    }

    #[test]
    fn a_success_sent_before_the_fire_proves_nothing() {
        let mut c = cadence();
        c.fire(100);
        for _ in 0..OK_STREAK {
            c.ended(99, true);
        }
        assert_eq!(c.interval_ns(100 + MIN_DENSE_NS, 0), 100 * MS);
    }

    #[test]
    fn a_hanging_path_never_holds_more_than_the_bound() {
        let mut c = cadence();
        c.fire(0);
        let (timeout, mut now, mut sent) = (2400 * MS, 0, Vec::<i64>::new());
        for _ in 0..200 {
            sent.retain(|s| s + timeout > now);
            assert!(sent.len() < MAX_OUTSTANDING, "{} at {now}", sent.len());
            sent.push(now);
            let step = c.interval_ns(now, sent.len());
            assert!(step <= 201 * MS, "a gap of {step} ns");
            now += step;
        }
    }
}
