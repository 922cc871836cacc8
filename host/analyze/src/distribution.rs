//! Latency distributions: the one pinned histogram, its percentiles, and the exact mean.

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
