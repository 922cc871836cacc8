//! Named scalars that gates read.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One named figure: a value, or the reason why there is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scalar {
    /// The value; `None` = not measured, which is not 0.
    pub value: Option<f64>,
    /// UCUM unit.
    pub unit: String,
    /// Why it is absent, in one sentence.
    pub absence: Option<String>,
}

/// All named figures of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Scalars {
    /// By name.
    pub scalars: BTreeMap<String, Scalar>,
}
