//! Requests in flight at the fire, and all requests intended within the outage.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts by eventual outcome. `total = completed + errored + censored`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InFlightCounts {
    /// All.
    pub total: u64,
    /// Completed all the same.
    pub completed: u64,
    /// Ended in an explicit failure.
    pub errored: u64,
    /// Left hanging.
    pub censored: u64,
}

/// One replica's (or the unattributed) share of the in-flight requests.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InFlightGroup {
    /// By outcome, determinate and indeterminate together.
    #[serde(flatten)]
    pub counts: InFlightCounts,
    /// Of these, indeterminate.
    pub indeterminate: u64,
    /// Errors by class.
    pub errored_by_class: BTreeMap<String, u64>,
}

/// How far requests had come, by the client's own stamps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FlightPhases {
    /// No response head: on the way, queued, or in prefill.
    pub no_response: u64,
    /// Accepted (response head) but without a token.
    pub accepted_no_token: u64,
    /// Streaming.
    pub streaming: u64,
}

/// Requests dispatched before the fire and not terminal at it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InFlight {
    /// By outcome, determinate and indeterminate together.
    pub all: InFlightCounts,
    /// Terminal event outside the indeterminate zone.
    pub determinate: InFlightCounts,
    /// Terminal event within the indeterminate zone of the fire, on either side of it.
    pub indeterminate: InFlightCounts,
    /// Errors by class, over all.
    pub errored_by_class: BTreeMap<String, u64>,
    /// By replica; requests without a known replica are under `unattributed`.
    pub by_replica: BTreeMap<String, InFlightGroup>,
    /// How far they had come at the fire.
    pub at_fire: FlightPhases,
    /// Tokens (the server's count, else content events) that lost requests had received.
    pub tokens_lost: u64,
    /// Content that lost requests still owed, where the length is fixed by `ignore_eos`.
    pub tokens_undelivered: Option<u64>,
    /// Lost requests (errored or censored) over all.
    pub loss_fraction: Option<f64>,
    /// Why the fraction is absent, or a remark.
    pub note: Option<String>,
}

/// Outcomes of the requests intended within the outage.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutageOutcomes {
    /// All.
    pub total: u64,
    /// Completed.
    pub completed: u64,
    /// Errored.
    pub errored: u64,
    /// Censored.
    pub censored: u64,
    /// Errors by class.
    pub errored_by_class: BTreeMap<String, u64>,
    /// How far the censored ones had come.
    pub censored_by_phase: FlightPhases,
}
