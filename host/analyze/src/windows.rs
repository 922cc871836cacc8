//! Windows of a run: which requests a figure is about.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{Distribution, Incidence, SloFigures, TailInterval};

/// A window of the method (§3). A window holds the requests whose *intended* time falls in it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WindowName {
    /// End of warm-up → one client timeout before the fire anchor.
    Baseline,
    /// From there to the planned fire. Reported; feeds no baseline figure.
    Guard,
    /// Planned fire → end of the fault window.
    Fault,
    /// Planned fire → recovery entry, where recovery was found. With `fault_recovered` it
    /// partitions `fault`.
    FaultDegraded,
    /// Recovery entry → end of the fault window, where recovery was found.
    FaultRecovered,
    /// Actual fire → first successful direct inference.
    Outage,
}

impl WindowName {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Guard => "guard",
            Self::Fault => "fault",
            Self::FaultDegraded => "fault_degraded",
            Self::FaultRecovered => "fault_recovered",
            Self::Outage => "outage",
        }
    }
}

/// A half-open span of run time, `[start_ns, end_ns)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// First instant inside.
    pub start_ns: i64,
    /// First instant after it.
    pub end_ns: i64,
}

/// How scheduled requests ended. `scheduled = completed + errored + censored`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeCounts {
    /// Requests.
    pub scheduled: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Of these, errored.
    pub errored: u64,
    /// Of these, censored.
    pub censored: u64,
    /// Errors by class; classes that did not occur are not listed.
    pub errored_by_class: BTreeMap<String, u64>,
}

/// Every figure of one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowAnalysis {
    /// Which window.
    pub name: WindowName,
    /// Its span in run time.
    pub start_ns: i64,
    /// First instant after it.
    pub end_ns: i64,
    /// Its length in seconds.
    pub duration_s: f64,
    /// Outcomes.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
    /// TTFT of completed requests, from intended time, in milliseconds.
    pub ttft_ms: Distribution,
    /// End to end of completed requests, from intended time, in milliseconds.
    pub e2e_ms: Distribution,
    /// Pooled gaps between content events, in milliseconds. Inter-token only where
    /// [`RunAnalysis::inter_chunk_is_inter_token`](crate::RunAnalysis) says so.
    pub inter_chunk_ms: Distribution,
    /// Requests per second that completed.
    pub throughput_per_s: f64,
    /// Goodput and the sweep.
    pub slo: SloFigures,
    /// Completion incidence over all scheduled requests.
    pub incidence: Incidence,
    /// Order-statistic intervals of end-to-end p95 and p99 and TTFT p95 and p99.
    pub tails: Vec<TailInterval>,
}
