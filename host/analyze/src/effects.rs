//! What was done to the victims, and whether it is proven.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One effect of the fault, with its steps joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectSummary {
    /// Its number on the timeline.
    pub effect: u32,
    /// What it is, for people.
    pub action: String,
    /// The replica it harms.
    pub replica: Option<String>,
    /// Planned start.
    pub planned_ns: Option<i64>,
    /// Start: middle of the clock reads around it.
    pub started_ns: Option<i64>,
    /// Half of the distance between those reads.
    pub started_half_width_ns: Option<i64>,
    /// Planned undo.
    pub undo_planned_ns: Option<i64>,
    /// Undo: middle of the clock reads around it.
    pub undone_ns: Option<i64>,
    /// Who undid it: `instrument` or `watchdog`.
    pub undone_by: Option<String>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Pids or other details of the start.
    pub detail: Option<String>,
}

/// What the fault plugin concluded from the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofSummary {
    /// It happened.
    Happened,
    /// It did not.
    DidNotHappen,
    /// The facts do not decide.
    CannotTell,
    /// No verdict was recorded.
    NotRecorded,
    /// No fault was to be proven.
    NotApplicable,
}

/// The fault as it was executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultProof {
    /// Variant, when a fault was planned.
    pub variant: Option<String>,
    /// Victims that the plan names.
    pub victims: Vec<String>,
    /// What the plugin said it would do.
    pub statement: Option<String>,
    /// The effects.
    pub effects: Vec<EffectSummary>,
    /// End of the last effect that was undone; `None` = never (or nothing to undo).
    pub expired_ns: Option<i64>,
    /// The verdict.
    pub proof: ProofSummary,
    /// Its reason.
    pub proof_statement: Option<String>,
    /// Facts that changed between before and after: `replica name: before → after`.
    pub changed_facts: Vec<String>,
}
