//! Requests in flight at the fire, and all requests intended within the outage.

use std::collections::BTreeMap;

use blackstart_plan::Plan;
use blackstart_record::{Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::share::served_by;
use crate::time::millis;
use crate::windows::{error_class, outcome_counts};

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

/// Key of requests whose replica is not known.
pub(crate) const UNATTRIBUTED: &str = "unattributed";

impl InFlightCounts {
    pub(crate) fn add(&mut self, outcome: Outcome) {
        self.total += 1;
        match outcome {
            Outcome::Completed => self.completed += 1,
            Outcome::Errored => self.errored += 1,
            Outcome::Censored => self.censored += 1,
        }
    }

    /// Errored or censored.
    pub fn lost(&self) -> u64 {
        self.errored + self.censored
    }
}

impl FlightPhases {
    /// Counts a request by how far it had come at `at_ns`.
    fn add(&mut self, r: &RequestRecord, at_ns: i64) {
        let by = |stamp: Option<i64>| stamp.is_some_and(|t| t <= at_ns);
        if by(r.first_token_ns) {
            self.streaming += 1;
        } else if by(r.headers_ns) {
            self.accepted_no_token += 1;
        } else {
            self.no_response += 1;
        }
    }
}

/// Whether a request counts as in flight at the fire: `Some(true)` = its terminal event lies within
/// the indeterminate zone, `Some(false)` = clearly after the fire, `None` = it was not in flight.
pub(crate) fn is_in_flight(r: &RequestRecord, fire_ns: i64, zone_ns: i64) -> Option<bool> {
    let before = r.dispatched_ns.is_some_and(|d| d < fire_ns);
    let near = (r.ended_ns - fire_ns).abs() <= zone_ns;
    (before && (r.ended_ns > fire_ns || near)).then_some(near)
}

/// In-flight accounting (§4): requests dispatched before the fire and not terminal at it. A request
/// whose terminal event lies within `zone_ns` of the fire, on either side of it, is in the accounting
/// as indeterminate: it can neither be called lost to the fault nor spared by it.
///
/// Worked example: fire 100, zone 5; requests dispatched at 90 and ended at 97, 103 and 150 →
/// two indeterminate, one determinate. One that ended at 94 is not in flight.
pub(crate) fn in_flight(
    plan: &Plan,
    requests: &[RequestRecord],
    fire_ns: i64,
    zone_ns: i64,
) -> InFlight {
    let mut flight = InFlight {
        all: InFlightCounts::default(),
        determinate: InFlightCounts::default(),
        indeterminate: InFlightCounts::default(),
        errored_by_class: BTreeMap::new(),
        by_replica: BTreeMap::new(),
        at_fire: FlightPhases::default(),
        tokens_lost: 0,
        tokens_undelivered: plan.load.ignore_eos.then_some(0),
        loss_fraction: None,
        note: None,
    };
    for r in requests {
        let Some(near) = is_in_flight(r, fire_ns, zone_ns) else {
            continue;
        };
        let replica = served_by(plan, r).unwrap_or(UNATTRIBUTED);
        let group = flight.by_replica.entry(replica.to_owned()).or_default();
        group.counts.add(r.outcome);
        group.indeterminate += u64::from(near);
        flight.all.add(r.outcome);
        if near {
            flight.indeterminate.add(r.outcome);
        } else {
            flight.determinate.add(r.outcome);
        }
        if r.outcome == Outcome::Errored {
            for classes in [&mut group.errored_by_class, &mut flight.errored_by_class] {
                *classes.entry(error_class(r).to_owned()).or_default() += 1;
            }
        }
        flight.at_fire.add(r, fire_ns);
        if r.outcome != Outcome::Completed {
            let received = u64::from(r.completion_tokens.unwrap_or(r.content_events));
            flight.tokens_lost += received;
            if let Some(owed) = &mut flight.tokens_undelivered {
                *owed += u64::from(plan.load.max_tokens).saturating_sub(received);
            }
        }
    }
    if flight.all.total == 0 {
        flight.note = Some("no request was in flight at the fire".to_owned());
    } else {
        flight.loss_fraction = Some(flight.all.lost() as f64 / flight.all.total as f64);
        if flight.indeterminate.total > 0 {
            flight.note = Some(format!(
                "{} of {} ended within the indeterminate zone of {:.3} ms around the fire",
                flight.indeterminate.total,
                flight.all.total,
                millis(zone_ns)
            ));
        }
    }
    flight
}

/// Outcomes of the requests intended within the outage.
pub(crate) fn outage_outcomes(requests: &[RequestRecord], outage: Span) -> OutageOutcomes {
    let inside = || requests.iter().filter(|r| outage.holds(r));
    let counts = outcome_counts(inside());
    let mut censored_by_phase = FlightPhases::default();
    for r in inside().filter(|r| r.outcome == Outcome::Censored) {
        censored_by_phase.add(r, r.ended_ns);
    }
    OutageOutcomes {
        total: counts.scheduled,
        completed: counts.completed,
        errored: counts.errored,
        censored: counts.censored,
        errored_by_class: counts.errored_by_class,
        censored_by_phase,
    }
}
