//! What the gates said, in `findings.json`.

use serde::{Deserialize, Serialize};

use crate::Measure;

/// One gate's finding on one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Stable id (`G1`).
    pub id: String,
    /// Title.
    pub title: String,
    /// Plugin `name version`.
    pub plugin: String,
    /// What a failure costs.
    pub severity: GateSeverity,
    /// Label that the gate decides, with `strips_label`.
    pub label: Option<String>,
    /// The verdict.
    pub verdict: GateVerdict,
    /// The sentence that goes with it.
    pub detail: String,
    /// The numbers it rests on.
    pub measures: Vec<Measure>,
}

/// What a failing or unobserved gate costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateSeverity {
    /// The run is invalid.
    InvalidatesRun,
    /// The run loses a label and stays valid.
    StripsLabel,
    /// Nothing.
    Advisory,
}

/// A verdict. Applicable but unobserved never passes; not applicable is not a pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The rule holds.
    Pass,
    /// It does not.
    Fail,
    /// Applicable, but the evidence is missing.
    NotObserved,
    /// The rule does not apply to this run.
    NotApplicable,
}

impl GateVerdict {
    /// Whether the gate applies.
    pub fn applicable(self) -> bool {
        self != Self::NotApplicable
    }

    /// Whether evidence was there.
    pub fn observed(self) -> bool {
        matches!(self, Self::Pass | Self::Fail)
    }

    /// Whether it passed.
    pub fn passed(self) -> bool {
        self == Self::Pass
    }
}

impl Finding {
    /// Whether this finding makes the run invalid.
    pub fn invalidates(&self) -> bool {
        self.severity == GateSeverity::InvalidatesRun
            && matches!(self.verdict, GateVerdict::Fail | GateVerdict::NotObserved)
    }
}
