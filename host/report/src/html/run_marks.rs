//! What is marked on the chart of a run: fire, readiness, return of goodput.

use std::collections::BTreeMap;

use blackstart_analyze::{Fire, RecoveryStatus, RunAnalysis};

use super::num::{seconds, secs, secs_pm};
use super::words;

/// A line across the chart, with its label.
pub(super) struct Mark {
    pub(super) at_s: f64,
    pub(super) class: &'static str,
    pub(super) label: String,
}

/// Distance between planned and actual fire from which both are drawn, in milliseconds: the largest
/// that the method accepts.
const FAR_FIRE_MS: f64 = 500.0;

/// Whether the fire lies so far from its plan that both are drawn.
pub(super) fn is_far(fire: &Fire) -> bool {
    fire.fire_error_ms.is_some_and(|e| e.abs() > FAR_FIRE_MS)
}

/// The marks of a run: fire, readiness, return of goodput.
pub(super) fn marks(run: &RunAnalysis, phases_s: &BTreeMap<String, f64>) -> Vec<Mark> {
    let mut marks = Vec::new();
    let fire = &run.fire;
    if let Some(fire_ns) = fire.actual_ns {
        if is_far(fire) {
            marks.push(Mark {
                at_s: seconds(fire.planned_ns),
                class: "planned",
                label: "planned fire".to_owned(),
            });
        }
        marks.push(Mark {
            at_s: seconds(fire_ns),
            class: "fire",
            label: match fire.fire_error_ms {
                Some(e) if is_far(fire) => {
                    let side = if e > 0.0 { "late" } else { "early" };
                    format!("fire, {} {side}", secs(e.abs() / 1e3))
                }
                _ => "fire".to_owned(),
            },
        });
    } else if fire.planned {
        let state = if fire.unobserved {
            "not observed"
        } else if run.negative_control {
            "withheld"
        } else if fire.fired {
            "executed at an unknown instant"
        } else {
            "not executed"
        };
        marks.push(Mark {
            at_s: seconds(fire.planned_ns),
            class: "planned",
            label: format!("planned fire, {state}"),
        });
    }
    let ready = run
        .decomposition
        .segments
        .iter()
        .find(|s| s.name == "replica_ready");
    if let Some((s, (end_ns, length))) = ready.and_then(|s| Some((s, s.end_ns.zip(s.duration_s)?)))
    {
        marks.push(Mark {
            at_s: seconds(end_ns),
            class: "ready",
            label: format!("replica ready +{}", secs_pm(length, s.uncertainty_s)),
        });
    }
    // Without the fire's instant there is nothing that these could be counted from.
    let Some(fire_ns) = fire.actual_ns else {
        return marks;
    };
    let pre = &run.recovery.pre_fault;
    let window_end = || {
        let part = |key: &str| phases_s.get(key).copied();
        Some(part("warmup")? + part("baseline")? + part("fault_window")?)
    };
    if let (Some(entry_ns), Some(_)) = (pre.entry_ns, pre.ttr_s) {
        let uncertainty = run.ttr_pre_fault_uncertainty_s;
        marks.push(Mark {
            at_s: seconds(entry_ns),
            class: "recovered",
            // On the chart's own axis, which counts from the fire.
            label: format!(
                "goodput back +{}",
                secs_pm(seconds(entry_ns) - seconds(fire_ns), uncertainty)
            ),
        });
    } else if matches!(
        pre.status,
        RecoveryStatus::NotRecovered | RecoveryStatus::Unconfirmed
    ) && let Some(end_s) = window_end()
    {
        let cut_s = seconds(run.recovery.watched_until_ns);
        marks.push(Mark {
            at_s: end_s.min(cut_s),
            class: "unrecovered",
            label: format!("goodput {}", words::recovery(pre.status)),
        });
    }
    marks
}
