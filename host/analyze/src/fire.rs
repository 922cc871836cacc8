//! The fire instant: from the clock reads around the operation and the offset of the clock that
//! made them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Offset of the clock that bracketed the operation, remote − local.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// Offset.
    pub offset_ns: i64,
    /// Half-width of the interval that holds it.
    pub bound_ns: i64,
}

impl ClockOffset {
    /// The same clock: offset 0, bound 0.
    pub const SAME: Self = Self {
        offset_ns: 0,
        bound_ns: 0,
    };
}

/// Which clock bracketed the fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FireClock {
    /// The instrument's own monotonic clock: offset 0, bound 0.
    Local,
    /// Another host's clock, with a measured offset.
    Remote,
    /// Another host's clock whose offset was not measured: the run is invalid.
    Unmeasured,
}

/// When the fault was fired, and how well that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fire {
    /// Whether a fault was planned for this run.
    pub planned: bool,
    /// Whether an effect was started.
    pub fired: bool,
    /// Planned fire; in a run without a fault the end of the baseline phase.
    pub planned_ns: i64,
    /// The fire instant.
    pub actual_ns: Option<i64>,
    /// The fire anchor: the earlier of planned and actual.
    pub anchor_ns: i64,
    /// Actual minus planned, in milliseconds.
    pub fire_error_ms: Option<f64>,
    /// Half-width of the interval that holds the fire instant.
    pub fire_uncertainty_ns: Option<i64>,
    /// Distance from the fire within which a terminal event can not be ordered against it.
    pub indeterminate_zone_ns: Option<i64>,
    /// Clock read before the operation.
    pub bracket_before_ns: Option<i64>,
    /// Clock read after the operation.
    pub bracket_after_ns: Option<i64>,
    /// Which clock that was.
    pub clock: FireClock,
    /// Offset at arm time.
    pub offset_at_arm: ClockOffset,
    /// Offset afterwards.
    pub offset_after: ClockOffset,
    /// Why the fire instant is absent, or a remark.
    pub note: Option<String>,
}
