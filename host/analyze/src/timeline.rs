//! The run second by second, for the report's charts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One second of intended time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Start of the second in run time, in seconds.
    pub at_s: i64,
    /// Requests intended in it.
    pub scheduled: u64,
    /// Of these, good.
    pub good: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Of these, errored.
    pub errored: u64,
    /// Of these, censored.
    pub censored: u64,
    /// Median TTFT of the completed ones; `None` if there is none.
    pub ttft_ms_p50: Option<f64>,
}
