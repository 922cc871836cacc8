//! Parameters of the measurement method, with the values that published results are pinned to.

use serde::{Deserialize, Serialize};

/// Every parameter of the method that a free profile may change.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// When a request is good.
    pub slo: SloThresholds,
    /// Thresholds of the SLO sweep.
    pub slo_sweep: SloSweep,
    /// The recovery rule.
    pub recovery: RecoveryRule,
    /// The grid of the sensitivity table.
    pub sensitivity: SensitivityGrid,
    /// Largest accepted distance between planned and actual fire, in nanoseconds.
    pub fire_error_max_ns: i64,
    /// Planned number of runs; the degrees of freedom of the pinned t-interval follow from it.
    pub planned_runs: u32,
}

impl Method {
    /// The pinned values.
    pub fn pinned() -> Self {
        Self {
            slo: SloThresholds::PINNED,
            slo_sweep: SloSweep {
                ttft_ms: vec![800, 1000, 1500],
                e2e_ms: vec![12_000, 14_000, 18_000],
            },
            recovery: RecoveryRule::PINNED,
            sensitivity: SensitivityGrid::pinned(),
            fire_error_max_ns: 500_000_000,
            planned_runs: 5,
        }
    }
}

/// A request is good iff it completed and held both thresholds (inclusive).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloThresholds {
    /// Time to first token from the intended send time.
    pub ttft_ms: u32,
    /// End to end from the intended send time.
    pub e2e_ms: u32,
}

impl SloThresholds {
    /// The pinned thresholds.
    pub const PINNED: Self = Self {
        ttft_ms: 1000,
        e2e_ms: 14_000,
    };
}

/// Thresholds of the SLO sweep; every pair is evaluated.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloSweep {
    /// TTFT thresholds.
    pub ttft_ms: Vec<u32>,
    /// End-to-end thresholds.
    pub e2e_ms: Vec<u32>,
}

/// A goodput threshold as a whole percentage of the baseline's goodput.
pub type Threshold = u32;

/// The recovery rule.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecoveryRule {
    /// Bucket width, by intended time.
    pub bucket_ns: i64,
    /// R: length of the leading window, in buckets.
    pub window_buckets: u32,
    /// H: window starts that must hold after the entry, in buckets.
    pub hold_buckets: u32,
    /// Entry threshold, percent of the baseline.
    pub entry_percent: Threshold,
    /// Exit threshold, percent of the baseline.
    pub exit_percent: Threshold,
}

impl RecoveryRule {
    /// The pinned rule.
    pub const PINNED: Self = Self {
        bucket_ns: 1_000_000_000,
        window_buckets: 10,
        hold_buckets: 30,
        entry_percent: 90,
        exit_percent: 85,
    };
}

/// The grid of the sensitivity table; the exit threshold stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SensitivityGrid {
    /// Entry thresholds, percent.
    pub entry_percent: Vec<Threshold>,
    /// R, in buckets.
    pub window_buckets: Vec<u32>,
    /// H, in buckets.
    pub hold_buckets: Vec<u32>,
}

impl SensitivityGrid {
    /// The pinned grid.
    pub fn pinned() -> Self {
        Self {
            entry_percent: vec![85, 90, 95],
            window_buckets: vec![5, 10, 20],
            hold_buckets: vec![15, 30, 60],
        }
    }
}
