//! The decomposition of the recovery into the method's segments. Only measured boundaries are
//! claimed.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Partition;

/// Where a segment's boundaries come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SegmentSource {
    /// The runtime that starts replicas.
    Api,
    /// The server's log.
    Log,
    /// The instrument's inference probes.
    Probe,
    /// The load's own stream.
    Client,
}

/// One segment of the method's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// Where its boundaries come from.
    pub source: SegmentSource,
    /// Whether it can occur under this fault at all.
    pub applicable: bool,
    /// Whether both boundaries were measured.
    pub measured: bool,
    /// Start, wall clock, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_at: Option<String>,
    /// End, wall clock, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_at: Option<String>,
    /// Start, run time.
    pub start_ns: Option<i64>,
    /// End, run time.
    pub end_ns: Option<i64>,
    /// Length in seconds.
    pub duration_s: Option<f64>,
    /// Half-width of the interval that holds the length: both boundaries' uncertainties added.
    pub uncertainty_s: Option<f64>,
    /// Why it is not measured, or a remark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// The first match of a boundary after the fire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundaryMatch {
    /// Key as in `wit/matcher.wit`.
    pub key: String,
    /// The replica whose log it is in.
    pub replica: String,
    /// Physical line, from 1.
    pub line: u64,
    /// Which server start of the log.
    pub life: u32,
    /// Run time.
    pub at_ns: i64,
    /// Wall clock, RFC 3339, on the instrument's clock.
    pub at: Option<String>,
    /// Whose clock stamped it: `capture`, `docker`, `kubernetes`, `line`.
    pub stamp: String,
    /// Resolution of the stamp.
    pub resolution_ns: Option<i64>,
    /// Figures in the line.
    pub figures: BTreeMap<String, f64>,
    /// The line itself.
    pub text: String,
}

/// Where the time between fire and goodput went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decomposition {
    /// Every row of the method's table, in its order.
    pub segments: Vec<Segment>,
    /// Figures of the first matches after the fire, by name.
    pub log_figures: BTreeMap<String, f64>,
    /// The first matches after the fire, by key.
    pub boundaries: BTreeMap<String, BoundaryMatch>,
    /// The timeline from fire to goodput as consecutive phases.
    pub partition: Option<Partition>,
    /// Remarks (which victim's log, why there is none).
    pub notes: Vec<String>,
}
