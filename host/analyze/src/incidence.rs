//! Completion incidence by Aalen–Johansen, with refusals instead of invented quantiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How one request's observation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Terminal {
    /// The event of interest.
    Completed,
    /// The competing event: it leaves the risk set for ever.
    Errored,
    /// No terminal event by then.
    Censored,
}

/// One request: time from its intended send to its terminal event or censoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Observed time in nanoseconds.
    pub time_ns: i64,
    /// How it ended.
    pub terminal: Terminal,
}

/// A point of the curve, right-continuous: the value holds from this time on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Time from the intended send, in milliseconds.
    pub at_ms: f64,
    /// Cumulative incidence of completion.
    pub completed: f64,
    /// Cumulative incidence of errors.
    pub errored: f64,
}

/// Why a quantile is not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuantileRefusal {
    /// It may be reached, but only after the horizon.
    GreaterThanHorizon,
    /// It cannot be reached, however long one waits.
    Unattainable,
    /// The window has no requests.
    NoSamples,
}

/// A quantile of the completion time over *all* scheduled requests, or its refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidenceQuantile {
    /// The quantile, 0 to 1.
    pub q: f64,
    /// Its value.
    pub value_ms: Option<f64>,
    /// Why there is none.
    pub refusal: Option<QuantileRefusal>,
    /// The sentence that goes with the refusal, with final incidence and ceiling.
    pub note: Option<String>,
}

/// The incidence curve of a window and what can be read from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Incidence {
    /// Requests in the risk set at time 0.
    pub n: u64,
    /// Largest time up to which quantiles are read: the client timeout, in milliseconds.
    pub horizon_ms: f64,
    /// Final cumulative incidence of completion, at the horizon.
    pub final_incidence: f64,
    /// Final cumulative incidence of errors, at the horizon.
    pub final_error_incidence: f64,
    /// Event-free survival left at the horizon.
    pub remaining: f64,
    /// `final_incidence + remaining`: the most that completion could still reach.
    pub ceiling: f64,
    /// Whether errors and censored requests exceed 5 % of the window, so that the curve must be
    /// shown beside any percentile.
    pub curve_required: bool,
    /// Quantiles 0.5, 0.9, 0.95, 0.99.
    pub quantiles: Vec<IncidenceQuantile>,
    /// The curve, thinned to a bounded number of points; first and last are kept.
    pub curve: Vec<CurvePoint>,
}
