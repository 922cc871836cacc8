//! Draws of a run: seeded, and alike on every machine.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A stream of draws. Only basic operations: no platform's mathematics library can move a draw.
pub(crate) struct Random(ChaCha8Rng);

/// What a stream is for. Streams of one seed are independent of each other, and of the arrivals.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
pub(crate) enum Stream {
    Planted = 16,
    Requests = 17,
    Probes = 18,
    Log = 19,
}

/// Bytes of the key that hold the scenario's name.
const NAME_BYTES: usize = 16;

impl Random {
    /// A stream of a scenario's seed.
    pub(crate) fn new(scenario: &str, seed: u64, stream: Stream) -> Self {
        // Laid out here, not by the library's own expansion, as for the arrivals.
        let mut key = [0_u8; 32];
        key[..8].copy_from_slice(&seed.to_le_bytes());
        key[8] = stream as u8;
        for (i, byte) in scenario.bytes().enumerate() {
            // Longer names fold over: two scenarios need different streams, not a secret.
            let at = 32 - NAME_BYTES + i % NAME_BYTES;
            key[at] = key[at].rotate_left(3) ^ byte;
        }
        Self(ChaCha8Rng::from_seed(key))
    }

    /// Uniform in [0, 1).
    pub(crate) fn unit(&mut self) -> f64 {
        (self.0.random::<u64>() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Uniform in [from, to).
    pub(crate) fn between(&mut self, from: i64, to: i64) -> i64 {
        from + (self.unit() * (to - from) as f64) as i64
    }

    /// Uniform in [from, to).
    pub(crate) fn real(&mut self, from: f64, to: f64) -> f64 {
        from + self.unit() * (to - from)
    }

    /// Triangular around the middle of [from, to).
    pub(crate) fn around(&mut self, from: i64, to: i64) -> i64 {
        from + ((self.unit() + self.unit()) / 2.0 * (to - from) as f64) as i64
    }

    /// True with this probability.
    pub(crate) fn chance(&mut self, probability: f64) -> bool {
        self.unit() < probability
    }
}
