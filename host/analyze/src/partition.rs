//! The timeline from fire to goodput as a partition by consecutive boundaries.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One phase between two consecutive boundaries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    /// Name of the phase (`weight_load`), or `unexplained`.
    pub name: String,
    /// Boundary at which it starts.
    pub from: String,
    /// Boundary at which it ends.
    pub to: String,
    /// Start, run time.
    pub start_ns: i64,
    /// End, run time.
    pub end_ns: i64,
    /// Length in seconds.
    pub duration_s: f64,
    /// Share of the whole, percent.
    pub share_percent: f64,
    /// Whether the boundaries around it say what happened in it.
    pub explained: bool,
    /// Which boundaries are missing, or that the order is not resolved.
    pub note: Option<String>,
}

/// The whole timeline. The phases touch each other; their lengths add up to `total_s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// The fire.
    pub start_ns: i64,
    /// The later of goodput recovery and the last readiness boundary; the timeout if service did
    /// not recover.
    pub end_ns: i64,
    /// What `end_ns` is (`goodput_restored`, `replica_ready`, `traffic_restored`, `timeout`).
    pub end: String,
    /// Length in seconds.
    pub total_s: f64,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Length of what no boundary explains.
    pub unexplained_s: f64,
    /// Its share, percent.
    pub unexplained_percent: f64,
    /// Remarks.
    pub notes: Vec<String>,
}
