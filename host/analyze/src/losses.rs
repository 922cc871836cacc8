//! Every request of a run in exactly one group, so that losses add up.

use blackstart_plan::Plan;
use blackstart_record::RequestRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::inflight::is_in_flight;
use crate::{Fire, InFlightCounts, Span};

/// Requests of a run, and how many were lost (errored or censored).
///
/// `planned = all.total + never_sent + unrecorded`, and where there is a split its five groups add up
/// to `all`, outcome by outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RequestLosses {
    /// Requests that the plan schedules.
    pub planned: u64,
    /// Requests that were meant to be sent while the run was watched, by outcome; warm-up and
    /// cooldown included.
    pub all: InFlightCounts,
    /// Of these, errored or censored.
    pub lost: u64,
    /// Requests that nobody sent, since the run was cut off before their time. They are not lost.
    pub never_sent: u64,
    /// Requests without a record.
    pub unrecorded: u64,
    /// The same by when they met the fault; `None` where the fire is not known.
    pub split: Option<LossSplit>,
    /// Why there is none, or a remark.
    pub note: Option<String>,
}

/// Requests by when they met the fault. Each request is in the first group that fits it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LossSplit {
    /// In flight at the fire, determinate and indeterminate together.
    pub in_flight: InFlightCounts,
    /// Ended before the fire.
    pub before_fire: InFlightCounts,
    /// Meant to be sent before the fire, but not yet sent at it.
    pub waiting_at_fire: InFlightCounts,
    /// Meant to be sent within the outage; where the replica never answered again, from the fire on.
    pub during_outage: InFlightCounts,
    /// Meant to be sent later; where no outage was measured, from the fire on.
    pub after_outage: InFlightCounts,
}

/// What the accounting is made from.
pub(crate) struct LossInput<'a> {
    pub(crate) plan: &'a Plan,
    /// Requests that were meant to be sent while the run was watched.
    pub(crate) requests: &'a [RequestRecord],
    pub(crate) planned: u64,
    /// Requests with a record.
    pub(crate) recorded: u64,
    pub(crate) fire: &'a Fire,
    pub(crate) outage: Option<Span>,
    /// Whether the outage began, but had no end while the run was watched.
    pub(crate) still_out: bool,
}

/// The accounting of a run.
///
/// Worked example: fire 100, outage until 200. Dispatched at 90 and ended at 150: in flight. Ended at
/// 80: before. Intended at 99 and dispatched at 101: waiting. Intended at 150: during. At 250: after.
pub(crate) fn analyze(input: &LossInput<'_>) -> RequestLosses {
    let mut all = InFlightCounts::default();
    input.requests.iter().for_each(|r| all.add(r.outcome));
    let zone = input.fire.actual_ns.zip(input.fire.indeterminate_zone_ns);
    let split = zone.map(|(fire_ns, zone_ns)| {
        let end_ns = match (input.outage, input.still_out) {
            (Some(outage), _) => outage.end_ns,
            (None, true) => i64::MAX,
            (None, false) => fire_ns,
        };
        let mut split = LossSplit::default();
        for r in input.requests {
            let group = if is_in_flight(r, fire_ns, zone_ns).is_some() {
                &mut split.in_flight
            } else if r.ended_ns <= fire_ns {
                &mut split.before_fire
            } else if r.intended_ns < fire_ns {
                &mut split.waiting_at_fire
            } else if r.intended_ns < end_ns {
                &mut split.during_outage
            } else {
                &mut split.after_outage
            };
            group.add(r.outcome);
        }
        split
    });
    let note = match (&split, input.outage, input.still_out) {
        (None, ..) if input.plan.fault.is_none() => Some("the plan has no fault".to_owned()),
        (None, ..) => input.fire.note.clone(),
        (Some(_), None, true) => Some(
            "the replica did not answer again, so every later request counts as meant for the outage"
                .to_owned(),
        ),
        (Some(_), None, false) => Some(
            "no outage was measured, so every request from the fire on counts as after it"
                .to_owned(),
        ),
        (Some(_), Some(_), _) => None,
    };
    RequestLosses {
        planned: input.planned,
        lost: all.lost(),
        never_sent: input.recorded.saturating_sub(all.total),
        unrecorded: input.planned.saturating_sub(input.recorded),
        all,
        split,
        note,
    }
}

impl LossSplit {
    /// The groups in the order of time, with the words for them.
    pub fn groups(&self) -> [(&'static str, InFlightCounts); 5] {
        [
            ("before the fire", self.before_fire),
            ("in flight at the fire", self.in_flight),
            ("waiting to be sent at the fire", self.waiting_at_fire),
            ("during the outage", self.during_outage),
            ("after it", self.after_outage),
        ]
    }
}

#[cfg(test)]
mod tests {
    use blackstart_record::Outcome;

    use super::*;

    #[test]
    fn groups_are_all_there_is() {
        let one = |outcome| {
            let mut c = InFlightCounts::default();
            c.add(outcome);
            c
        };
        let split = LossSplit {
            in_flight: one(Outcome::Errored),
            before_fire: one(Outcome::Completed),
            waiting_at_fire: one(Outcome::Censored),
            during_outage: one(Outcome::Errored),
            after_outage: one(Outcome::Completed),
        };
        let lost: u64 = split.groups().iter().map(|(_, c)| c.lost()).sum();
        assert_eq!(lost, 3);
    }
}
