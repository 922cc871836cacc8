//! One run: every figure of the method, from plan and records.

use std::collections::BTreeMap;

use blackstart_plan::{Plan, RunPlan};
use blackstart_record::{Event, EventKind, Outcome, ProbePath, RequestRecord, RunRecords};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::decomposition::DecompositionInput;
use crate::headline::{Headline, Staleness};
use crate::losses::LossInput;
use crate::readiness::{Readiness, readiness};
use crate::recovery::RecoveryInput;
use crate::slo::Latencies;
use crate::time::seconds;
use crate::{
    AnalyzeError, Span, WindowName, client, control, cross_check, decomposition, effects,
    fingerprint, fire, inflight, input, losses, receive_path, recovery, replicas, share, timeline,
    waiting, watch, windows,
};
use crate::{
    ClientAnalysis, Decomposition, FaultProof, FingerprintAnalysis, Fire, InFlight, InFlightCounts,
    OutageOutcomes, OutcomeCounts, ReceivePath, Recovery, ReplicaLives, RequestLosses, Second,
    ShareAnalysis, WaitingAnalysis, WindowAnalysis,
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
    /// Until when the run was watched, in run time, where it was cut off before the end of its load.
    pub cut_ns: Option<i64>,
    /// Requests that the plan schedules.
    pub requests_planned: u64,
    /// Requests with a record.
    pub requests_recorded: u64,
    /// Outcomes of the whole run, warm-up and cooldown included.
    pub counts: OutcomeCounts,
    /// Every request in exactly one group, and how many were lost.
    pub losses: RequestLosses,
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
    /// In a negative control, what shows that service was lost all the same; `None` = nothing does.
    pub control_outage: Option<String>,
    /// First successful direct inference minus fire.
    pub outage_s: Option<f64>,
    /// The true outage lies within ± this of it: the fire's uncertainty, and the gap back to the send
    /// of the last probe that failed.
    pub outage_uncertainty_s: Option<f64>,
    /// Where the replica never served again: the time up to which it was watched, from the fire.
    pub outage_censored_at_s: Option<f64>,
    /// Why it is absent.
    pub outage_note: Option<String>,
    /// New main process's start minus fire.
    pub container_start_s: Option<f64>,
    /// The true value lies within ± this of it.
    pub container_start_uncertainty_s: Option<f64>,
    /// Where it was never started again: the time up to which it was watched, from the fire.
    pub container_start_censored_at_s: Option<f64>,
    /// Why it is absent.
    pub container_start_note: Option<String>,
    /// Recovery entry minus anchor, against the baseline before the fault.
    pub ttr_pre_fault_s: Option<f64>,
    /// The true time lies within ± this of it: the detector's bucket width, and the fire's uncertainty
    /// where the anchor is the fire.
    pub ttr_pre_fault_uncertainty_s: Option<f64>,
    /// Why it is absent, or a remark.
    pub ttr_pre_fault_note: Option<String>,
    /// Where service did not recover: the time up to which it was watched, from the anchor.
    pub ttr_censored_at_s: Option<f64>,
    /// Why goodput counts as back before the replica was ready, where it does.
    pub goodput_lead_note: Option<String>,
    /// `recovery_cross_check`: that the change-points disagree with the detector, with both times and
    /// the reason; `None` = they agree, or one of them cannot tell ([`Recovery::cross_check`]).
    pub recovery_cross_check: Option<String>,
    /// Recovery entry minus anchor, against the degraded plateau.
    pub ttr_equilibrium_s: Option<f64>,
    /// The true time lies within ± this of it.
    pub ttr_equilibrium_uncertainty_s: Option<f64>,
    /// Where service did not recover to that level: the time up to which it was watched, from the
    /// anchor.
    pub ttr_equilibrium_censored_at_s: Option<f64>,
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

/// Analyses one run. Pure: the same plan and records give the same figures.
///
/// # Errors
/// When the plan's numbers do not define the method, or a record holds a time that no run can have.
/// Missing evidence is no error: the figure is absent, with a reason.
pub fn analyze_run(
    plan: &Plan,
    run: &RunPlan,
    records: &RunRecords,
) -> Result<RunAnalysis, AnalyzeError> {
    input::check_plan(plan)?;
    input::check_records(records)?;
    let watch = watch::watch(plan, records);
    let (events, requests) = (
        watch.events(&records.events),
        watch.requests(&records.requests),
    );
    let (events, requests) = (&events[..], &requests[..]);
    let fire = fire::analyze(plan, events, watch);
    let baseline = windows::baseline_span(plan, fire.anchor_ns);
    let recovery = recovery::analyze(&RecoveryInput {
        plan,
        requests,
        anchor_ns: fire.anchor_ns,
        fire_ns: fire.actual_ns,
        baseline,
        watch,
    });
    let replicas = replicas::analyze(plan, events, fire.actual_ns);
    let epoch_unix_ns = events.iter().find_map(|e| match e.kind {
        EventKind::Epoch { unix_ns, .. } => Some(unix_ns),
        _ => None,
    });
    let (direct, service) = readiness_of(plan, events, &fire);
    let decomposition = decomposition::analyze(&DecompositionInput {
        plan,
        records,
        fire: &fire,
        recovery: &recovery,
        replicas: &replicas,
        epoch_unix_ns,
        direct: &direct,
        service: &service,
    });
    let outage = fire
        .actual_ns
        .zip(direct.ready_ns)
        .map(|(start_ns, end_ns)| Span {
            start_ns,
            end_ns: end_ns.max(start_ns),
        });
    let baseline_latencies = Latencies::of(requests.iter().filter(|r| baseline.holds(r)));
    let spans = windows::spans(plan, &fire, recovery.pre_fault.entry_ns, outage, watch);
    let mut all_windows = Vec::new();
    let mut receive_path = BTreeMap::new();
    for (name, span) in spans {
        let window = windows::analyze(
            plan,
            requests,
            &records.gaps,
            name,
            span,
            &baseline_latencies,
        );
        let latencies = Latencies::of(requests.iter().filter(|r| span.holds(r)));
        let path = receive_path::analyze(plan, records, span, &latencies.ttft_ns);
        receive_path.insert(name.name().to_owned(), path);
        all_windows.push(window);
    }
    let headline = Headline::of(plan, &fire, &recovery, &decomposition, &direct, requests);
    let in_flight = fire
        .actual_ns
        .zip(fire.indeterminate_zone_ns)
        .map(|(at, zone)| inflight::in_flight(plan, requests, at, zone));
    let outage_outcomes = outage.map(|o| inflight::outage_outcomes(requests, o));
    let fault_window = all_windows.iter().find(|w| w.name == WindowName::Fault);
    let losses = losses::analyze(&LossInput {
        plan,
        requests,
        planned: run.requests,
        recorded: records.requests.len() as u64,
        fire: &fire,
        outage,
        still_out: direct.watched_until_ns.is_some(),
    });
    let staleness = Staleness::of(plan, requests, outage);
    let partial_note = partial_note(events);
    let (inter_chunk_is_inter_token, token_verified_requests) = token_check(requests);
    let no_fire = || {
        fire.note
            .clone()
            .or(Some("the fire instant is not known".to_owned()))
    };
    Ok(RunAnalysis {
        schema_version: RUN_ANALYSIS_SCHEMA_VERSION,
        run: run.run,
        seed: run.seed,
        negative_control: run.negative_control,
        partial: partial_note.is_some(),
        partial_note,
        cut_ns: watch.cut_ns,
        requests_planned: run.requests,
        requests_recorded: records.requests.len() as u64,
        counts: windows::outcome_counts(records.requests.iter()),
        losses,
        epoch_unix_ns,
        fire_uncertainty_s: fire.fire_uncertainty_ns.map(seconds),
        fire_uncertainty_note: if fire.fire_uncertainty_ns.is_none() {
            no_fire()
        } else {
            None
        },
        fault: effects::analyze(plan, run, events),
        control_outage: control::outage(run, events, &fire, &recovery),
        outage_s: headline.outage_s,
        outage_uncertainty_s: headline.outage_uncertainty_s,
        outage_censored_at_s: headline.outage_censored_at_s,
        outage_note: headline.outage_note,
        container_start_s: headline.container_start_s,
        container_start_uncertainty_s: headline.container_start_uncertainty_s,
        container_start_censored_at_s: headline.container_start_censored_at_s,
        container_start_note: headline.container_start_note,
        ttr_pre_fault_s: headline.ttr_pre_fault_s,
        ttr_pre_fault_uncertainty_s: headline.ttr_uncertainty_s,
        ttr_pre_fault_note: headline.ttr_pre_fault_note,
        ttr_censored_at_s: headline.ttr_censored_at_s,
        goodput_lead_note: headline.goodput_lead_note,
        recovery_cross_check: cross_check::flag(&recovery.cross_check),
        ttr_equilibrium_uncertainty_s: headline.ttr_equilibrium_uncertainty_s,
        ttr_equilibrium_s: headline.ttr_equilibrium_s,
        ttr_equilibrium_censored_at_s: headline.ttr_equilibrium_censored_at_s,
        equilibrium_note: headline.equilibrium_note,
        in_flight_loss_fraction: in_flight.as_ref().and_then(|f| f.loss_fraction),
        in_flight_loss_note: match &in_flight {
            Some(flight) => flight.note.clone(),
            None => no_fire(),
        },
        integrated_goodput_deficit: headline.deficit,
        integrated_goodput_deficit_note: headline.deficit_note,
        fault_window_e2e_p95_ms: fault_window.and_then(|w| w.e2e_ms.p95),
        fault_window_e2e_p95_note: match fault_window {
            None => Some("the run has no fault window".to_owned()),
            Some(w) if w.e2e_ms.p95.is_none() => {
                Some("no completed request in the fault window".to_owned())
            }
            Some(_) => None,
        },
        survivor_p95_ms: headline.survivor_p95_ms,
        survivor_p95_note: headline.survivor_p95_note,
        survivor_cohort_absent: headline.survivor_cohort_absent,
        in_flight_errored_by_class: in_flight
            .as_ref()
            .map(|f| f.errored_by_class.clone())
            .unwrap_or_default(),
        in_flight_indeterminate: in_flight.as_ref().map(|f| f.indeterminate.total),
        in_flight_determinate: in_flight.as_ref().map(|f| f.determinate),
        in_flight_note: if in_flight.is_none() { no_fire() } else { None },
        in_flight,
        outage_outcomes_note: if outage_outcomes.is_none() {
            direct.reason.clone().or_else(no_fire)
        } else {
            None
        },
        outage_outcomes,
        windows: all_windows,
        recovery,
        decomposition,
        receive_path,
        inter_chunk_is_inter_token,
        token_verified_requests,
        client: client::analyze(&records.requests, events),
        share: share::analyze(plan, requests, baseline),
        waiting: waiting::analyze(plan, records, baseline),
        fingerprint: fingerprint::analyze(plan, events),
        replicas,
        staleness_window_s: staleness.window_s,
        staleness_victim_bound_requests: staleness.victim_bound_requests,
        staleness_note: staleness.note,
        notes: notes(events),
        timeline: timeline::analyze(plan, requests, watch),
        fire,
    })
}

fn readiness_of(plan: &Plan, events: &[Event], fire: &Fire) -> (Readiness, Readiness) {
    match fire.actual_ns {
        Some(at) => (
            readiness(plan, events, at, ProbePath::Direct),
            readiness(plan, events, at, ProbePath::Service),
        ),
        None => {
            let absent = Readiness {
                ready_ns: None,
                gap_ns: 0,
                watched_until_ns: None,
                reason: fire.note.clone(),
            };
            (absent.clone(), absent)
        }
    }
}

/// Whether the run ended early, and by what.
fn partial_note(events: &[Event]) -> Option<String> {
    for event in events {
        if let EventKind::Interrupted { signal } = &event.kind {
            return Some(format!(
                "interrupted by {signal} at {:.3} s",
                seconds(event.at_ns)
            ));
        }
    }
    let ended = events
        .iter()
        .any(|e| matches!(e.kind, EventKind::LoadEnded { .. }));
    (!ended).then(|| "the end of the load was not recorded".to_owned())
}

/// Content events are tokens only where they equal the server's own count on every completed request
/// that reports one.
fn token_check(requests: &[RequestRecord]) -> (Option<bool>, u64) {
    let (mut verified, mut equal) = (0, 0);
    for r in requests.iter().filter(|r| r.outcome == Outcome::Completed) {
        if let Some(tokens) = r.completion_tokens {
            verified += 1;
            equal += u64::from(tokens == r.content_events);
        }
    }
    ((verified > 0).then_some(verified == equal), verified)
}

fn notes(events: &[Event]) -> Vec<String> {
    events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Note { text } => Some(text.clone()),
            _ => None,
        })
        .take(MAX_NOTES)
        .collect()
}

/// Most caveats that one run carries into its analysis.
const MAX_NOTES: usize = 100;
