//! Goodput, the SLO sweep, and the modal distance from each threshold.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Goodput of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloFigures {
    /// Requests that completed within both thresholds.
    pub good: u64,
    /// good / scheduled; `None` when nothing was scheduled.
    pub goodput: Option<f64>,
    /// Good requests per second of the window.
    pub good_per_s: f64,
    /// Every pair of thresholds.
    pub sweep: Vec<SweepCell>,
    /// Distance of the window's modal latency from each threshold, in baseline standard
    /// deviations; empty for the baseline itself.
    pub modal_distances: Vec<ModalDistance>,
}

/// One pair of thresholds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepCell {
    /// TTFT threshold.
    pub ttft_ms: u32,
    /// End-to-end threshold.
    pub e2e_ms: u32,
    /// Requests that hold both.
    pub good: u64,
    /// good / scheduled.
    pub goodput: Option<f64>,
}

/// How far the modal latency lies from a threshold: `(mode − threshold) / baseline SD`.
/// Negative = inside the threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModalDistance {
    /// `ttft` or `e2e`.
    pub component: String,
    /// The threshold.
    pub threshold_ms: u32,
    /// Centre of the densest bin.
    pub mode_ms: Option<f64>,
    /// The baseline's sample standard deviation.
    pub baseline_sd_ms: Option<f64>,
    /// The distance; `None` when it is infinite or not estimable.
    pub distance_sd: Option<f64>,
    /// Sign of an infinite distance (no spread in the baseline): 1 or −1.
    pub infinite_sign: Option<i8>,
    /// Why the distance is absent.
    pub note: Option<String>,
}
