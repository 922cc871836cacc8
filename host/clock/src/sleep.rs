//! Waiting for an absolute instant: the kernel's timer for most of it, spinning for the last stretch.

use rustix::io::Errno;
use rustix::thread::clock_nanosleep_absolute;
use rustix::time::{ClockId, Timespec};

use crate::{NS_PER_S, monotonic_ns};

/// How a wait is split between the kernel's timer and spinning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SleepPlan {
    /// Length of the final stretch that is spun, in nanoseconds. 0 = never spin.
    pub spin_ns: i64,
}

impl SleepPlan {
    /// 200 µs: covers the timer's usual overshoot on a loaded machine without burning a core.
    pub const DEFAULT: Self = Self { spin_ns: 200_000 };
}

/// Sleeps until a monotonic instant, by the kernel's absolute timer. Returns at once if it is past.
pub fn sleep_until(monotonic_deadline_ns: i64) {
    if monotonic_deadline_ns <= monotonic_ns() {
        return;
    }
    let deadline = Timespec {
        tv_sec: monotonic_deadline_ns / NS_PER_S,
        tv_nsec: monotonic_deadline_ns % NS_PER_S,
    };
    // A signal interrupts the sleep; the deadline is absolute, so sleeping again loses nothing.
    while let Err(Errno::INTR) = clock_nanosleep_absolute(ClockId::Monotonic, &deadline) {}
}

/// Waits until a monotonic instant: sleeps, then spins the last stretch. Returns the instant at
/// which the wait ended.
pub fn wait_until(monotonic_deadline_ns: i64, plan: SleepPlan) -> i64 {
    sleep_until(monotonic_deadline_ns - plan.spin_ns);
    loop {
        let now = monotonic_ns();
        if now >= monotonic_deadline_ns {
            return now;
        }
        std::hint::spin_loop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_returns_before_the_deadline() {
        for spin_ns in [0, 50_000] {
            let deadline = monotonic_ns() + 2_000_000;
            assert!(wait_until(deadline, SleepPlan { spin_ns }) >= deadline);
        }
    }

    #[test]
    fn a_past_deadline_does_not_wait() {
        let deadline = monotonic_ns() - NS_PER_S;
        assert!(wait_until(deadline, SleepPlan::DEFAULT) >= deadline);
    }
}
