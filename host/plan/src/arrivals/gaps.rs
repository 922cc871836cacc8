//! Gaps between arrivals, in units of their mean.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::Arrivals;
use super::portable::{exp_not_positive, ln};

/// An endless sequence of gaps with mean 1, fixed by the seed.
pub(super) struct Gaps {
    process: Arrivals,
    rng: ChaCha8Rng,
}

impl Gaps {
    /// `ChaCha8` is specified bit for bit, and all functions come from [`super::portable`].
    pub(super) fn new(process: Arrivals, seed: u64) -> Self {
        Self::of_stream(process, seed, 0)
    }

    /// Exponential ones that are independent of the arrivals of the same seed.
    pub(super) fn think_times(seed: u64) -> Self {
        Self::of_stream(Arrivals::Poisson, seed, 1)
    }

    fn of_stream(process: Arrivals, seed: u64, stream: u8) -> Self {
        // The key is laid out here rather than by `seed_from_u64`, whose expansion is the library's
        // own.
        let mut key = [0u8; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = stream;
        Self {
            process,
            rng: ChaCha8Rng::from_seed(key),
        }
    }

    pub(super) fn draw(&mut self) -> f64 {
        match self.process {
            Arrivals::Constant => 1.0,
            Arrivals::Poisson => -ln(self.uniform()),
            Arrivals::Gamma { burstiness } => self.gamma(burstiness) / burstiness,
        }
    }

    /// Uniform in (0, 1]: 53 random bits, shifted off zero.
    fn uniform(&mut self) -> f64 {
        ((self.rng.random::<u64>() >> 11) + 1) as f64 / (1u64 << 53) as f64
    }

    /// Standard normal, by the polar method (Marsaglia and Bray 1964). The second value of a pair is
    /// thrown away: the sequence has no state but the generator's.
    fn normal(&mut self) -> f64 {
        loop {
            let a = 2.0 * self.uniform() - 1.0;
            let b = 2.0 * self.uniform() - 1.0;
            let square = a * a + b * b;
            if square > 0.0 && square < 1.0 {
                return a * (-2.0 * ln(square) / square).sqrt();
            }
        }
    }

    /// Gamma with a shape and scale 1 (Marsaglia and Tsang 2000, "A simple method for generating
    /// gamma variables"; for shapes below 1 their boost by `U^(1/shape)`).
    fn gamma(&mut self, shape: f64) -> f64 {
        if shape < 1.0 {
            let boost = exp_not_positive(ln(self.uniform()) / shape);
            return self.gamma(shape + 1.0) * boost;
        }
        let d = shape - 1.0 / 3.0;
        let c = 1.0 / (9.0 * d).sqrt();
        loop {
            let x = self.normal();
            let root = 1.0 + c * x;
            if root <= 0.0 {
                continue;
            }
            let v = root * root * root;
            let u = self.uniform();
            let x2 = x * x;
            if u < 1.0 - 0.0331 * x2 * x2 || ln(u) < 0.5 * x2 + d * (1.0 - v + ln(v)) {
                return d * v;
            }
        }
    }
}
