//! The predecessor's published report (`schema_version` 1), checked from its own evidence.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One checked statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assertion {
    /// The figure that is checked, by its path in the document, with `#check` after it.
    pub id: String,
    /// Whether it holds.
    pub ok: bool,
    /// What the evidence gives.
    pub expected: String,
    /// What the document says.
    pub found: String,
    /// The figures and the evidence that the check rests on, by path.
    #[serde(rename = "where")]
    pub where_: Vec<String>,
}

/// A figure that no evidence in the document determines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotRecomputable {
    /// Its path.
    pub path: String,
    /// Why.
    pub why: String,
}

/// What the check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForeignReport {
    /// Whether every assertion holds.
    pub ok: bool,
    /// Every assertion.
    pub assertions: Vec<Assertion>,
    /// Figures whose alteration explains every failure best; empty when all holds.
    pub suspects: Vec<String>,
    /// Figures that could not be recomputed.
    pub not_recomputable: Vec<NotRecomputable>,
}
