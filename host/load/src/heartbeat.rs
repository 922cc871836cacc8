//! How late a 1 ms tick comes on a load thread: the time for which the thread could not have read a
//! socket.

use std::cell::RefCell;
use std::io;

use blackstart_clock::{NS_PER_MS, NS_PER_US, RunClock, monotonic_ns};
use blackstart_record::{Event, EventKind, pinned_histogram};
use hdrhistogram::Histogram;

use crate::alarm::Alarm;

/// Period of the tick.
const PERIOD_NS: i64 = NS_PER_MS;
/// Ticks that one late wake-up may account for one by one; a longer stall counts as that many.
const MAX_TICKS_PER_WAKE: i64 = 60_000;

/// Lateness of the ticks of one thread.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    thread: u32,
    real_time: Result<(), String>,
    ticks: RefCell<(u64, Histogram<u64>)>,
}

impl Heartbeat {
    pub(crate) fn new(thread: u32, real_time: Result<(), String>) -> Self {
        Self {
            thread,
            real_time,
            ticks: RefCell::new((0, pinned_histogram())),
        }
    }

    /// Ticks until it is dropped.
    ///
    /// # Errors
    /// When the system gives no timer.
    pub(crate) async fn beat(&self) -> io::Result<()> {
        let alarm = Alarm::new()?;
        let mut due_ns = monotonic_ns() + PERIOD_NS;
        alarm.every(due_ns, PERIOD_NS)?;
        loop {
            let missed = i64::try_from(alarm.rung().await?).unwrap_or(i64::MAX);
            self.tick(due_ns, missed, monotonic_ns());
            due_ns = due_ns.saturating_add(missed.saturating_mul(PERIOD_NS));
        }
    }

    /// A wake-up for `expirations` ticks, the first of them due at `due_ns`. Each tick counts with
    /// its own lateness: a stall of 50 ms is fifty late ticks, not one.
    fn tick(&self, due_ns: i64, expirations: i64, now_ns: i64) {
        let (ticks, late) = &mut *self.ticks.borrow_mut();
        for k in 0..expirations.min(MAX_TICKS_PER_WAKE) {
            let late_us = (now_ns - due_ns - k * PERIOD_NS).max(0) / NS_PER_US;
            // Below 1 µs counts as 1 µs, the resolution of the pinned histogram.
            late.record(late_us.cast_unsigned().max(1))
                .expect("a histogram that grows takes every value");
            *ticks += 1;
        }
    }

    /// The event that closes the heartbeat.
    pub(crate) fn event(&self, clock: RunClock) -> Event {
        let (ticks, late) = &*self.ticks.borrow();
        let ns = |us: u64| us.cast_signed().saturating_mul(NS_PER_US);
        Event {
            at_ns: clock.now(),
            kind: EventKind::Heartbeat {
                thread: self.thread,
                ticks: *ticks,
                late_ns_p50: ns(late.value_at_quantile(0.5)),
                late_ns_p99: ns(late.value_at_quantile(0.99)),
                late_ns_max: ns(late.max()),
                real_time: self.real_time.clone(),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_counts_once_for_each_tick_that_it_delayed() {
        let heartbeat = Heartbeat::new(0, Ok(()));
        for i in 0..100 {
            heartbeat.tick(i * PERIOD_NS, 1, i * PERIOD_NS + 20_000);
        }
        heartbeat.tick(100 * PERIOD_NS, 50, 150 * PERIOD_NS);
        let clock = RunClock::from_recorded(0, 0);
        let EventKind::Heartbeat {
            ticks,
            late_ns_p50,
            late_ns_max,
            ..
        } = heartbeat.event(clock).kind
        else {
            panic!("not a heartbeat");
        };
        assert_eq!(ticks, 150);
        assert_eq!(late_ns_p50, 20_000);
        assert!(
            (late_ns_max - 50 * NS_PER_MS).abs() < 50_000,
            "{late_ns_max}"
        );
    }
}
