//! Latency distributions: the one pinned histogram, its percentiles, and the exact mean.

use blackstart_record::pinned_histogram;
use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A distribution in milliseconds, with its sample count. Every figure is `None` when `count` is 0.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Distribution {
    /// Samples.
    pub count: u64,
    /// Mean, exact (not from the histogram), except for pooled gaps.
    pub mean: Option<f64>,
    /// Smallest, to the histogram's resolution.
    pub min: Option<f64>,
    /// Median.
    pub p50: Option<f64>,
    /// 90th percentile.
    pub p90: Option<f64>,
    /// 95th percentile.
    pub p95: Option<f64>,
    /// 99th percentile.
    pub p99: Option<f64>,
    /// Largest, to the histogram's resolution.
    pub max: Option<f64>,
    /// What the figures are conditional on, or why there are none.
    pub note: Option<String>,
}

/// Collects a distribution.
pub(crate) struct Collector {
    histogram: Histogram<u64>,
    sum_ns: i128,
    count: u64,
}

impl Collector {
    /// An empty one.
    pub(crate) fn new() -> Self {
        Self {
            histogram: pinned_histogram(),
            sum_ns: 0,
            count: 0,
        }
    }

    /// Records one latency. Under 1 µs counts as 1 µs in the histogram; the mean keeps it as it is.
    pub(crate) fn record_ns(&mut self, ns: i64) {
        let us = u64::try_from(ns / 1_000).unwrap_or(0).max(1);
        // `record` grows the histogram; it fails only where counts would outgrow `usize`. (The
        // library's `saturating_record` clamps to the present size instead of growing.)
        if self.histogram.record(us).is_err() {
            return;
        }
        self.sum_ns += i128::from(ns);
        self.count += 1;
    }

    /// The latencies in microseconds.
    pub(crate) fn histogram(&self) -> &Histogram<u64> {
        &self.histogram
    }

    /// The exact mean in milliseconds.
    pub(crate) fn mean_ms(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum_ns as f64 / self.count as f64 / 1e6)
    }

    /// Its figures.
    pub(crate) fn finish(&self, note: &str) -> Distribution {
        if self.count == 0 {
            return Distribution::none("no completed request in the window");
        }
        Distribution {
            mean: self.mean_ms(),
            ..Distribution::from_histogram(&self.histogram, note)
        }
    }
}

impl Distribution {
    /// No samples.
    pub(crate) fn none(note: &str) -> Self {
        Self {
            note: Some(note.to_owned()),
            ..Self::default()
        }
    }

    /// Figures of a histogram in microseconds. A percentile is the highest value that the
    /// histogram does not tell apart from it (3 significant figures).
    pub(crate) fn from_histogram(histogram: &Histogram<u64>, note: &str) -> Self {
        if histogram.is_empty() {
            return Self::none(note);
        }
        let at = |q: f64| Some(histogram.value_at_quantile(q) as f64 / 1e3);
        Self {
            count: histogram.len(),
            mean: Some(histogram.mean() / 1e3),
            min: Some(histogram.min() as f64 / 1e3),
            p50: at(0.50),
            p90: at(0.90),
            p95: at(0.95),
            p99: at(0.99),
            max: Some(histogram.max() as f64 / 1e3),
            note: Some(note.to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worked_distribution() {
        let mut collector = Collector::new();
        for ms in 1..=100 {
            collector.record_ns(ms * 1_000_000);
        }
        let d = collector.finish("conditional on completion");
        assert_eq!(d.count, 100);
        assert_eq!(d.mean, Some(50.5));
        // 50 ms = 50 000 µs lies in a bin of 32 µs: the highest equivalent value is reported.
        assert_eq!(d.p50, Some(50.015));
        assert_eq!(d.p99, Some(99.007));
        assert_eq!(Collector::new().finish("").mean, None);
    }

    #[test]
    fn a_gap_below_one_microsecond_counts_as_one() {
        let mut collector = Collector::new();
        collector.record_ns(3);
        assert_eq!(collector.finish("").max, Some(0.001));
    }
}
