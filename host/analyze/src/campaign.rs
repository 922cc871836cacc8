//! A campaign: per-run values, and only the statistics that a small sample carries.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Validity;

/// How an endpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// The one question of the campaign.
    Primary,
    /// Further questions.
    Secondary,
    /// Described, not tested.
    Exploratory,
    /// Cannot occur in this campaign.
    NotApplicable,
}

/// Summary of a sample. Field names and texts as in the predecessor's published endpoints; what the
/// sample cannot carry is `None`, where the predecessor wrote 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Per-run values, verbatim, in run order.
    pub values: Option<Vec<f64>>,
    /// How many.
    pub n: u64,
    /// Median.
    pub median: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Sample standard deviation (n − 1).
    pub sample_sd: Option<f64>,
    /// Standard error of the mean.
    pub sem: Option<f64>,
    /// Lower end of the 95 % t-interval.
    pub t_interval_lo: Option<f64>,
    /// Upper end.
    pub t_interval_hi: Option<f64>,
    /// Its multiplier, to three decimals.
    pub t_multiplier: Option<f64>,
    /// Degrees of freedom.
    pub df: Option<u64>,
    /// Whether `df` is the planned one.
    pub at_pinned_df: bool,
    /// Sample SD over mean.
    pub coefficient_of_variation: Option<f64>,
    /// Whether that is defined.
    pub cov_defined: bool,
    /// Whether the quantity is heavy-tailed: median and range lead.
    pub heavy_tailed: bool,
    /// The sentence to publish.
    pub headline: String,
}

/// A run that does not contribute a value, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedRun {
    /// The run.
    pub run: u32,
    /// Why.
    pub reason: String,
}

/// A run whose value is only known to exceed a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CensoredRun {
    /// The run.
    pub run: u32,
    /// The value is at least this.
    pub at_least: f64,
}

/// One endpoint of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// Name of the per-run figure.
    pub name: String,
    /// UCUM unit.
    pub unit: String,
    /// How it counts.
    pub endpoint: EndpointKind,
    /// Summary of the values. With censored runs it has no mean, spread or interval.
    pub summary: Summary,
    /// Runs that contribute a value.
    pub contributing_n: u64,
    /// Runs that contribute nothing.
    pub dropped_runs: u64,
    /// Why this endpoint has no value at all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dropped_reason: Option<String>,
    /// The dropped runs by name.
    pub dropped: Vec<DroppedRun>,
    /// Right-censored runs: they count, as "at least".
    pub censored: Vec<CensoredRun>,
    /// Kaplan–Meier median over values and censored runs; `None` = not reached.
    pub km_median: Option<f64>,
    /// Why it is absent.
    pub km_note: Option<String>,
}

/// One run's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunVerdict {
    /// The run.
    pub run: u32,
    /// Whether it was a negative control.
    pub negative_control: bool,
    /// Whether it counts, and why not.
    #[serde(flatten)]
    pub validity: Validity,
}

/// Every figure of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignAnalysis {
    /// Version 1.
    pub schema_version: u32,
    /// Name of the campaign.
    pub campaign: String,
    /// Fault variant.
    pub variant: Option<String>,
    /// Runs that the plan has, controls apart.
    pub repetitions: u64,
    /// Runs that were analysed and count.
    pub valid_runs: u64,
    /// Runs that were analysed and do not count.
    pub invalid_runs: u64,
    /// Planned runs without an analysis.
    pub missing_runs: Vec<u32>,
    /// Verdicts, controls included.
    pub runs: Vec<RunVerdict>,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Length of each measured segment and partition phase over the runs, in seconds.
    pub segments: Vec<Endpoint>,
    /// Distinct accelerator fingerprints over all runs.
    pub fingerprints: Vec<String>,
    /// What is refused, and why (bootstrap, rank tests).
    pub refusals: BTreeMap<String, String>,
    /// What a reader must know beside the figures.
    pub caveats: Vec<String>,
}
