//! The recovery detector, its sensitivity, both baselines, components and the goodput deficit.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Successes of one bucket.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BucketCounts {
    /// Requests intended in the bucket.
    pub scheduled: u64,
    /// Of these, successes.
    pub good: u64,
}

/// What the detector concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum RecoveryStatus {
    /// Service fell below the entry threshold and came back.
    Recovered,
    /// No window from the anchor on was below the entry threshold.
    NoOutage,
    /// It did not come back by the timeout.
    NotRecovered,
    /// It seemed back, but the run ended before the hold could confirm it.
    Unconfirmed,
    /// The baseline does not allow a conclusion.
    NotEstimable,
}

/// One application of the detector.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Detection {
    /// The conclusion.
    pub status: RecoveryStatus,
    /// Baseline success ratio that thresholds refer to.
    pub baseline: Option<f64>,
    /// Start of the entry bucket, in run time.
    pub entry_ns: Option<i64>,
    /// Entry minus anchor, in seconds.
    pub ttr_s: Option<f64>,
    /// Candidates that a dip within the hold cancelled.
    pub dips: u32,
    /// After recovery: episodes below the exit threshold that climbed back to the entry threshold.
    pub redegradations: u32,
    /// Whether the run ended inside such an episode.
    pub ended_degraded: bool,
    /// Why there is no entry, or a remark.
    pub note: Option<String>,
}

/// One cell of the sensitivity table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SensitivityCell {
    /// Entry threshold, percent of the baseline.
    pub entry_percent: u32,
    /// R, in buckets.
    pub window_buckets: u32,
    /// H, in buckets.
    pub hold_buckets: u32,
    /// The conclusion.
    pub status: RecoveryStatus,
    /// Time to recovery.
    pub ttr_s: Option<f64>,
    /// Cancelled candidates.
    pub dips: u32,
    /// Re-degradations.
    pub redegradations: u32,
}

/// Recovery of one component of goodput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentRecovery {
    /// `ttft_slo`, `e2e_slo` or `error_free`.
    pub component: String,
    /// The detector on that component.
    #[serde(flatten)]
    pub detection: Detection,
}

/// The degraded plateau as a baseline of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equilibrium {
    /// Its goodput.
    pub goodput: Option<f64>,
    /// Where it was taken.
    pub start_ns: Option<i64>,
    /// First instant after it.
    pub end_ns: Option<i64>,
    /// The detector against it.
    pub detection: Option<Detection>,
    /// Why it is not estimable.
    pub note: Option<String>,
}

/// Goodput that was lost: Σ over buckets of `max(0, baseline − observed)`, in seconds of full
/// baseline service. A bucket without requests shows no loss and adds nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deficit {
    /// From the anchor to recovery; `None` if there was none.
    pub integrated_goodput_deficit: Option<f64>,
    /// From the anchor to the timeout: a lower bound where service did not recover.
    pub to_timeout: Option<f64>,
    /// Buckets without requests on the way to recovery (or the timeout).
    pub empty_buckets: u64,
    /// Why it is absent.
    pub note: Option<String>,
}

/// Recovery of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    /// Against the baseline before the fault, by the plan's rule.
    pub pre_fault: Detection,
    /// Against the degraded plateau.
    pub equilibrium: Equilibrium,
    /// The pre-fault detector over the grid.
    pub sensitivity: Vec<SensitivityCell>,
    /// By component.
    pub components: Vec<ComponentRecovery>,
    /// Goodput lost.
    pub deficit: Deficit,
}
