//! Order-statistic confidence intervals of tail percentiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
