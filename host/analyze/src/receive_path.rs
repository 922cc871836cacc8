//! What the client adds to the latencies it reports.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Canary streams of one window. Deviations are absolute values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CanaryFigures {
    /// Known TTFT of the endpoint.
    pub ttft_ms: u32,
    /// Known gap of the endpoint.
    pub itl_ms: u32,
    /// Known length of a stream.
    pub tokens: u32,
    /// Streams sent in the window.
    pub streams: u64,
    /// Of these, completed with all tokens.
    pub completed: u64,
    /// |observed − known TTFT|, p50.
    pub ttft_dev_p50_us: Option<f64>,
    /// |observed − known TTFT|, largest.
    pub ttft_dev_max_us: Option<f64>,
    /// |observed − known gap|, p50.
    pub itl_dev_p50_us: Option<f64>,
    /// |observed − known gap|, p99.
    pub itl_dev_p99_us: Option<f64>,
    /// |observed − known gap|, largest.
    pub itl_dev_max_us: Option<f64>,
    /// Lag of an event behind its due time, p99.
    pub event_lag_p99_us: Option<f64>,
    /// Lag of an event behind its due time, largest.
    pub event_lag_max_us: Option<f64>,
}

/// Both checks of one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReceivePath {
    /// Mean client TTFT of completed requests, from intended time.
    pub client_ttft_mean_ms: Option<f64>,
    /// How many.
    pub client_ttft_count: u64,
    /// Mean of the servers' own TTFT histogram over the window.
    pub server_ttft_mean_ms: Option<f64>,
    /// How many observations that histogram gained. Probes are among them.
    pub server_ttft_count: Option<u64>,
    /// Why server figures are absent, or a remark.
    pub server_ttft_note: Option<String>,
    /// The canary.
    pub canary: Option<CanaryFigures>,
    /// Why there is none.
    pub canary_note: Option<String>,
}
