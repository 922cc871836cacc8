//! How well the wall clock is known.

/// The kernel's bound on the wall clock's error in nanoseconds, as its synchronisation keeps it
/// (`adjtimex(2)`, `maxerror`); `None` where the clock is not synchronised, or the kernel does not say.
pub fn wall_clock_bound_ns() -> Option<i64> {
    // SAFETY: `timex` is plain data for which zeros are valid; with no mode set the call only reads.
    let (state, max_error_us) = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        let state = libc::adjtimex(&raw mut timex);
        (state, timex.maxerror)
    };
    (state >= 0 && state != libc::TIME_ERROR).then(|| max_error_us.saturating_mul(1_000))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_never_negative() {
        assert!(wall_clock_bound_ns().is_none_or(|ns| ns >= 0));
    }
}
