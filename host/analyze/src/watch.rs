//! How long a run was watched. A run that was cut off shows nothing of the time after the cut, and
//! nothing may be claimed of it.

use std::borrow::Cow;

use blackstart_plan::Plan;
use blackstart_record::{CensorKind, Event, EventKind, RequestRecord, RunRecords};

use crate::time::seconds;

/// Until when a run was watched, and until when its events were written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Watch {
    /// Where the run was cut off before the end of its load: the cut. `None` = watched to the end.
    pub(crate) cut_ns: Option<i64>,
    /// Whether the record of events reaches the end of the load.
    pub(crate) events_whole: bool,
    /// The last recorded event.
    pub(crate) last_event_ns: Option<i64>,
}

impl Watch {
    /// The earlier of an instant and the cut.
    pub(crate) fn until(self, at_ns: i64) -> i64 {
        self.cut_ns.map_or(at_ns, |cut| cut.min(at_ns))
    }

    /// Requests that were meant to be sent while the run was watched. The others have records too
    /// (nobody sent them), but say nothing of the service.
    pub(crate) fn requests(self, all: &[RequestRecord]) -> Cow<'_, [RequestRecord]> {
        match self.cut_ns {
            Some(cut) if all.iter().any(|r| r.intended_ns >= cut) => Cow::Owned(
                all.iter()
                    .filter(|r| r.intended_ns < cut)
                    .cloned()
                    .collect(),
            ),
            _ => Cow::Borrowed(all),
        }
    }

    /// Events without what the instrument itself did to replicas and probes when it wound up a run
    /// that was cut off.
    pub(crate) fn events(self, all: &[Event]) -> Cow<'_, [Event]> {
        let Some(cut) = self.cut_ns else {
            return Cow::Borrowed(all);
        };
        let of_the_run = |e: &&Event| {
            e.at_ns <= cut || !matches!(e.kind, EventKind::Replica(_) | EventKind::Probe(_))
        };
        Cow::Owned(all.iter().filter(of_the_run).cloned().collect())
    }
}

/// The watch of a run, from its records.
///
/// A load that was cancelled censors what it had not finished at the instant of the cut, which its
/// records carry. Without that, the cut is the signal's event, or the last thing that was recorded
/// of a run whose instrument was killed.
pub(crate) fn watch(plan: &Plan, records: &RunRecords) -> Watch {
    let ended = records
        .events
        .iter()
        .any(|e| matches!(e.kind, EventKind::LoadEnded { .. }));
    let last_event = records.events.iter().map(|e| e.at_ns).max();
    let cancelled = records
        .requests
        .iter()
        .filter(|r| r.censor_kind == Some(CensorKind::RunEnd))
        .map(|r| r.ended_ns)
        .min();
    let signal = records.events.iter().find_map(|e| match e.kind {
        EventKind::Interrupted { .. } => Some(e.at_ns),
        _ => None,
    });
    let last_seen = || {
        let ends = records.requests.iter().map(|r| r.ended_ns);
        ends.chain(last_event).max()
    };
    let cut = match (cancelled, signal) {
        (Some(at), _) | (None, Some(at)) => Some(at),
        (None, None) if !ended => last_seen(),
        (None, None) => None,
    };
    Watch {
        cut_ns: cut.filter(|at| *at < plan.phases.load_end_ns()),
        events_whole: ended,
        last_event_ns: last_event,
    }
}

/// That the record of events ends before it could hold the fire; `None` where it could.
pub(crate) fn fire_unobserved(plan: &Plan, watch: Watch, planned_ns: i64) -> Option<String> {
    if watch.events_whole {
        return None;
    }
    let Some(end) = watch.last_event_ns else {
        return Some(
            "no event was recorded: whether the fault was fired was not observed".to_owned(),
        );
    };
    (end < planned_ns.saturating_add(plan.method.fire_error_max_ns)).then(|| {
        format!(
            "the record of events ends at {:.3} s of the run, and the fire was planned for {:.3} s: whether the fault was fired was not observed",
            seconds(end),
            seconds(planned_ns)
        )
    })
}
