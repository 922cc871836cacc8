//! What a negative control must show: nothing.

use blackstart_plan::RunPlan;
use blackstart_record::{Event, EventKind, ProbePath, ReplicaStep};

use crate::time::seconds;
use crate::{Fire, Recovery, RecoveryStatus};

/// What shows, in a negative control, that service was lost although nothing was done to it; `None`
/// where nothing does, and in every other run.
///
/// Any of these, from the anchor to the end of the fault window (or to the cut before it): the recovery detector's status is
/// not `no_outage`, a direct probe of a replica failed, a supervised main process ended.
pub(crate) fn outage(
    run: &RunPlan,
    events: &[Event],
    fire: &Fire,
    recovery: &Recovery,
) -> Option<String> {
    if !run.negative_control {
        return None;
    }
    let mut seen = Vec::new();
    let detected = &recovery.pre_fault;
    if detected.status != RecoveryStatus::NoOutage {
        seen.push(match &detected.note {
            Some(note) => format!("the detector does not find that service held ({note})"),
            None => "the detector found a loss of service".to_owned(),
        });
    }
    let span = fire.anchor_ns..recovery.watched_until_ns;
    let inside = || events.iter().filter(|e| span.contains(&e.at_ns));
    let mut failed = inside().filter_map(|e| match &e.kind {
        EventKind::Probe(p) if p.path == ProbePath::Direct && !p.ok => Some((e.at_ns, p)),
        _ => None,
    });
    if let Some((at_ns, probe)) = failed.next() {
        seen.push(format!(
            "{} direct probes failed, the first at {:.3} s of the run{}: {}",
            failed.count() + 1,
            seconds(at_ns),
            probe
                .replica
                .as_ref()
                .map_or_else(String::new, |r| format!(" ({r})")),
            probe.reason.as_deref().unwrap_or("no reason recorded")
        ));
    }
    for event in inside() {
        if let EventKind::Replica(ReplicaStep::Exited { replica, .. }) = &event.kind {
            seen.push(format!(
                "the main process of {replica} ended at {:.3} s of the run",
                seconds(event.at_ns)
            ));
            // One is enough; a server that crashes on and on must not fill the report.
            break;
        }
    }
    (!seen.is_empty()).then(|| seen.join("; "))
}
