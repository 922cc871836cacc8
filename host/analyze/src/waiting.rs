//! The waiting queue over the baseline (gate G7).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One replica's waiting-queue gauge over the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingAnalysis {
    /// Mean over the samples.
    pub mean: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Samples.
    pub samples: u64,
    /// Samples that the scrape interval promises.
    pub expected: u64,
    /// Failed scrapes within the baseline.
    pub scrape_errors: u64,
    /// Why the mean is absent.
    pub note: Option<String>,
}
