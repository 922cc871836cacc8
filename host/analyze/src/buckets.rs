//! Latencies in a few buckets, for a picture. Their edges are preferred numbers (ISO 3), which people
//! read at a glance and which grow evenly on a logarithmic scale.

use hdrhistogram::Histogram;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Most buckets of one distribution.
pub const MAX_LATENCY_BUCKETS: usize = 10;

/// Latencies within `[from_ms, to_ms)`, to the histogram's resolution (3 significant figures).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LatencyBucket {
    /// Where it starts, in milliseconds.
    pub from_ms: f64,
    /// Where the next one starts.
    pub to_ms: f64,
    /// Samples in it.
    pub count: u64,
}

/// Hundredfold steps of a decade in forty even parts, rounded (the series R40).
const R40: [u64; 40] = [
    100, 106, 112, 118, 125, 132, 140, 150, 160, 170, 180, 190, 200, 212, 224, 236, 250, 265, 280,
    300, 315, 335, 355, 375, 400, 425, 450, 475, 500, 530, 560, 600, 630, 670, 710, 750, 800, 850,
    900, 950,
];

/// Edges within a decade, from fine to coarse.
fn series() -> [Vec<u64>; 6] {
    let every = |step| R40.iter().copied().step_by(step).collect();
    [
        every(1),
        every(2),
        every(4),
        every(8),
        vec![100, 200, 500],
        vec![100],
    ]
}

/// The buckets of a histogram in microseconds, ascending and without a hole, from its smallest value
/// to its largest: of the finest series that needs no more than [`MAX_LATENCY_BUCKETS`]. Nothing of
/// an empty one. The last bucket has no upper neighbour: values beyond it, which no clock of a load
/// gives, count in it.
pub(crate) fn latency_buckets(histogram_us: &Histogram<u64>) -> Vec<LatencyBucket> {
    if histogram_us.is_empty() {
        return Vec::new();
    }
    // The middle of a histogram's own bin is nearest to what was recorded.
    let middle_ns = |us: u64| histogram_us.median_equivalent(us).saturating_mul(1_000);
    let min_ns = middle_ns(histogram_us.min()).max(FIRST_EDGE_NS);
    let max_ns = middle_ns(histogram_us.max()).max(min_ns);
    let edges = series()
        .iter()
        .map(|steps| edges_ns(steps, min_ns, max_ns))
        .find(|edges| edges.len() <= MAX_LATENCY_BUCKETS + 1)
        .unwrap_or_else(|| edges_ns(&[100], min_ns, max_ns));
    let ms = |ns: u64| ns as f64 / 1e6;
    let mut buckets: Vec<LatencyBucket> = edges
        .windows(2)
        .take(MAX_LATENCY_BUCKETS)
        .map(|w| LatencyBucket {
            from_ms: ms(w[0]),
            to_ms: ms(w[1]),
            count: 0,
        })
        .collect();
    for step in histogram_us.iter_recorded() {
        let ns = middle_ns(step.value_iterated_to());
        let at = edges.partition_point(|edge| *edge <= ns).saturating_sub(1);
        let last = buckets.len() - 1;
        buckets[at.min(last)].count += step.count_at_value();
    }
    buckets
}

/// The smallest value of the pinned histogram.
const FIRST_EDGE_NS: u64 = 1_000;

/// Edges from the last one at or below `min_ns` to the first one above `max_ns`.
fn edges_ns(steps: &[u64], min_ns: u64, max_ns: u64) -> Vec<u64> {
    let mut edges = Vec::new();
    // 10 · 100 ns = 1 µs is the first; ten to the sixteenth times that is a year.
    for decade in 1..17 {
        for step in steps {
            let edge = step * 10_u64.pow(decade);
            if edge <= min_ns {
                edges.clear();
            }
            edges.push(edge);
            if edge > max_ns {
                return edges;
            }
        }
    }
    edges
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_record::pinned_histogram;
    use proptest::prelude::*;

    fn of(us: &[u64]) -> Vec<LatencyBucket> {
        let mut histogram = pinned_histogram();
        us.iter().for_each(|v| histogram.record(*v).unwrap());
        latency_buckets(&histogram)
    }

    fn edges(us: &[u64]) -> Vec<f64> {
        let buckets = of(us);
        let last = buckets.last().map(|b| b.to_ms);
        buckets.iter().map(|b| b.from_ms).chain(last).collect()
    }

    #[test]
    fn edges_are_round_and_as_fine_as_fits() {
        assert!(of(&[]).is_empty());
        assert_eq!(edges(&[20_500]), [20.0, 21.2]);
        assert_eq!(
            edges(&[20_500, 32_900]),
            [20.0, 21.2, 22.4, 23.6, 25.0, 26.5, 28.0, 30.0, 31.5, 33.5]
        );
        assert_eq!(
            edges(&[20_500, 42_000]),
            [20.0, 22.4, 25.0, 28.0, 31.5, 35.5, 40.0, 45.0]
        );
        assert_eq!(
            edges(&[25_000, 9_000_000]),
            [
                20.0, 50.0, 100.0, 200.0, 500.0, 1000.0, 2000.0, 5000.0, 10_000.0
            ]
        );
        assert_eq!(
            edges(&[1, 120_000_000]),
            [
                0.001,
                0.01,
                0.1,
                1.0,
                10.0,
                100.0,
                1000.0,
                10_000.0,
                100_000.0,
                1_000_000.0
            ]
        );
    }

    #[test]
    fn counts_are_where_they_belong() {
        let counts: Vec<u64> = of(&[25_000, 30_000, 110_000, 9_000_000])
            .iter()
            .map(|b| b.count)
            .collect();
        assert_eq!(counts, [2, 0, 1, 0, 0, 0, 0, 1]);
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_of_a_few_buckets_in_a_row(
            us in prop::collection::vec(1_u64..100_000_000_000, 1..200),
        ) {
            let buckets = of(&us);
            prop_assert!((1..=MAX_LATENCY_BUCKETS).contains(&buckets.len()));
            prop_assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), us.len() as u64);
            prop_assert!(buckets.windows(2).all(|w| w[0].to_ms == w[1].from_ms));
            prop_assert!(buckets.iter().all(|b| b.from_ms < b.to_ms));
            prop_assert!(buckets[0].count > 0 && buckets[buckets.len() - 1].count > 0);
        }
    }
}
