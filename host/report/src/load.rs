//! `summary.json` of a load, which is also what `load --json` prints.

use blackstart_analyze::{LOAD_SUMMARY_SCHEMA_VERSION, LoadFigures};
use blackstart_plan::TlsSpec;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The figures of a load, and where its records are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadReport {
    /// [`LOAD_SUMMARY_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// The figures.
    #[serde(flatten)]
    pub figures: LoadFigures,
    /// How the server was verified; null with `http://`.
    pub tls: Option<TlsSpec>,
    /// Where the records are; null when they were not kept.
    pub out: Option<String>,
}

impl LoadReport {
    /// A report of this version.
    pub fn new(figures: LoadFigures, tls: Option<TlsSpec>, out: Option<String>) -> Self {
        Self {
            schema_version: LOAD_SUMMARY_SCHEMA_VERSION,
            figures,
            tls,
            out,
        }
    }
}

/// JSON Schema of [`LoadReport`].
pub fn load_schema() -> serde_json::Value {
    schemars::schema_for!(LoadReport).to_value()
}
