//! Windows of a run: which requests a figure is about.

use std::collections::BTreeMap;

use blackstart_plan::Plan;
use blackstart_record::{GapHistograms, Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distribution::Collector;
use crate::slo::{Latencies, figures, modal_distances};
use crate::time::seconds;
use crate::watch::Watch;
use crate::{
    Distribution, Fire, Incidence, Observation, SloFigures, TailInterval, Terminal, aalen_johansen,
    tail_interval,
};

/// A window of the method (§3). A window holds the requests whose *intended* time falls in it.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum WindowName {
    /// End of warm-up → one client timeout before the fire anchor.
    Baseline,
    /// From there to the planned fire. Reported; feeds no baseline figure.
    Guard,
    /// Planned fire → end of the fault window.
    Fault,
    /// Planned fire → recovery entry, where recovery was found. With `fault_recovered` it
    /// partitions `fault`.
    FaultDegraded,
    /// Recovery entry → end of the fault window, where recovery was found.
    FaultRecovered,
    /// Actual fire → first successful direct inference.
    Outage,
}

impl WindowName {
    /// The stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Baseline => "baseline",
            Self::Guard => "guard",
            Self::Fault => "fault",
            Self::FaultDegraded => "fault_degraded",
            Self::FaultRecovered => "fault_recovered",
            Self::Outage => "outage",
        }
    }
}

/// A half-open span of run time, `[start_ns, end_ns)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Span {
    /// First instant inside.
    pub start_ns: i64,
    /// First instant after it.
    pub end_ns: i64,
}

/// How scheduled requests ended. `scheduled = completed + errored + censored`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OutcomeCounts {
    /// Requests.
    pub scheduled: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Of these, errored.
    pub errored: u64,
    /// Of these, censored.
    pub censored: u64,
    /// Errors by class; classes that did not occur are not listed.
    pub errored_by_class: BTreeMap<String, u64>,
}

/// Every figure of one window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WindowAnalysis {
    /// Which window.
    pub name: WindowName,
    /// Its span in run time.
    pub start_ns: i64,
    /// First instant after it.
    pub end_ns: i64,
    /// Its length in seconds.
    pub duration_s: f64,
    /// Outcomes.
    #[serde(flatten)]
    pub counts: OutcomeCounts,
    /// TTFT of completed requests, from intended time, in milliseconds.
    pub ttft_ms: Distribution,
    /// End to end of completed requests, from intended time, in milliseconds.
    pub e2e_ms: Distribution,
    /// Pooled gaps between content events, in milliseconds. Inter-token only where
    /// [`RunAnalysis::inter_chunk_is_inter_token`](crate::RunAnalysis) says so.
    pub inter_chunk_ms: Distribution,
    /// Requests per second that completed.
    pub throughput_per_s: f64,
    /// Goodput and the sweep.
    pub slo: SloFigures,
    /// Completion incidence over all scheduled requests.
    pub incidence: Incidence,
    /// Order-statistic intervals of end-to-end p95 and p99 and TTFT p95 and p99.
    pub tails: Vec<TailInterval>,
}

impl Span {
    /// Whether the request is intended inside.
    pub(crate) fn holds(self, r: &RequestRecord) -> bool {
        self.holds_at(r.intended_ns)
    }

    /// Whether the instant lies inside.
    pub(crate) fn holds_at(self, at_ns: i64) -> bool {
        (self.start_ns..self.end_ns).contains(&at_ns)
    }

    /// Length in seconds.
    pub(crate) fn duration_s(self) -> f64 {
        seconds(self.end_ns - self.start_ns)
    }
}

/// The baseline window: end of warm-up → one client timeout before the anchor, so that none of its
/// requests can have met the fault. Empty where the timeout is longer than the baseline phase.
pub(crate) fn baseline_span(plan: &Plan, anchor_ns: i64) -> Span {
    let start_ns = plan.phases.baseline_start_ns();
    Span {
        start_ns,
        end_ns: (anchor_ns - plan.load.timeout_ns).max(start_ns),
    }
}

/// Every window that this run has, in the method's order, as far as it was watched. Neither a run without a fault nor one in
/// which none was found has the windows that a fault or a recovery bounds.
pub(crate) fn spans(
    plan: &Plan,
    fire: &Fire,
    recovery_entry_ns: Option<i64>,
    outage: Option<Span>,
    watch: Watch,
) -> Vec<(WindowName, Span)> {
    let baseline = baseline_span(plan, fire.anchor_ns);
    let span = |start_ns: i64, end_ns: i64| Span {
        start_ns,
        end_ns: end_ns.max(start_ns),
    };
    let end_ns = watch.until(plan.phases.fault_window_end_ns());
    let mut all = vec![
        (WindowName::Baseline, baseline),
        (WindowName::Guard, span(baseline.end_ns, fire.planned_ns)),
    ];
    for (_, span) in &mut all {
        span.end_ns = watch.until(span.end_ns).max(span.start_ns);
    }
    // A window that begins after the cut was not watched at all.
    if !fire.planned || end_ns <= fire.planned_ns {
        return all;
    }
    all.push((WindowName::Fault, span(fire.planned_ns, end_ns)));
    if let (true, Some(entry_ns)) = (fire.fired, recovery_entry_ns) {
        let entry_ns = entry_ns.clamp(fire.planned_ns, end_ns.max(fire.planned_ns));
        all.push((WindowName::FaultDegraded, span(fire.planned_ns, entry_ns)));
        all.push((WindowName::FaultRecovered, span(entry_ns, end_ns)));
    }
    all.extend(outage.map(|o| (WindowName::Outage, o)));
    all
}

/// Outcomes of requests.
pub(crate) fn outcome_counts<'a>(
    requests: impl Iterator<Item = &'a RequestRecord>,
) -> OutcomeCounts {
    let mut counts = OutcomeCounts::default();
    for r in requests {
        counts.scheduled += 1;
        match r.outcome {
            Outcome::Completed => counts.completed += 1,
            Outcome::Censored => counts.censored += 1,
            Outcome::Errored => {
                counts.errored += 1;
                *counts
                    .errored_by_class
                    .entry(error_class(r).to_owned())
                    .or_default() += 1;
            }
        }
    }
    counts
}

/// Name of a request's error class; an errored record without one is damaged, and says so.
pub(crate) fn error_class(r: &RequestRecord) -> &'static str {
    r.error_class.map_or("unclassified", |c| c.name())
}

/// Every figure of one window.
pub(crate) fn analyze(
    plan: &Plan,
    all: &[RequestRecord],
    gaps: &GapHistograms,
    name: WindowName,
    span: Span,
    baseline: &Latencies,
) -> WindowAnalysis {
    let requests: Vec<&RequestRecord> = all.iter().filter(|r| span.holds(r)).collect();
    let duration_s = span.duration_s();
    let latencies = Latencies::of(requests.iter().copied());
    let collect = |all: &[i64]| {
        let mut collector = Collector::new();
        all.iter().for_each(|ns| collector.record_ns(*ns));
        collector.finish("conditional on completion")
    };
    let observations: Vec<Observation> = requests
        .iter()
        .map(|r| Observation {
            time_ns: r.observed_ns().max(0),
            terminal: match r.outcome {
                Outcome::Completed => Terminal::Completed,
                Outcome::Errored => Terminal::Errored,
                Outcome::Censored => Terminal::Censored,
            },
        })
        .collect();
    let counts = outcome_counts(requests.iter().copied());
    let modal = if name == WindowName::Baseline {
        Vec::new()
    } else {
        modal_distances(&plan.method, &latencies, baseline)
    };
    let mut tails = Vec::new();
    for (component, sorted) in [("ttft", &latencies.ttft_ns), ("e2e", &latencies.e2e_ns)] {
        for q in [0.95, 0.99] {
            tails.push(tail_interval(component, sorted, q));
        }
    }
    WindowAnalysis {
        name,
        start_ns: span.start_ns,
        end_ns: span.end_ns,
        duration_s,
        throughput_per_s: if duration_s > 0.0 {
            counts.completed as f64 / duration_s
        } else {
            0.0
        },
        counts,
        ttft_ms: collect(&latencies.ttft_ns),
        e2e_ms: collect(&latencies.e2e_ns),
        inter_chunk_ms: Distribution::from_histogram(
            &gaps.merged(span.start_ns, span.end_ns),
            "gaps between content events, pooled over the whole seconds of intended time that start in the window",
        ),
        slo: figures(&plan.method, &requests, duration_s, modal),
        incidence: aalen_johansen(&observations, plan.load.timeout_ns),
        tails,
    }
}
