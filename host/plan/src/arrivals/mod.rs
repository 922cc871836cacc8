//! Arrival processes. A schedule is computed whole, before the run, from the seed alone: the same
//! seed gives the same schedule on any machine, byte for byte.

mod conversations;
mod gaps;
mod portable;
mod profile;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

pub use conversations::{
    ConversationSchedule, Conversations, DEFAULT_THINK_TIME, MAX_THINK_NS, MAX_TURNS, ThinkTime,
    Turn, conversation_schedule,
};
use gaps::Gaps;
pub use portable::ln as portable_ln;
pub use profile::{MAX_RATE_SEGMENTS, RateProfile, RateSegment};

/// Most requests that a schedule may be expected to hold.
pub const MAX_SCHEDULED_REQUESTS: usize = 10_000_000;
/// Most that chance may make of it: hundreds of standard deviations above the mean.
const MAX_DRAWN_REQUESTS: usize = 2 * MAX_SCHEDULED_REQUESTS;

/// An arrival process at a mean rate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(tag = "process", rename_all = "snake_case", deny_unknown_fields)]
pub enum Arrivals {
    /// Independent arrivals: exponential gaps.
    Poisson,
    /// Equal gaps; the first request comes one gap after the epoch.
    Constant,
    /// Independent gaps with a gamma distribution.
    Gamma {
        /// The distribution's shape: 1 is Poisson, less is burstier, more is more even. The gaps'
        /// coefficient of variation is `1/√burstiness`.
        burstiness: f64,
    },
}

impl std::fmt::Display for Arrivals {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Poisson => f.write_str("Poisson"),
            Self::Constant => f.write_str("constant"),
            Self::Gamma { burstiness } => write!(f, "gamma (burstiness {burstiness})"),
        }
    }
}

/// Least burstiness: the gaps' coefficient of variation is 10.
pub const MIN_BURSTINESS: f64 = 0.01;
/// Greatest burstiness: arrivals are even within 0.1 %.
pub const MAX_BURSTINESS: f64 = 1e6;

/// Why a schedule could not be computed.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ArrivalsError {
    /// The rate is not a positive, finite number.
    #[error("rate {0} req/s is not a positive number")]
    Rate(f64),
    /// The schedule would be larger than the instrument accepts.
    #[error(
        "{rate} req/s for {seconds} s is more than {MAX_SCHEDULED_REQUESTS} requests; lower the rate or shorten the phases"
    )]
    TooMany {
        /// Asked rate.
        rate: f64,
        /// Length of the schedule.
        seconds: f64,
    },
    /// The burstiness cannot be drawn from.
    #[error("burstiness {0} is outside {MIN_BURSTINESS} to {MAX_BURSTINESS}")]
    Burstiness(f64),
    /// A profile without segments, or with too many.
    #[error("{0} segments of a rate; give 1 to {MAX_RATE_SEGMENTS}")]
    Segments(usize),
    /// A segment without length.
    #[error("a segment of a rate that lasts {0} s; it must last longer than nothing")]
    Length(f64),
    /// Conversations without turns, or with too many.
    #[error("{0} turns; choose 1 to {MAX_TURNS}")]
    Turns(u32),
    /// A think time that is none.
    #[error("a think time of {0} s; choose 0 to a day")]
    ThinkTime(f64),
    /// The conversations would be larger than the instrument accepts.
    #[error(
        "{conversations} conversations of up to {turns} turns are more than {MAX_SCHEDULED_REQUESTS} requests; lower the rate, the length or the number of turns"
    )]
    TooManyTurns {
        /// Conversations.
        conversations: usize,
        /// Most turns of each.
        turns: u32,
    },
}

/// Intended send times of one run, ascending, in run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Intended send times in nanoseconds since the epoch.
    pub intended_ns: Vec<i64>,
}

impl Schedule {
    /// Leaves out what comes after the first `requests`.
    pub fn truncate(&mut self, requests: Option<u64>) {
        if let Some(requests) = requests {
            let most = usize::try_from(requests).unwrap_or(usize::MAX);
            self.intended_ns.truncate(most);
        }
    }

    /// SHA-256 over the intended times as little-endian `i64`, in hexadecimal.
    pub fn sha256(&self) -> String {
        let mut hash = Sha256::new();
        for t in &self.intended_ns {
            hash.update(t.to_le_bytes());
        }
        hex::encode(hash.finalize())
    }
}

impl Arrivals {
    /// The schedule on `[0, end_ns)`.
    ///
    /// # Errors
    /// See [`ArrivalsError`].
    pub fn schedule(
        self,
        rate_per_s: f64,
        end_ns: i64,
        seed: u64,
    ) -> Result<Schedule, ArrivalsError> {
        if !(rate_per_s.is_finite() && rate_per_s > 0.0) {
            return Err(ArrivalsError::Rate(rate_per_s));
        }
        self.schedule_profile(&RateProfile::constant(rate_per_s, end_ns), seed)
    }

    /// The schedule under a rate that changes.
    ///
    /// # Errors
    /// See [`ArrivalsError`].
    pub fn schedule_profile(
        self,
        profile: &RateProfile,
        seed: u64,
    ) -> Result<Schedule, ArrivalsError> {
        if let Self::Gamma { burstiness } = self
            && !(MIN_BURSTINESS..=MAX_BURSTINESS).contains(&burstiness)
        {
            return Err(ArrivalsError::Burstiness(burstiness));
        }
        profile.check()?;
        let end_ns = profile.length_ns();
        let mut gaps = Gaps::new(self, seed);
        let intended_ns = match (profile.single_rate(), self) {
            (Some(rate), Self::Constant) => (1..)
                .map(|k: u64| (k as f64 * (1e9 / rate)).round() as i64)
                .take_while(|&t| t < end_ns)
                .take(MAX_DRAWN_REQUESTS)
                .collect(),
            (Some(rate), _) => {
                let mean_gap_ns = 1e9 / rate;
                let mut t = 0.0_f64;
                std::iter::from_fn(|| {
                    t += gaps.draw() * mean_gap_ns;
                    Some(t.round() as i64)
                })
                .take_while(|&t| t < end_ns)
                .take(MAX_DRAWN_REQUESTS)
                .collect()
            }
            (None, _) => {
                let mut count = 0.0_f64;
                let counts = std::iter::from_fn(|| {
                    count += gaps.draw();
                    Some(count)
                });
                profile.instants(counts, MAX_DRAWN_REQUESTS)
            }
        };
        Ok(Schedule { intended_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const END: i64 = 100_000_000_000;

    #[test]
    fn same_seed_same_schedule_and_pinned_bytes() {
        let a = Arrivals::Poisson.schedule(50.0, END, 42).unwrap();
        let b = Arrivals::Poisson.schedule(50.0, END, 42).unwrap();
        assert_eq!(a, b);
        assert_ne!(a, Arrivals::Poisson.schedule(50.0, END, 43).unwrap());
        // Changing the generator would silently change every published seed.
        assert_eq!(
            a.sha256(),
            PINNED_SHA256,
            "first arrivals {:?}",
            &a.intended_ns[..4]
        );
    }

    const PINNED_SHA256: &str = "51a1df2afe0d38d0594f418fd8dab6bca95faf988ecda1d1ca2be76e71c6f074";

    #[test]
    fn poisson_gaps_have_the_mean_and_the_spread_of_an_exponential() {
        let times = Arrivals::Poisson
            .schedule(200.0, 1_000_000_000_000, 7)
            .unwrap()
            .intended_ns;
        let gaps: Vec<f64> = times
            .windows(2)
            .map(|w| (w[1] - w[0]) as f64 / 1e9)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        assert!((mean * 200.0 - 1.0).abs() < 0.01, "mean gap {mean}");
        assert!(
            (var.sqrt() / mean - 1.0).abs() < 0.02,
            "coefficient of variation {}",
            var.sqrt() / mean
        );
    }

    #[test]
    fn constant_is_evenly_spaced_and_ends_before_the_end() {
        let times = Arrivals::Constant
            .schedule(4.0, 1_000_000_000, 0)
            .unwrap()
            .intended_ns;
        assert_eq!(times, vec![250_000_000, 500_000_000, 750_000_000]);
    }

    fn spread(process: Arrivals) -> (f64, f64) {
        let times = process.schedule(200.0, 1_000_000_000_000, 7).unwrap();
        let gaps: Vec<f64> = times
            .intended_ns
            .windows(2)
            .map(|w| (w[1] - w[0]) as f64 / 1e9)
            .collect();
        let mean = gaps.iter().sum::<f64>() / gaps.len() as f64;
        let var = gaps.iter().map(|g| (g - mean).powi(2)).sum::<f64>() / gaps.len() as f64;
        (mean, var.sqrt() / mean)
    }

    #[test]
    fn gamma_gaps_have_the_mean_and_the_spread_of_their_shape() {
        for burstiness in [0.1, 0.25, 0.5, 1.0, 3.0, 100.0] {
            let (mean, cv) = spread(Arrivals::Gamma { burstiness });
            // Standard errors over 200 000 gaps; burstier ones are wider.
            let tolerance = 0.01 / burstiness.min(1.0);
            assert!(
                (mean * 200.0 - 1.0).abs() < tolerance,
                "{burstiness}: mean {mean}"
            );
            let expected = 1.0 / burstiness.sqrt();
            assert!(
                (cv / expected - 1.0).abs() < 0.03,
                "{burstiness}: coefficient of variation {cv}, expected {expected}"
            );
        }
    }

    #[test]
    fn gamma_schedules_have_pinned_bytes() {
        for (burstiness, pinned) in [(0.5, PINNED_GAMMA_HALF), (4.0, PINNED_GAMMA_FOUR)] {
            let schedule = Arrivals::Gamma { burstiness }
                .schedule(50.0, END, 42)
                .unwrap();
            assert_eq!(
                schedule.sha256(),
                pinned,
                "{:?}",
                &schedule.intended_ns[..4]
            );
        }
    }

    const PINNED_GAMMA_HALF: &str =
        "0ed44cdeb79576e9d9c20918af0d47c9c03bdd24c384d2f76891426de8617fc3";
    const PINNED_GAMMA_FOUR: &str =
        "ea3e530f24dd01fc6187b1d403ae446c3e1c6b9351a4d542d57788e5f465e9ae";

    fn profile(segments: &[(i64, f64, f64)]) -> RateProfile {
        RateProfile {
            segments: segments
                .iter()
                .map(|&(seconds, from_per_s, to_per_s)| RateSegment {
                    length_ns: seconds * 1_000_000_000,
                    from_per_s,
                    to_per_s,
                })
                .collect(),
        }
    }

    #[test]
    fn one_rate_in_pieces_is_one_rate() {
        let whole = Arrivals::Poisson.schedule(20.0, END, 5).unwrap();
        let pieces = profile(&[(30, 20.0, 20.0), (70, 20.0, 20.0)]);
        assert_eq!(
            Arrivals::Poisson.schedule_profile(&pieces, 5).unwrap(),
            whole
        );
    }

    #[test]
    fn a_ramp_of_even_arrivals_is_the_inverse_of_its_integral() {
        // 0 → 10 req/s over 10 s: n requests are expected by √(2n) s.
        let ramp = profile(&[(10, 0.0, 10.0), (5, 0.0, 0.0), (2, 3.0, 3.0)]);
        let times = Arrivals::Constant
            .schedule_profile(&ramp, 0)
            .unwrap()
            .intended_ns;
        for (k, t) in (1_u32..50).zip(&times) {
            let expected = (f64::from(2 * k)).sqrt() * 1e9;
            assert!((*t as f64 - expected).abs() <= 1.0, "{k}: {t} {expected}");
        }
        // The 50th is expected at the ramp's very end, which belongs to the next segment with a rate.
        assert_eq!(times.len(), 55);
        assert!(times[49] >= 15_000_000_000, "{:?}", &times[48..]);
        assert!(times.is_sorted());
    }

    #[test]
    fn steps_have_their_rates() {
        let steps = profile(&[(100, 5.0, 5.0), (100, 50.0, 50.0), (100, 5.0, 5.0)]);
        let times = Arrivals::Poisson
            .schedule_profile(&steps, 11)
            .unwrap()
            .intended_ns;
        assert!(times.is_sorted());
        let counts = [0, 100, 200].map(|s| {
            let start = s * 1_000_000_000;
            let within = start..start + 100_000_000_000_i64;
            times.iter().filter(|&&t| within.contains(&t)).count()
        });
        for (count, expected) in counts.into_iter().zip([500_i64, 5000, 500]) {
            // Six standard deviations.
            let off = (count as i64 - expected).abs();
            assert!(off as f64 <= 6.0 * (expected as f64).sqrt(), "{counts:?}");
        }
    }

    #[test]
    fn impossible_profiles_are_refused() {
        let refused = |segments: &[(i64, f64, f64)]| {
            Arrivals::Poisson
                .schedule_profile(&profile(segments), 0)
                .unwrap_err()
        };
        assert_eq!(refused(&[]), ArrivalsError::Segments(0));
        assert_eq!(refused(&[(0, 1.0, 1.0)]), ArrivalsError::Length(0.0));
        assert_eq!(refused(&[(1, 1.0, -1.0)]), ArrivalsError::Rate(-1.0));
        assert_eq!(refused(&[(1, 0.0, 0.0)]), ArrivalsError::Rate(0.0));
        assert!(matches!(
            refused(&[(1, f64::NAN, 1.0)]),
            ArrivalsError::Rate(_)
        ));
        assert!(matches!(
            refused(&[(100, 0.0, 1e7)]),
            ArrivalsError::TooMany { .. }
        ));
        for burstiness in [0.0, -1.0, f64::NAN, 1e9] {
            assert!(matches!(
                Arrivals::Gamma { burstiness }.schedule(1.0, END, 0),
                Err(ArrivalsError::Burstiness(_))
            ));
        }
    }

    #[test]
    fn impossible_rates_are_refused() {
        for rate in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(matches!(
                Arrivals::Poisson.schedule(rate, END, 0),
                Err(ArrivalsError::Rate(_))
            ));
        }
        assert!(matches!(
            Arrivals::Constant.schedule(1e9, END, 0),
            Err(ArrivalsError::TooMany { .. })
        ));
    }
}
