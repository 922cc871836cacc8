//! One run: every figure of the method, from plan and records.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    ClientAnalysis, Decomposition, FaultProof, FingerprintAnalysis, Fire, InFlight, InFlightCounts,
    OutageOutcomes, OutcomeCounts, ReceivePath, Recovery, ReplicaLives, Second, ShareAnalysis,
    WaitingAnalysis, WindowAnalysis,
};

/// Version of `analysis.json`.
pub const RUN_ANALYSIS_SCHEMA_VERSION: u32 = 1;

/// Every figure of one run. Names that the predecessor's published report has mean the same here.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunAnalysis {
    /// [`RUN_ANALYSIS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// From 1.
    pub run: u32,
    /// Its seed.
    pub seed: u64,
    /// A negative control: as planned, but no effect was executed.
    pub negative_control: bool,
    /// Whether the run ended early.
    pub partial: bool,
    /// Why.
    pub partial_note: Option<String>,
    /// Requests that the plan schedules.
    pub requests_planned: u64,
    /// Requests with a record.
    pub requests_recorded: u64,
    /// Outcomes of the whole run, warm-up and cooldown included.
    pub counts: OutcomeCounts,
    /// Wall clock at the epoch, nanoseconds since the Unix epoch.
    pub epoch_unix_ns: Option<i64>,
    /// The fire.
    pub fire: Fire,
    /// Fire uncertainty in seconds.
    pub fire_uncertainty_s: Option<f64>,
    /// Why it is absent.
    pub fire_uncertainty_note: Option<String>,
    /// The fault as executed.
    pub fault: FaultProof,
    /// First successful direct inference minus fire.
    pub outage_s: Option<f64>,
    /// Why it is absent.
    pub outage_note: Option<String>,
    /// New main process's start minus fire.
    pub container_start_s: Option<f64>,
    /// Why it is absent.
    pub container_start_note: Option<String>,
    /// Recovery entry minus anchor, against the baseline before the fault.
    pub ttr_pre_fault_s: Option<f64>,
    /// Why it is absent, or a remark.
    pub ttr_pre_fault_note: Option<String>,
    /// Where service did not recover: the time up to which it was watched, from the anchor.
    pub ttr_censored_at_s: Option<f64>,
    /// Recovery entry minus anchor, against the degraded plateau.
    pub ttr_equilibrium_s: Option<f64>,
    /// Why it is absent.
    pub equilibrium_note: Option<String>,
    /// Lost over all requests in flight at the fire.
    pub in_flight_loss_fraction: Option<f64>,
    /// Why it is absent, or a remark.
    pub in_flight_loss_note: Option<String>,
    /// Goodput lost until recovery, in seconds of full baseline service.
    pub integrated_goodput_deficit: Option<f64>,
    /// Why it is absent.
    pub integrated_goodput_deficit_note: Option<String>,
    /// End-to-end p95 of completed requests of the fault window.
    pub fault_window_e2e_p95_ms: Option<f64>,
    /// Why it is absent.
    pub fault_window_e2e_p95_note: Option<String>,
    /// End-to-end p95 of fault-window requests that survivors served.
    pub survivor_p95_ms: Option<f64>,
    /// Why it is absent.
    pub survivor_p95_note: Option<String>,
    /// Whether there is no replica that could survive.
    pub survivor_cohort_absent: bool,
    /// Errors of in-flight requests by class, determinate and indeterminate together.
    pub in_flight_errored_by_class: BTreeMap<String, u64>,
    /// In-flight requests whose terminal event lies in the indeterminate zone.
    pub in_flight_indeterminate: Option<u64>,
    /// In-flight requests whose loss (or survival) is certain, by outcome.
    pub in_flight_determinate: Option<InFlightCounts>,
    /// In-flight accounting in full.
    pub in_flight: Option<InFlight>,
    /// Why there is none.
    pub in_flight_note: Option<String>,
    /// Outcomes of the requests intended within the outage.
    pub outage_outcomes: Option<OutageOutcomes>,
    /// Why there are none.
    pub outage_outcomes_note: Option<String>,
    /// Windows that the run has, in the method's order.
    pub windows: Vec<WindowAnalysis>,
    /// Recovery in full.
    pub recovery: Recovery,
    /// Where the time went.
    pub decomposition: Decomposition,
    /// Receive-path checks by window.
    pub receive_path: BTreeMap<String, ReceivePath>,
    /// Whether content events equal the server's own token count on every completed request that
    /// reports one; `None` if none does.
    pub inter_chunk_is_inter_token: Option<bool>,
    /// Completed requests that report the server's own token count.
    pub token_verified_requests: u64,
    /// The client's fitness.
    pub client: ClientAnalysis,
    /// Routing shares.
    pub share: ShareAnalysis,
    /// Waiting queues by replica.
    pub waiting: BTreeMap<String, WaitingAnalysis>,
    /// Accelerator fingerprints.
    pub fingerprint: FingerprintAnalysis,
    /// Lives of the replicas.
    pub replicas: Vec<ReplicaLives>,
    /// Span from fire to the last victim-bound request (gate G4), in seconds.
    pub staleness_window_s: Option<f64>,
    /// Requests bound for a victim within the outage.
    pub staleness_victim_bound_requests: Option<u64>,
    /// Why staleness figures are absent.
    pub staleness_note: Option<String>,
    /// Caveats recorded during the run.
    pub notes: Vec<String>,
    /// The run second by second.
    pub timeline: Vec<Second>,
}
