//! A rate that changes over a schedule: steps and ramps.

use serde::{Deserialize, Serialize};

use super::{ArrivalsError, MAX_SCHEDULED_REQUESTS};

/// Most segments of a profile.
pub const MAX_RATE_SEGMENTS: usize = 10_000;

/// A stretch of a schedule whose rate is constant or changes linearly.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RateSegment {
    /// Length in nanoseconds.
    pub length_ns: i64,
    /// Rate at its start, in requests per second.
    pub from_per_s: f64,
    /// Rate at its end; the same for a step.
    pub to_per_s: f64,
}

impl RateSegment {
    fn seconds(&self) -> f64 {
        self.length_ns as f64 / 1e9
    }

    /// Requests expected in it.
    fn expected(&self) -> f64 {
        (self.from_per_s + self.to_per_s) / 2.0 * self.seconds()
    }

    /// The instant, in seconds from its start, by which `count` requests are expected. The rate's
    /// integral is a parabola; this form of its root cancels nothing and knows no case of slope 0.
    fn instant_s(&self, count: f64) -> f64 {
        let slope = (self.to_per_s - self.from_per_s) / self.seconds();
        let root = (self.from_per_s * self.from_per_s + 2.0 * slope * count).max(0.0);
        2.0 * count / (self.from_per_s + root.sqrt())
    }
}

/// Segments one after the other, from the epoch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct RateProfile {
    /// The segments.
    pub segments: Vec<RateSegment>,
}

impl RateProfile {
    /// One rate for the whole length.
    pub fn constant(rate_per_s: f64, length_ns: i64) -> Self {
        Self {
            segments: vec![RateSegment {
                length_ns,
                from_per_s: rate_per_s,
                to_per_s: rate_per_s,
            }],
        }
    }

    /// Its length in nanoseconds.
    pub fn length_ns(&self) -> i64 {
        self.segments
            .iter()
            .fold(0, |sum, s| sum.saturating_add(s.length_ns))
    }

    /// Requests expected over its length.
    pub fn expected(&self) -> f64 {
        self.segments.iter().map(RateSegment::expected).sum()
    }

    /// The rate of the whole profile if it is one.
    pub(super) fn single_rate(&self) -> Option<f64> {
        let first = self.segments.first()?.from_per_s;
        self.segments
            .iter()
            .all(|s| s.from_per_s == first && s.to_per_s == first)
            .then_some(first)
    }

    pub(super) fn check(&self) -> Result<(), ArrivalsError> {
        if self.segments.is_empty() || self.segments.len() > MAX_RATE_SEGMENTS {
            return Err(ArrivalsError::Segments(self.segments.len()));
        }
        for segment in &self.segments {
            for rate in [segment.from_per_s, segment.to_per_s] {
                if !(rate.is_finite() && rate >= 0.0) {
                    return Err(ArrivalsError::Rate(rate));
                }
            }
            if segment.length_ns <= 0 {
                return Err(ArrivalsError::Length(segment.length_ns as f64 / 1e9));
            }
        }
        let expected = self.expected();
        if expected <= 0.0 {
            return Err(ArrivalsError::Rate(0.0));
        }
        if expected > MAX_SCHEDULED_REQUESTS as f64 {
            let seconds = self.length_ns() as f64 / 1e9;
            return Err(ArrivalsError::TooMany {
                rate: expected / seconds,
                seconds,
            });
        }
        Ok(())
    }

    /// Turns ascending counts of expected requests into instants: a process of unit rate, its time
    /// axis stretched by the profile (Cinlar 1975). Ends with the profile.
    pub(super) fn instants(&self, counts: impl Iterator<Item = f64>, most: usize) -> Vec<i64> {
        let mut times = Vec::new();
        let mut segments = self.segments.iter();
        let Some(mut segment) = segments.next() else {
            return times;
        };
        // What lies before the present segment.
        let (mut count_before, mut ns_before) = (0.0, 0_i64);
        for count in counts.take(most) {
            while count - count_before >= segment.expected() {
                count_before += segment.expected();
                ns_before += segment.length_ns;
                match segments.next() {
                    Some(next) => segment = next,
                    None => return times,
                }
            }
            let within_s = segment.instant_s(count - count_before);
            let within = ((within_s * 1e9).round() as i64).clamp(0, segment.length_ns - 1);
            times.push(ns_before + within);
        }
        times
    }
}
