//! When the victims served again, by the instrument's own probes.

use blackstart_plan::Plan;
use blackstart_record::{Event, EventKind, ProbeOutcome, ProbePath, ReplicaStep};

/// Readiness of all victims on one path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// First token of the first successful probe of the last victim that came back.
    pub(crate) ready_ns: Option<i64>,
    /// From the last instant at which the victim was known not to serve (the send of the last probe
    /// that failed, or the instant at which the fault was visible) to `ready_ns`: the true instant
    /// lies in between.
    pub(crate) gap_ns: i64,
    /// Where a victim never came back: the last probe that still failed.
    pub(crate) watched_until_ns: Option<i64>,
    /// Why it is absent.
    pub(crate) reason: Option<String>,
}

impl Readiness {
    fn absent(reason: String) -> Self {
        Self {
            ready_ns: None,
            gap_ns: 0,
            watched_until_ns: None,
            reason: Some(reason),
        }
    }
}

/// Probes of a path with the run time at which each ended.
fn probes(events: &[Event], path: ProbePath) -> impl Iterator<Item = (i64, &ProbeOutcome)> {
    events.iter().filter_map(move |e| match &e.kind {
        EventKind::Probe(p) if p.path == path => Some((e.at_ns, p)),
        _ => None,
    })
}

/// Whether a probe concerns the replica; an unnamed direct probe concerns the only one.
fn concerns(plan: &Plan, probe: &ProbeOutcome, victim: &str) -> bool {
    match (&probe.replica, probe.path) {
        (Some(replica), _) => replica == victim,
        (None, ProbePath::Direct) => plan.target.replicas.len() == 1,
        (None, ProbePath::Service) => false,
    }
}

/// The instant from which the fault was visible on the victim's own path: the end of the first direct
/// probe that failed after the fire, or the end of its main process, whichever came first.
fn visible_ns(plan: &Plan, events: &[Event], victim: &str, fire_ns: i64) -> Option<i64> {
    let failed = probes(events, ProbePath::Direct)
        .filter(|(at, p)| *at > fire_ns && !p.ok && concerns(plan, p, victim))
        .map(|(at, _)| at)
        .min();
    let exited = events
        .iter()
        .filter(|e| e.at_ns > fire_ns)
        .filter(|e| {
            matches!(&e.kind, EventKind::Replica(ReplicaStep::Exited { replica, .. }) if replica == victim)
        })
        .map(|e| e.at_ns)
        .min();
    match (failed, exited) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// First successful inference of every victim on `path`, counted only from probes sent after the
/// fault was visible on the victim's own path. With several victims the last one decides.
pub(crate) fn readiness(plan: &Plan, events: &[Event], fire_ns: i64, path: ProbePath) -> Readiness {
    let victims = plan.fault.as_ref().map_or(&[][..], |f| &f.victims[..]);
    if victims.is_empty() {
        return Readiness::absent("the plan names no victim".to_owned());
    }
    let mut last: Option<(i64, i64)> = None;
    for victim in victims {
        let Some(visible) = visible_ns(plan, events, victim, fire_ns) else {
            return Readiness::absent(format!(
                "the fault was never visible on the path to {victim}: no direct probe failed after the fire and its main process did not end"
            ));
        };
        let first = probes(events, path)
            .filter(|(_, p)| p.ok && p.sent_ns >= visible && concerns(plan, p, victim))
            .filter_map(|(_, p)| Some((p.first_token_ns?, p.sent_ns)))
            .min();
        let Some((first, sent)) = first else {
            let until = probes(events, path).map(|(at, _)| at).max();
            return Readiness {
                ready_ns: None,
                gap_ns: 0,
                watched_until_ns: until.filter(|u| *u > fire_ns),
                reason: Some(match path {
                    ProbePath::Direct => format!(
                        "{victim} never answered a direct probe that was sent after the fault was visible"
                    ),
                    ProbePath::Service => format!(
                        "no service probe that was sent after the fault was visible was served by {victim}; where the service names no replica, this is not measurable"
                    ),
                }),
            };
        };
        // Directly a probe of the same victim that failed; through the service any earlier probe,
        // since the victim served none of them.
        let away = probes(events, path)
            .filter(|(at, p)| *at > fire_ns && p.sent_ns < sent)
            .filter(|(_, p)| path == ProbePath::Service || (!p.ok && concerns(plan, p, victim)))
            .map(|(_, p)| p.sent_ns.max(fire_ns))
            .max()
            .unwrap_or(visible);
        last = last.max(Some((first, (first - away).max(0))));
    }
    Readiness {
        ready_ns: last.map(|(at, _)| at),
        gap_ns: last.map_or(0, |(_, gap)| gap),
        watched_until_ns: None,
        reason: None,
    }
}
