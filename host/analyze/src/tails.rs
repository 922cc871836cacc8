//! Order-statistic confidence intervals of tail percentiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::nearest_rank;
use crate::time::millis;

/// A percentile with its distribution-free interval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TailInterval {
    /// `ttft` or `e2e`.
    pub component: String,
    /// The quantile, 0 to 1.
    pub q: f64,
    /// Samples.
    pub n: u64,
    /// The sample quantile: the order statistic of rank ⌈q·n⌉.
    pub estimate_ms: Option<f64>,
    /// Lower end: the order statistic of `lo_rank`.
    pub lo_ms: Option<f64>,
    /// Upper end: the order statistic of `hi_rank`.
    pub hi_ms: Option<f64>,
    /// Rank of the lower end, from 1.
    pub lo_rank: Option<u64>,
    /// Rank of the upper end, from 1.
    pub hi_rank: Option<u64>,
    /// Why there is no interval.
    pub note: Option<String>,
}

/// Two-sided 95 % point of the standard normal, as the method pins it.
const Z: f64 = 1.959_964;

/// Order-statistic interval of a quantile (Conover, *Practical Nonparametric Statistics*, 3.2; normal
/// approximation to the binomial ranks): lower rank `⌈nq − z√(nq(1−q))⌉`, upper rank
/// `⌈nq + z√(nq(1−q))⌉`, both inside `1..=n` or the interval is refused. `sorted_ns` is ascending.
///
/// Worked example: n = 1000, q = 0.95 → ranks 937 and 964.
pub fn tail_interval(component: &str, sorted_ns: &[i64], q: f64) -> TailInterval {
    let n = sorted_ns.len();
    let centre = n as f64 * q;
    let half = Z * (n as f64 * q * (1.0 - q)).sqrt();
    let (lo, hi) = ((centre - half).ceil(), (centre + half).ceil());
    let estimate_ms = nearest_rank(sorted_ns, q).map(millis);
    let inside = n > 0 && lo >= 1.0 && hi <= n as f64;
    let at = |rank: f64| sorted_ns.get(rank as usize - 1).copied().map(millis);
    let (lo_ms, hi_ms) = if inside {
        (at(lo), at(hi))
    } else {
        (None, None)
    };
    let note = if n == 0 {
        Some("no completed request in the window".to_owned())
    } else if inside {
        None
    } else {
        Some(format!(
            "refused: {n} samples do not hold the ranks {lo} and {hi} that a 95 % interval of p{} needs",
            q * 100.0
        ))
    };
    TailInterval {
        component: component.to_owned(),
        q,
        n: n as u64,
        estimate_ms,
        lo_ms,
        hi_ms,
        lo_rank: inside.then_some(lo as u64),
        hi_rank: inside.then_some(hi as u64),
        note,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example() {
        let sorted: Vec<i64> = (1..=1000).map(|ms| ms * 1_000_000).collect();
        let tail = tail_interval("e2e", &sorted, 0.95);
        assert_eq!((tail.lo_rank, tail.hi_rank), (Some(937), Some(964)));
        assert_eq!((tail.lo_ms, tail.hi_ms), (Some(937.0), Some(964.0)));
        assert_eq!(tail.estimate_ms, Some(950.0));
        assert_eq!(tail.note, None);
    }

    #[test]
    fn ranks_outside_the_sample_are_refused() {
        let sorted: Vec<i64> = (1..=100).map(|ms| ms * 1_000_000).collect();
        let tail = tail_interval("ttft", &sorted, 0.99);
        assert_eq!((tail.lo_ms, tail.hi_ms), (None, None));
        assert!(tail.note.unwrap().contains("refused"));
        assert_eq!(tail_interval("ttft", &[], 0.99).estimate_ms, None);
    }
}
