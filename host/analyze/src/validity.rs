//! Whether a run counts.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One reason why a run does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InvalidReason {
    /// Stable code: a gate's id, or `fault_not_proven`, `fire_error`, `never_fired`,
    /// `unexpected_effect`, `records_missing`, `partial`, `clock_offset_unmeasured`, `no_requests`.
    pub code: String,
    /// The sentence.
    pub detail: String,
}

/// The judgement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Validity {
    /// Whether the run counts.
    pub valid: bool,
    /// Every reason why not.
    pub reasons: Vec<InvalidReason>,
    /// Labels that the run may carry after the gates that decide them.
    pub labels: Vec<String>,
    /// Labels that it lost, with the gate's id.
    pub labels_lost: Vec<String>,
}
