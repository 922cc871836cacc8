//! Whether the client itself was fit to measure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Heartbeat of one load thread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeartbeatSummary {
    /// Thread number.
    pub thread: u32,
    /// Ticks.
    pub ticks: u64,
    /// Lateness, p50, in microseconds.
    pub late_us_p50: f64,
    /// Lateness, p99.
    pub late_us_p99: f64,
    /// Lateness, largest.
    pub late_us_max: f64,
    /// Whether it ran under real-time priority.
    pub real_time: bool,
    /// Why not.
    pub real_time_note: Option<String>,
}

/// The client's validity figures (gate G2).
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ClientAnalysis {
    /// Requests that were dispatched.
    pub dispatched: u64,
    /// Requests that never were.
    pub undispatched: u64,
    /// Send skew (actual minus intended write), p50.
    pub skew_us_p50: Option<f64>,
    /// Send skew, p99.
    pub skew_us_p99: Option<f64>,
    /// Send skew, largest.
    pub skew_us_max: Option<f64>,
    /// Whole 5 s windows of host CPU that were measured.
    pub cpu_windows: u64,
    /// Host CPU over the busiest of them, percent.
    pub cpu_percent_max_5s: Option<f64>,
    /// Host CPU, mean over the samples, percent.
    pub cpu_percent_mean: Option<f64>,
    /// The instrument's own share, mean, percent.
    pub process_percent_mean: Option<f64>,
    /// Largest share stolen by the hypervisor in one sample, percent.
    pub steal_percent_max: Option<f64>,
    /// Why CPU figures are absent.
    pub cpu_note: Option<String>,
    /// Worst thread's heartbeat lateness, p99, in microseconds.
    pub stall_us_p99: Option<f64>,
    /// Worst thread's largest lateness.
    pub stall_us_max: Option<f64>,
    /// Why stall figures are absent.
    pub stall_note: Option<String>,
    /// Heartbeats by thread.
    pub heartbeats: Vec<HeartbeatSummary>,
    /// Requests whose reads delivered more than one content event at once.
    pub coalesced_requests: u64,
}
