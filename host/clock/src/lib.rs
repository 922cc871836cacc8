//! The run clock: monotonic nanoseconds since the run epoch, sleep-then-spin, real-time priority.
//!
//! Invariants: every time inside a run is a [`RunNs`] on one `CLOCK_MONOTONIC`; wall-clock stamps
//! are derived from it through one bracketed pair of reads and serve only to join with the logs of
//! other machines. `CLOCK_MONOTONIC` is shared by all processes of a host, so stamps taken by the
//! supervisor, the mock and the instrument are comparable without an offset.

mod realtime;
mod sleep;
mod wall;

pub use realtime::{RealTime, Urgency, request_real_time};
pub use sleep::{SleepPlan, sleep_until, wait_until};
pub use wall::wall_clock_bound_ns;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds on the run's monotonic clock since the run epoch. Negative before it.
pub type RunNs = i64;

/// Nanoseconds in a second.
pub const NS_PER_S: i64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub const NS_PER_MS: i64 = 1_000_000;
/// Nanoseconds in a microsecond.
pub const NS_PER_US: i64 = 1_000;

/// `CLOCK_MONOTONIC` now, in nanoseconds since an arbitrary origin shared by the whole host.
#[inline]
pub fn monotonic_ns() -> i64 {
    let t = clock_gettime(ClockId::Monotonic);
    t.tv_sec * NS_PER_S + t.tv_nsec
}

/// Wall-clock time now, in nanoseconds since the Unix epoch (UTC).
pub fn unix_ns() -> i64 {
    let t = clock_gettime(ClockId::Realtime);
    t.tv_sec * NS_PER_S + t.tv_nsec
}

/// Joins the monotonic and the wall clock of one host at one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RunClock {
    epoch_monotonic_ns: i64,
    epoch_unix_ns: i64,
}

impl RunClock {
    /// How often the pair of clocks is read to find the tightest bracket.
    const PAIR_SAMPLES: usize = 16;

    /// A clock whose epoch is the given monotonic instant, which may lie in the future.
    pub fn with_epoch(epoch_monotonic_ns: i64) -> Self {
        let mut best_width = i64::MAX;
        let mut wall_minus_monotonic = 0;
        for _ in 0..Self::PAIR_SAMPLES {
            let before = monotonic_ns();
            let wall = unix_ns();
            let after = monotonic_ns();
            if after - before < best_width {
                best_width = after - before;
                wall_minus_monotonic = wall - (before + (after - before) / 2);
            }
        }
        Self {
            epoch_monotonic_ns,
            epoch_unix_ns: epoch_monotonic_ns + wall_minus_monotonic,
        }
    }

    /// A clock from a recorded pair, for reading a finished run.
    pub fn from_recorded(epoch_monotonic_ns: i64, epoch_unix_ns: i64) -> Self {
        Self {
            epoch_monotonic_ns,
            epoch_unix_ns,
        }
    }

    /// Nanoseconds since the run epoch.
    #[inline]
    pub fn now(&self) -> RunNs {
        monotonic_ns() - self.epoch_monotonic_ns
    }

    /// The monotonic instant of the epoch.
    pub fn epoch_monotonic_ns(&self) -> i64 {
        self.epoch_monotonic_ns
    }

    /// The wall-clock instant of the epoch, in nanoseconds since the Unix epoch.
    pub fn epoch_unix_ns(&self) -> i64 {
        self.epoch_unix_ns
    }

    /// Run time of a monotonic instant.
    #[inline]
    pub fn from_monotonic(&self, monotonic_ns: i64) -> RunNs {
        monotonic_ns - self.epoch_monotonic_ns
    }

    /// Monotonic instant of a run time.
    #[inline]
    pub fn to_monotonic(&self, at: RunNs) -> i64 {
        at + self.epoch_monotonic_ns
    }

    /// Wall-clock instant of a run time, in nanoseconds since the Unix epoch.
    pub fn to_unix(&self, at: RunNs) -> i64 {
        at + self.epoch_unix_ns
    }

    /// Run time of a wall-clock instant of this host.
    pub fn from_unix(&self, unix_ns: i64) -> RunNs {
        unix_ns - self.epoch_unix_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversions_are_inverse() {
        let clock = RunClock::from_recorded(5_000, 1_700_000_000_000_000_000);
        assert_eq!(clock.from_monotonic(clock.to_monotonic(-42)), -42);
        assert_eq!(clock.from_unix(clock.to_unix(77)), 77);
    }

    #[test]
    fn wall_and_monotonic_agree_at_the_epoch() {
        let clock = RunClock::with_epoch(monotonic_ns());
        let drift = clock.to_unix(clock.now()) - unix_ns();
        // Coarse on purpose: this tests the sign and the unit, not the machine.
        assert!(drift.abs() < NS_PER_S, "drift {drift} ns");
    }
}
