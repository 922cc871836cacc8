//! Whether the accelerators were the same everywhere and all the time (gate G5).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Accelerator fingerprints of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FingerprintAnalysis {
    /// Whether the plan declares accelerators.
    pub declared: bool,
    /// Readings that gave a fingerprint.
    pub sources: u64,
    /// Readings that failed, with the reason.
    pub failures: Vec<String>,
    /// The distinct fingerprints.
    pub fingerprints: Vec<String>,
    /// Why there are none.
    pub note: Option<String>,
}
