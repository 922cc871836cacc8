//! Inter-chunk gaps as histograms, one per bucket of the request's intended time, so that the
//! analysis can merge them into any window. Histograms are merged; percentiles are never averaged.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

/// Width of a gap bucket. A window takes the buckets that start inside it.
pub const GAP_BUCKET_NS: i64 = 1_000_000_000;

/// Significant figures of every histogram of the instrument.
pub const SIGNIFICANT_FIGURES: u8 = 3;

/// The one pinned configuration: microseconds, from 1 to at least 600 s, 3 significant figures. The
/// histogram grows with what it holds, so that a bucket of short gaps stays small; two of them add
/// without loss, since the figures are the same.
pub fn pinned_histogram() -> Histogram<u64> {
    Histogram::new(SIGNIFICANT_FIGURES).expect("3 figures are within the library's 0 to 5")
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
            .saturating_record(gap_us);
    }

    /// Merges the buckets whose start lies in `[start_ns, end_ns)`.
    pub fn merged(&self, start_ns: i64, end_ns: i64) -> Histogram<u64> {
        let mut sum = pinned_histogram();
        for (bucket, histogram) in &self.buckets {
            let at = bucket * GAP_BUCKET_NS;
            if at >= start_ns && at < end_ns {
                for step in histogram.iter_recorded() {
                    sum.saturating_record_n(
                        step.value_iterated_to(),
                        u64::from(step.count_at_value()),
                    );
                }
            }
        }
        sum
    }
}
