//! CLOCK_MONOTONIC in nanoseconds and absolute sleeps on it.
//!
//! The monotonic clock is shared by all processes of a machine, so the API
//! process, the engine process and whoever reads the truth file use one axis.

/// Nanoseconds in a second.
pub const NS_PER_S: u64 = 1_000_000_000;

/// Now on CLOCK_MONOTONIC, in nanoseconds since boot.
pub fn now_ns() -> u64 {
    // The kernel never reports a negative monotonic time.
    u64::try_from(blackstart_clock::monotonic_ns()).unwrap_or(0)
}

/// Blocks the thread until `deadline_ns` on CLOCK_MONOTONIC.
pub fn sleep_until(deadline_ns: u64) {
    blackstart_clock::sleep_until(i64::try_from(deadline_ns).unwrap_or(i64::MAX));
}

/// Asks the kernel for exact timer wake-ups of this thread (the default slack is 50 µs).
pub fn sharpen_timers() {
    // Failure leaves the default slack: wake-ups are then later, never wrong.
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches no memory.
    let _ = unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64, 0, 0, 0) };
}

/// Seconds as nanoseconds; negative and absurd values are clamped to `[0, 1 day]`.
pub fn seconds_to_ns(seconds: f64) -> u64 {
    const MAX_S: f64 = 86_400.0;
    if seconds.is_nan() {
        return 0;
    }
    (seconds.clamp(0.0, MAX_S) * NS_PER_S as f64).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sleeps_to_the_deadline_and_never_short() {
        let deadline = now_ns() + 2_000_000;
        sleep_until(deadline);
        assert!(now_ns() >= deadline);
        sleep_until(0);
    }

    #[test]
    fn seconds_are_clamped() {
        assert_eq!(seconds_to_ns(1.5), 1_500_000_000);
        assert_eq!(seconds_to_ns(-1.0), 0);
        assert_eq!(seconds_to_ns(f64::NAN), 0);
        assert_eq!(seconds_to_ns(f64::INFINITY), 86_400 * NS_PER_S);
    }
}
