//! Arrival processes. A schedule is computed whole, before the run, from the seed alone: the same
//! seed gives the same schedule on any machine, byte for byte.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

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
}

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
}

/// Intended send times of one run, ascending, in run time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    /// Intended send times in nanoseconds since the epoch.
    pub intended_ns: Vec<i64>,
}

impl Schedule {
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
        let seconds = end_ns as f64 / 1e9;
        if rate_per_s * seconds > MAX_SCHEDULED_REQUESTS as f64 {
            return Err(ArrivalsError::TooMany {
                rate: rate_per_s,
                seconds,
            });
        }
        let gap_ns = 1e9 / rate_per_s;
        let intended_ns = match self {
            Self::Constant => (1..)
                .map(|k: u64| (k as f64 * gap_ns).round() as i64)
                .take_while(|&t| t < end_ns)
                .take(MAX_DRAWN_REQUESTS)
                .collect(),
            Self::Poisson => poisson(gap_ns, end_ns, seed),
        };
        Ok(Schedule { intended_ns })
    }
}

/// Exponential gaps by inversion. `ChaCha8` is specified bit for bit, and the logarithm comes from
/// [`ln_portable`], so that no platform's mathematics library can move an arrival.
fn poisson(mean_gap_ns: f64, end_ns: i64, seed: u64) -> Vec<i64> {
    // The key is laid out here rather than by `seed_from_u64`, whose expansion is the library's own.
    let mut key = [0u8; 32];
    key[..8].copy_from_slice(&seed.to_le_bytes());
    let mut rng = ChaCha8Rng::from_seed(key);
    let mut times = Vec::new();
    let mut t = 0.0_f64;
    while times.len() < MAX_DRAWN_REQUESTS {
        // 53 random bits, shifted off zero: u in (0, 1].
        let u = ((rng.random::<u64>() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        t += -ln_portable(u) * mean_gap_ns;
        let at = t.round() as i64;
        if at >= end_ns {
            break;
        }
        times.push(at);
    }
    times
}

/// Natural logarithm for `0 < x <= 1` by exact decomposition and a fixed series: only IEEE basic
/// operations, which every platform rounds alike. Error below 1e-15 relative, far under a nanosecond
/// of any gap.
fn ln_portable(x: f64) -> f64 {
    let bits = x.to_bits();
    let mut exponent = ((bits >> 52) & 0x7ff) as i64 - 1023;
    let mut mantissa = f64::from_bits((bits & ((1 << 52) - 1)) | (1023 << 52));
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa *= 0.5;
        exponent += 1;
    }
    // ln(m) = 2·artanh((m−1)/(m+1)); |s| < 0.172, so that 12 terms reach 1e-19.
    let s = (mantissa - 1.0) / (mantissa + 1.0);
    let s2 = s * s;
    let mut term = s;
    let mut sum = 0.0;
    let mut k = 1.0;
    for _ in 0..12 {
        sum += term / k;
        term *= s2;
        k += 2.0;
    }
    2.0 * sum + exponent as f64 * std::f64::consts::LN_2
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

    #[test]
    fn logarithm_agrees_with_the_platform() {
        for k in 1..10_000 {
            let x = f64::from(k) / 10_000.0;
            let (ours, theirs) = (ln_portable(x), x.ln());
            assert!(
                (ours - theirs).abs() <= 4e-15 * theirs.abs().max(1e-3),
                "ln {x}: {ours} {theirs}"
            );
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
