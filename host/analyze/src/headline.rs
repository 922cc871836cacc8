//! The few figures of a run that a campaign summarises, each with the reason of its absence.

use blackstart_plan::Plan;
use blackstart_record::{Outcome, RequestRecord};

use crate::distribution::Collector;
use crate::readiness::Readiness;
use crate::share::served_by;
use crate::time::seconds;
use crate::{Decomposition, Detection, Fire, Recovery, RecoveryStatus, Segment, Span};

/// Figures that the campaign summarises.
#[derive(Debug, Default)]
pub(crate) struct Headline {
    pub(crate) outage_s: Option<f64>,
    pub(crate) outage_censored_at_s: Option<f64>,
    pub(crate) outage_note: Option<String>,
    pub(crate) outage_uncertainty_s: Option<f64>,
    pub(crate) container_start_s: Option<f64>,
    pub(crate) container_start_censored_at_s: Option<f64>,
    pub(crate) container_start_note: Option<String>,
    pub(crate) container_start_uncertainty_s: Option<f64>,
    pub(crate) ttr_pre_fault_s: Option<f64>,
    pub(crate) ttr_pre_fault_note: Option<String>,
    pub(crate) ttr_censored_at_s: Option<f64>,
    pub(crate) ttr_uncertainty_s: Option<f64>,
    pub(crate) goodput_lead_note: Option<String>,
    pub(crate) ttr_equilibrium_s: Option<f64>,
    pub(crate) ttr_equilibrium_uncertainty_s: Option<f64>,
    pub(crate) ttr_equilibrium_censored_at_s: Option<f64>,
    pub(crate) equilibrium_note: Option<String>,
    pub(crate) deficit: Option<f64>,
    pub(crate) deficit_note: Option<String>,
    pub(crate) survivor_p95_ms: Option<f64>,
    pub(crate) survivor_p95_note: Option<String>,
    pub(crate) survivor_cohort_absent: bool,
}

impl Headline {
    pub(crate) fn of(
        plan: &Plan,
        fire: &Fire,
        recovery: &Recovery,
        decomposition: &Decomposition,
        direct: &Readiness,
        requests: &[RequestRecord],
    ) -> Self {
        let mut all = Self::default();
        all.fill_segments(decomposition);
        all.fill_recovery(fire, recovery);
        all.fill_lead(plan, fire, recovery, direct);
        all.fill_survivors(plan, requests);
        all
    }

    fn fill_segments(&mut self, decomposition: &Decomposition) {
        let segment = |name: &str| decomposition.segments.iter().find(|s| s.name == name);
        if let Some(ready) = segment("replica_ready") {
            self.outage_s = ready.duration_s;
            self.outage_uncertainty_s = ready.uncertainty_s;
            self.outage_note = absence(ready);
            self.outage_censored_at_s = ready.censored_at_s;
        }
        if let Some(start) = segment("container_start") {
            self.container_start_s = start.duration_s;
            self.container_start_uncertainty_s = start.uncertainty_s;
            self.container_start_note = absence(start);
            self.container_start_censored_at_s = start.censored_at_s;
        }
    }

    /// Goodput can be "back" before the replica is: the detector's window leads, so that it counts
    /// requests that are sent up to R later.
    fn fill_lead(&mut self, plan: &Plan, fire: &Fire, recovery: &Recovery, direct: &Readiness) {
        let (Some(entry_ns), Some(ready_ns), Some(_)) =
            (recovery.pre_fault.entry_ns, direct.ready_ns, fire.actual_ns)
        else {
            return;
        };
        if entry_ns < ready_ns && self.ttr_pre_fault_s.is_some() {
            let rule = &plan.method.recovery;
            self.goodput_lead_note = Some(format!(
                "goodput counts as back before the replica answered, because the detector looks {} s ahead and {} % of that are enough",
                seconds(rule.bucket_ns * i64::from(rule.window_buckets)),
                rule.entry_percent
            ));
        }
    }

    fn fill_recovery(&mut self, fire: &Fire, recovery: &Recovery) {
        if fire.unobserved {
            self.ttr_pre_fault_note.clone_from(&fire.note);
            self.equilibrium_note.clone_from(&fire.note);
            self.deficit_note.clone_from(&fire.note);
            return;
        }
        if !fire.fired {
            // Without a fault there is nothing to recover from: the detector's silence is the result,
            // and its alarm is a false one.
            let said = match recovery.pre_fault.status {
                RecoveryStatus::NoOutage => "no outage found",
                RecoveryStatus::NotEstimable => "not estimable",
                _ => {
                    "no fault was executed, but the detector found a loss of service: a false alarm, or a service that failed by itself"
                }
            };
            let note = Some(said.to_owned());
            self.ttr_pre_fault_note.clone_from(&note);
            self.equilibrium_note.clone_from(&note);
            self.deficit_note = note;
            return;
        }
        let pre = &recovery.pre_fault;
        self.ttr_pre_fault_s = pre.ttr_s;
        // An anchor that is the planned instant is exact; one that is the fire is known as the fire is.
        let anchor_ns = if fire.anchor_ns == fire.planned_ns {
            0
        } else {
            fire.fire_uncertainty_ns.unwrap_or(0)
        };
        let uncertainty_s = recovery.resolution_s + seconds(anchor_ns);
        self.ttr_uncertainty_s = pre.ttr_s.map(|_| uncertainty_s);
        self.ttr_pre_fault_note = match (pre.status, &pre.note) {
            (RecoveryStatus::NoOutage, Some(note)) => Some(format!(
                "the fault was executed, but the detector did not see it: {note}"
            )),
            (_, note) => note.clone(),
        };
        self.ttr_censored_at_s = censored_at_s(pre, recovery, fire);
        let equilibrium = &recovery.equilibrium;
        self.ttr_equilibrium_censored_at_s = equilibrium
            .detection
            .as_ref()
            .and_then(|d| censored_at_s(d, recovery, fire));
        self.ttr_equilibrium_s = equilibrium.detection.as_ref().and_then(|d| d.ttr_s);
        self.ttr_equilibrium_uncertainty_s = self.ttr_equilibrium_s.map(|_| uncertainty_s);
        self.equilibrium_note = equilibrium
            .note
            .clone()
            .or_else(|| equilibrium.detection.as_ref().and_then(|d| d.note.clone()));
        self.deficit = recovery.deficit.integrated_goodput_deficit;
        self.deficit_note.clone_from(&recovery.deficit.note);
    }

    /// End-to-end p95 of fault-window requests that a replica served which the fault did not harm.
    fn fill_survivors(&mut self, plan: &Plan, requests: &[RequestRecord]) {
        let Some(fault) = &plan.fault else {
            self.survivor_p95_note = Some("the plan has no fault".to_owned());
            return;
        };
        let survives = |id: &str| !fault.victims.iter().any(|v| v == id);
        if !plan.target.replicas.iter().any(|r| survives(&r.id)) {
            self.survivor_cohort_absent = true;
            self.survivor_p95_note = Some(if plan.target.replicas.len() == 1 {
                "one replica: no survivor cohort".to_owned()
            } else {
                "every replica is a victim: no survivor cohort".to_owned()
            });
            return;
        }
        let window = Span {
            start_ns: fault.fire_at_ns,
            end_ns: plan.phases.fault_window_end_ns(),
        };
        let mut collector = Collector::new();
        for r in requests.iter().filter(|r| window.holds(r)) {
            if r.outcome == Outcome::Completed && served_by(plan, r).is_some_and(survives) {
                collector.record_ns(r.observed_ns());
            }
        }
        self.survivor_p95_ms = collector.finish("").p95;
        if self.survivor_p95_ms.is_none() {
            self.survivor_p95_note = Some(
                "no completed request of the fault window names a survivor as its replica"
                    .to_owned(),
            );
        }
    }
}

/// Up to when service was seen not to be back, where the detector found no entry.
pub(crate) fn censored_until(detection: &Detection, recovery: &Recovery) -> Option<i64> {
    match detection.status {
        RecoveryStatus::NotRecovered => Some(recovery.watched_until_ns),
        RecoveryStatus::Unconfirmed => detection.candidate_ns,
        _ => None,
    }
}

/// The same from the anchor, in seconds; a watch that ended before it bounds nothing.
fn censored_at_s(detection: &Detection, recovery: &Recovery, fire: &Fire) -> Option<f64> {
    censored_until(detection, recovery)
        .map(|until| seconds(until - fire.anchor_ns))
        .filter(|s| *s > 0.0)
}

fn absence(segment: &Segment) -> Option<String> {
    if segment.measured {
        None
    } else {
        segment.note.clone()
    }
}

/// Staleness of the route to a dead endpoint (gate G4).
#[derive(Debug, Default)]
pub(crate) struct Staleness {
    pub(crate) window_s: Option<f64>,
    pub(crate) victim_bound_requests: Option<u64>,
    pub(crate) note: Option<String>,
}

impl Staleness {
    /// Requests within the outage that were bound for a victim, and the span from the fire to the last
    /// of them. Measurable only where each request's replica is known.
    pub(crate) fn of(plan: &Plan, requests: &[RequestRecord], outage: Option<Span>) -> Self {
        let absent = |note: &str| Self {
            note: Some(note.to_owned()),
            ..Self::default()
        };
        let Some(fault) = &plan.fault else {
            return absent("the plan has no fault");
        };
        if plan.addressed_directly() {
            return absent("one replica addressed directly: there is no route to go stale");
        }
        let Some(outage) = outage else {
            return absent("the outage is not measured");
        };
        let inside: Vec<&RequestRecord> = requests.iter().filter(|r| outage.holds(r)).collect();
        let bound: Vec<i64> = inside
            .iter()
            .filter(|r| {
                r.replica
                    .as_ref()
                    .is_some_and(|id| fault.victims.contains(id))
            })
            .filter_map(|r| r.dispatched_ns)
            .collect();
        if bound.is_empty() && inside.iter().any(|r| r.replica.is_none()) {
            return absent(
                "requests of the outage do not say which replica they were bound for: a dead endpoint sends no response header",
            );
        }
        Self {
            window_s: Some(
                bound
                    .iter()
                    .max()
                    .map_or(0.0, |last| seconds(last - outage.start_ns)),
            ),
            victim_bound_requests: Some(bound.len() as u64),
            note: None,
        }
    }
}
