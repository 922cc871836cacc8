//! Named scalars that gates read.

use std::collections::BTreeMap;

use blackstart_plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inflight::UNATTRIBUTED;
use crate::{RunAnalysis, WindowName};

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

impl Scalars {
    fn put(&mut self, name: impl Into<String>, unit: &str, value: Option<f64>, absence: &str) {
        self.scalars.insert(
            name.into(),
            Scalar {
                value,
                unit: unit.to_owned(),
                absence: value.is_none().then(|| absence.to_owned()),
            },
        );
    }

    /// The value of a scalar; `None` when it is not measured or there is no such name.
    pub fn value(&self, name: &str) -> Option<f64> {
        self.scalars.get(name).and_then(|s| s.value)
    }
}

/// The named figures of a run, for gates. Units are UCUM; `1` is a pure number.
pub fn scalars(plan: &Plan, run: &RunAnalysis) -> Scalars {
    let mut all = Scalars::default();
    share(&mut all, plan, run);
    client(&mut all, run);
    waiting(&mut all, run);
    outcome(&mut all, run);
    fault(&mut all, plan, run);
    all
}

/// A reason, or a sentence that at least says that none was recorded.
fn or_unsaid(note: &Option<String>) -> &str {
    note.as_deref().unwrap_or("not measured in this run")
}

fn share(all: &mut Scalars, plan: &Plan, run: &RunAnalysis) {
    let share = &run.share;
    let why = or_unsaid(&share.note);
    for replica in &plan.target.replicas {
        all.put(
            format!("share.{}", replica.id),
            "%",
            share.percent.get(&replica.id).copied(),
            why,
        );
    }
    all.put(
        "share.replicas_seen",
        "1",
        share.replicas_seen.map(|n| n as f64),
        why,
    );
    all.put(
        "share.replicas_declared",
        "1",
        Some(share.replicas_declared as f64),
        "",
    );
    all.put(
        "routing.per_request",
        "1",
        share.per_request.map(|yes| if yes { 1.0 } else { 0.0 }),
        "one replica addressed directly: nothing routes",
    );
}

fn client(all: &mut Scalars, run: &RunAnalysis) {
    let client = &run.client;
    let skew = "no request was handed to a connection";
    all.put("client.skew_us_p50", "us", client.skew_us_p50, skew);
    all.put("client.skew_us_p99", "us", client.skew_us_p99, skew);
    all.put("client.skew_us_max", "us", client.skew_us_max, skew);
    all.put(
        "client.undispatched",
        "1",
        (run.requests_recorded > 0).then_some(client.undispatched as f64),
        "the run has no request records",
    );
    all.put(
        "client.cpu_percent_max_5s",
        "%",
        client.cpu_percent_max_5s,
        or_unsaid(&client.cpu_note),
    );
    all.put(
        "client.cpu_windows",
        "1",
        Some(client.cpu_windows as f64),
        "",
    );
    let stall = or_unsaid(&client.stall_note);
    all.put("client.stall_us_p99", "us", client.stall_us_p99, stall);
    all.put("client.stall_us_max", "us", client.stall_us_max, stall);
}

fn waiting(all: &mut Scalars, run: &RunAnalysis) {
    for (replica, queue) in &run.waiting {
        all.put(
            format!("waiting.mean.{replica}"),
            "1",
            queue.mean,
            or_unsaid(&queue.note),
        );
        all.put(
            format!("waiting.samples.{replica}"),
            "1",
            Some(queue.samples as f64),
            "",
        );
        all.put(
            format!("waiting.scrape_errors.{replica}"),
            "1",
            Some(queue.scrape_errors as f64),
            "",
        );
    }
}

fn outcome(all: &mut Scalars, run: &RunAnalysis) {
    let baseline = run.windows.iter().find(|w| w.name == WindowName::Baseline);
    all.put(
        "goodput.baseline",
        "1",
        baseline.and_then(|w| w.slo.goodput),
        "the baseline window holds no request; the client timeout may be as long as the baseline phase",
    );
    all.put("outage_s", "s", run.outage_s, or_unsaid(&run.outage_note));
    all.put(
        "container_start_s",
        "s",
        run.container_start_s,
        or_unsaid(&run.container_start_note),
    );
    all.put(
        "ttr_pre_fault_s",
        "s",
        run.ttr_pre_fault_s,
        or_unsaid(&run.ttr_pre_fault_note),
    );
    all.put(
        "ttr_equilibrium_s",
        "s",
        run.ttr_equilibrium_s,
        or_unsaid(&run.equilibrium_note),
    );
    all.put(
        "in_flight_loss_fraction",
        "1",
        run.in_flight_loss_fraction,
        or_unsaid(&run.in_flight_loss_note),
    );
    all.put(
        "integrated_goodput_deficit",
        "s",
        run.integrated_goodput_deficit,
        or_unsaid(&run.integrated_goodput_deficit_note),
    );
    all.put(
        "fault_window_e2e_p95_ms",
        "ms",
        run.fault_window_e2e_p95_ms,
        or_unsaid(&run.fault_window_e2e_p95_note),
    );
    all.put(
        "unexplained_percent",
        "%",
        run.decomposition
            .partition
            .as_ref()
            .map(|p| p.unexplained_percent),
        "there is no timeline from fire to goodput",
    );
}

fn fault(all: &mut Scalars, plan: &Plan, run: &RunAnalysis) {
    let (errored, why) = victim_errored(run);
    all.put("inflight.victim_errored", "1", errored, &why);
    let stale = or_unsaid(&run.staleness_note);
    all.put("staleness.window_s", "s", run.staleness_window_s, stale);
    all.put(
        "staleness.victim_bound_requests",
        "1",
        run.staleness_victim_bound_requests.map(|n| n as f64),
        stale,
    );
    all.put(
        "target.accelerators_declared",
        "1",
        Some(if run.fingerprint.declared { 1.0 } else { 0.0 }),
        "",
    );
    all.put(
        "fingerprint.expected",
        "1",
        run.fingerprint
            .declared
            .then_some(run.fingerprint.expected as f64),
        "the plan declares no accelerators",
    );
    let read = run.fingerprint.sources > 0;
    let why = or_unsaid(&run.fingerprint.note);
    all.put(
        "fingerprint.sources",
        "1",
        read.then_some(run.fingerprint.sources as f64),
        why,
    );
    all.put(
        "fingerprint.distinct",
        "1",
        read.then_some(run.fingerprint.fingerprints.len() as f64),
        why,
    );
    let fire = or_unsaid(&run.fire.note);
    all.put("fire.error_ms", "ms", run.fire.fire_error_ms, fire);
    all.put("fire_uncertainty_s", "s", run.fire_uncertainty_s, fire);
    all.put(
        "fire.error_limit_ms",
        "ms",
        Some(plan.method.fire_error_max_ns as f64 / 1e6),
        "",
    );
}

/// Errored in-flight requests of the victims. Requests without a known replica could be theirs, so
/// that the figure is absent as soon as one of those errored.
fn victim_errored(run: &RunAnalysis) -> (Option<f64>, String) {
    let Some(flight) = &run.in_flight else {
        return (None, or_unsaid(&run.in_flight_note).to_owned());
    };
    let unknown = flight
        .by_replica
        .get(UNATTRIBUTED)
        .map_or(0, |g| g.counts.errored);
    if unknown > 0 {
        return (
            None,
            format!("{unknown} errored in-flight requests do not say which replica they went to"),
        );
    }
    let sum: u64 = run
        .fault
        .victims
        .iter()
        .filter_map(|v| flight.by_replica.get(v))
        .map(|g| g.counts.errored)
        .sum();
    (Some(sum as f64), String::new())
}
