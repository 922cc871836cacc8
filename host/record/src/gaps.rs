//! Inter-chunk gaps as histograms, one per bucket of the request's intended time, so that the
//! analysis can merge them into any window. Histograms are merged; percentiles are never averaged.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::io::merge;

/// Width of a gap bucket. A window takes the buckets that start inside it.
pub const GAP_BUCKET_NS: i64 = 1_000_000_000;

/// Significant figures of every histogram of the instrument.
pub const SIGNIFICANT_FIGURES: u8 = 3;

/// Largest gap that a histogram tells apart, in microseconds (19 hours): bounds its size.
pub const MAX_GAP_US: u64 = 1 << 36;

/// The one pinned configuration: microseconds, from 1 to at least 600 s, 3 significant figures. The
/// histogram grows with what it holds, so that a bucket of short gaps stays small; two of them add
/// without loss, since the figures are the same.
pub fn pinned_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_FIGURES).expect("3 figures are within the library's 0 to 5")
}

/// One gap between two content events of one choice of a request: a row of `gaps.parquet`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// The request's place in the schedule.
    pub index: u64,
    /// Number, among the request's content events, of the one that ends the gap. The first token is
    /// event 0 and ends none.
    pub chunk: u32,
    /// The choice that both events belong to; 0 unless the server sends several.
    pub choice: u32,
    /// When the gap ended, in run time.
    pub at_ns: i64,
    /// Its length in nanoseconds.
    pub gap_ns: i64,
}

/// Histograms of gaps in microseconds, by bucket index (`intended_ns / GAP_BUCKET_NS`).
#[derive(Debug, Clone, Default)]
pub struct GapHistograms {
    /// Bucket index → histogram. Counts are `u32`: a second cannot hold more gaps than that.
    pub buckets: BTreeMap<i64, Histogram<u32>>,
}

impl GapHistograms {
    /// Records one gap of a request. A gap under 1 µs counts as 1 µs.
    pub fn record(&mut self, intended_ns: i64, gap_ns: i64) {
        let gap_us = u64::try_from(gap_ns / 1_000).unwrap_or(0).max(1);
        self.buckets
            .entry(intended_ns.div_euclid(GAP_BUCKET_NS))
            .or_insert_with(|| {
                Histogram::new(SIGNIFICANT_FIGURES)
                    .expect("3 figures are within the library's 0 to 5")
            })
            .record(gap_us.min(MAX_GAP_US))
            .expect("a histogram that grows takes every value up to the bound");
    }

    /// Adds all gaps of another record.
    pub fn add(&mut self, other: Self) {
        for (bucket, histogram) in other.buckets {
            merge(&mut self.buckets, bucket, histogram);
        }
    }

    /// Merges the buckets whose start lies in `[start_ns, end_ns)`.
    pub fn merged(&self, start_ns: i64, end_ns: i64) -> Histogram<u64> {
        let mut sum = pinned_histogram();
        for (bucket, histogram) in &self.buckets {
            let at = bucket * GAP_BUCKET_NS;
            if at >= start_ns && at < end_ns {
                for step in histogram.iter_recorded() {
                    // Not `saturating_record_n`: it clamps to the present size instead of growing.
                    sum.record_n(step.value_iterated_to(), u64::from(step.count_at_value()))
                        .expect("a histogram that grows takes every value of another one");
                }
            }
        }
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_gaps_are_kept_and_not_clamped_to_the_first_size() {
        let mut gaps = GapHistograms::default();
        gaps.record(500, 14_000_000_000);
        gaps.record(GAP_BUCKET_NS, 10_000_000);
        gaps.record(2 * GAP_BUCKET_NS, 0);
        let all = gaps.merged(0, 3 * GAP_BUCKET_NS);
        assert_eq!(all.len(), 3);
        assert!(all.max().abs_diff(14_000_000) <= 14_000, "{}", all.max());
        assert_eq!(all.min(), 1, "a gap under 1 µs counts as 1 µs");
        assert!(all.value_at_quantile(0.5).abs_diff(10_000) <= 10);
        assert_eq!(gaps.merged(GAP_BUCKET_NS, 2 * GAP_BUCKET_NS).len(), 1);
    }
}
