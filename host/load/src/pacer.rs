//! The thread that keeps the schedule. It knows nothing of connections and never waits for one.

use blackstart_clock::{NS_PER_MS, SleepPlan, wait_until};

use crate::shared::Shared;

/// How much before its intended time a request is handed to its load thread, which then prepares the
/// connection and waits out the rest. Covers the wake-ups of both threads; nothing is sent early.
const HAND_OFF_LEAD_NS: i64 = 150_000;
/// Longest sleep at one go, so that an early end is noticed.
const MAX_SLEEP_NS: i64 = 20 * NS_PER_MS;
/// The load thread spins the last stretch, not the pacer.
const SLEEP: SleepPlan = SleepPlan { spin_ns: 0 };

/// Releases every request of a schedule at its time; returns when all are released or the load is ended early.
pub(crate) fn pace(shared: &Shared) {
    let schedule = shared.pacing.schedule();
    let total = schedule.len() as u64;
    let mut next = 0;
    while next < total && shared.cancelled().is_none() {
        let lead = |index: u64| schedule[index as usize] - HAND_OFF_LEAD_NS;
        let now = shared.clock.now();
        let wait_ns = lead(next) - now;
        if wait_ns > 0 {
            let until = shared.clock.to_monotonic(now + wait_ns.min(MAX_SLEEP_NS));
            wait_until(until, SLEEP);
            continue;
        }
        // Everything that is due, so that a late wake-up is caught up at once.
        let mut until = next + 1;
        while until < total && lead(until) <= now {
            until += 1;
        }
        shared.release(next, until);
        next = until;
    }
}
