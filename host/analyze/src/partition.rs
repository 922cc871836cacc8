//! The timeline from fire to goodput as a partition by consecutive boundaries.

use blackstart_record::EventKind;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::RecoveryStatus;
use crate::decomposition::{DecompositionInput, Instant, Instants, UNRESOLVED};
use crate::time::seconds;

/// One phase between two consecutive boundaries.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Phase {
    /// Name of the phase (`weight_read`), or `unexplained`. It is the name of a segment only where it
    /// spans the same boundaries.
    pub name: String,
    /// Boundary at which it starts.
    pub from: String,
    /// Boundary at which it ends.
    pub to: String,
    /// Start, run time.
    pub start_ns: i64,
    /// End, run time.
    pub end_ns: i64,
    /// Length in seconds.
    pub duration_s: f64,
    /// The true length lies within ± this of it: both boundaries' uncertainties added.
    pub uncertainty_s: f64,
    /// Share of the whole, percent.
    pub share_percent: f64,
    /// Whether the boundaries around it say what happened in it.
    pub explained: bool,
    /// Which boundaries are missing, or that the order is not resolved.
    pub note: Option<String>,
}

impl Phase {
    /// Whether its length is larger than its uncertainty; if not, the order of its boundaries is not
    /// resolved.
    pub fn resolved(&self) -> bool {
        self.duration_s > self.uncertainty_s
    }
}

/// The whole timeline. The phases touch each other; their lengths add up to `total_s`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Partition {
    /// The fire.
    pub start_ns: i64,
    /// The later of goodput recovery and the last readiness boundary; the timeout if service did
    /// not recover, or the cut where the run was cut off before it.
    pub end_ns: i64,
    /// What `end_ns` is (`goodput_restored`, `replica_ready`, `traffic_restored`, `timeout`,
    /// `cut_off`).
    pub end: String,
    /// Length in seconds.
    pub total_s: f64,
    /// The true length lies within ± this of it.
    pub total_uncertainty_s: f64,
    /// The phases in order.
    pub phases: Vec<Phase>,
    /// Length of what no boundary explains.
    pub unexplained_s: f64,
    /// Its share, percent.
    pub unexplained_percent: f64,
    /// Remarks.
    pub notes: Vec<String>,
}

impl Partition {
    /// Whether service came back: only then is the time until the end its own length, and not the
    /// length of the watch.
    pub fn came_back(&self) -> bool {
        self.end != TIMEOUT && self.end != CUT_OFF
    }
}

/// A boundary of the canonical order.
struct Step {
    name: &'static str,
    /// Name of the phase that it ends, when it follows its neighbour.
    phase: &'static str,
    /// Whether a run may lack it without leaving a hole (no orphans, a warm cache, no graphs).
    optional: bool,
}

const fn step(name: &'static str, phase: &'static str, optional: bool) -> Step {
    Step {
        name,
        phase,
        optional,
    }
}

/// Boundaries of a restart, in the order in which they happen.
const RESTART: [Step; 19] = [
    step("fire", "", false),
    step("process_exited", "process_end", false),
    step("orphans_gone", "memory_released", true),
    step("container_start", "restart", false),
    step("banner", "process_bringup", false),
    step("engine_init", "engine_bringup", false),
    step("model_load_start", "worker_init", false),
    step("weight_download", "weight_fetch", true),
    step("weights_loaded", "weight_read", false),
    step("model_loaded", "model_finalize", false),
    step("torch_compile", "torch_compile", true),
    step("kv_cache", "kv_profile", true),
    step("graph_capture", "graph_capture", true),
    step("engine_ready", "engine_warmup", false),
    step("server_start", "frontend_start", true),
    step("startup_complete", "server_startup", false),
    step("replica_ready", "first_inference", false),
    step("traffic_restored", "routing_propagation", true),
    step("goodput_restored", "goodput_return", false),
];

/// Boundaries of a fault that the same process survives.
const IN_PLACE: [Step; 5] = [
    step("fire", "", false),
    step("fault_undone", "fault_in_effect", false),
    step("replica_ready", "service_return", false),
    step("traffic_restored", "routing_propagation", true),
    step("goodput_restored", "goodput_return", false),
];

/// Every name that a phase can have, each once.
pub(crate) fn phase_names() -> Vec<&'static str> {
    let mut names = vec![UNEXPLAINED];
    for step in RESTART.iter().chain(&IN_PLACE) {
        if !step.phase.is_empty() && !names.contains(&step.phase) {
            names.push(step.phase);
        }
    }
    names
}

/// The partition of the timeline; `None` where there is no fire or nothing after it.
pub(crate) fn analyze(input: &DecompositionInput<'_>, at: &Instants<'_>) -> Option<Partition> {
    let fire = at.fire.as_ref().ok()?;
    let start_ns = fire.at_ns;
    let mut notes = Vec::new();
    let (end_name, end_ns) = end(input, at, start_ns, &mut notes)?;
    // What happens after the timeline's end (the instrument stops the server it launched when the
    // run is over) is none of its steps.
    let restarted = [
        "process_exited",
        "container_start",
        "banner",
        "engine_init",
        "startup_complete",
    ]
    .iter()
    .filter_map(|name| instant(input, at, name))
    .any(|t| (start_ns..=end_ns).contains(&t.at_ns));
    let steps: &[Step] = if restarted { &RESTART } else { &IN_PLACE };
    let mut found: Vec<(usize, Instant)> = steps
        .iter()
        .enumerate()
        .filter_map(|(i, s)| Some((i, instant(input, at, s.name)?)))
        .filter(|(_, t)| (start_ns..=end_ns).contains(&t.at_ns))
        .collect();
    drop_side_boundaries(steps, &mut found, end_ns);
    found.sort_by_key(|(i, t)| (t.at_ns, *i));
    let total_ns = end_ns - start_ns;
    let mut phases: Vec<Phase> = found
        .windows(2)
        .map(|pair| phase(steps, pair[0], pair[1], total_ns))
        .collect();
    if let Some((last, t)) = found.last().copied()
        && t.at_ns < end_ns
    {
        phases.push(Phase {
            name: UNEXPLAINED.to_owned(),
            from: steps[last].name.to_owned(),
            to: end_name.to_owned(),
            start_ns: t.at_ns,
            end_ns,
            duration_s: seconds(end_ns - t.at_ns),
            uncertainty_s: seconds(t.uncertainty_ns),
            share_percent: share(end_ns - t.at_ns, total_ns),
            explained: false,
            note: Some(format!(
                "no boundary between {} and {end_name}",
                steps[last].name
            )),
        });
    }
    let unexplained_ns: i64 = phases
        .iter()
        .filter(|p| !p.explained)
        .map(|p| p.end_ns - p.start_ns)
        .sum();
    Some(Partition {
        start_ns,
        end_ns,
        end: end_name.to_owned(),
        total_s: seconds(total_ns),
        // The timeout and the cut are instants that the instrument set itself.
        total_uncertainty_s: seconds(
            fire.uncertainty_ns + instant(input, at, end_name).map_or(0, |end| end.uncertainty_ns),
        ),
        phases,
        unexplained_s: seconds(unexplained_ns),
        unexplained_percent: share(unexplained_ns, total_ns),
        notes,
    })
}

/// Ends of a timeline that no event of the service ends: the method's timeout, and the cut.
const TIMEOUT: &str = "timeout";
const CUT_OFF: &str = "cut_off";

/// Name of what no boundary explains.
const UNEXPLAINED: &str = "unexplained";

/// Where the timeline ends: at the later of goodput recovery and readiness, or at the timeout.
fn end(
    input: &DecompositionInput<'_>,
    at: &Instants<'_>,
    start_ns: i64,
    notes: &mut Vec<String>,
) -> Option<(&'static str, i64)> {
    let candidates = [
        ("replica_ready", &at.replica_ready),
        ("traffic_restored", &at.traffic_restored),
        ("goodput_restored", &at.goodput_restored),
    ];
    let mut latest = candidates
        .into_iter()
        .filter_map(|(name, b)| Some((name, b.as_ref().ok()?.at_ns)))
        .max_by_key(|(_, at_ns)| *at_ns);
    if input.recovery.pre_fault.status == RecoveryStatus::NotRecovered {
        let end_ns = input.recovery.watched_until_ns;
        let (name, said) = if end_ns < input.plan.phases.fault_window_end_ns() {
            (CUT_OFF, "where the run was cut off")
        } else {
            (TIMEOUT, "at the timeout")
        };
        notes.push(format!("service did not recover: the timeline ends {said}"));
        if latest.is_none_or(|(_, at_ns)| at_ns < end_ns) {
            latest = Some((name, end_ns));
        }
    } else if let (Some((name, at_ns)), Ok(goodput)) = (latest, &at.goodput_restored)
        && goodput.at_ns < at_ns
    {
        notes.push(format!(
            "goodput's entry bucket starts {:.3} s before {name}: its leading window already holds enough good requests; the timeline ends at {name}",
            seconds(at_ns - goodput.at_ns)
        ));
    }
    latest.filter(|(_, at_ns)| *at_ns > start_ns)
}

/// Leaves out boundaries that happen beside the path to recovery: orphans that end after the new
/// start, and a goodput entry that lies before the end (a bucket's edge, not an event).
fn drop_side_boundaries(steps: &[Step], found: &mut Vec<(usize, Instant)>, end_ns: i64) {
    let at = |found: &[(usize, Instant)], name: &str| {
        found
            .iter()
            .find(|(i, _)| steps[*i].name == name)
            .map(|(_, t)| t.at_ns)
    };
    let start = at(found, "container_start");
    found.retain(|(i, t)| match steps[*i].name {
        "orphans_gone" => start.is_none_or(|s| t.at_ns <= s),
        "goodput_restored" => t.at_ns >= end_ns,
        _ => true,
    });
}

fn instant(input: &DecompositionInput<'_>, at: &Instants<'_>, name: &str) -> Option<Instant> {
    match name {
        "fire" => at.fire.clone().ok(),
        "process_exited" => at.process_exited.clone().ok(),
        "orphans_gone" => at.orphans_gone.clone().ok(),
        "container_start" => at.container_start.clone().ok(),
        "replica_ready" => at.replica_ready.clone().ok(),
        "traffic_restored" => at.traffic_restored.clone().ok(),
        "goodput_restored" => at.goodput_restored.clone().ok(),
        "fault_undone" => input
            .records
            .events
            .iter()
            .filter_map(|e| match &e.kind {
                EventKind::Effect(s) if s.step == "undone" => s.before_ns.zip(s.after_ns),
                _ => None,
            })
            .map(|(before, after)| Instant {
                at_ns: before + (after - before) / 2,
                uncertainty_ns: (after - before + 1) / 2,
            })
            .max_by_key(|t| t.at_ns),
        key => at.log(key).ok(),
    }
}

fn share(part_ns: i64, total_ns: i64) -> f64 {
    if total_ns > 0 {
        part_ns as f64 * 100.0 / total_ns as f64
    } else {
        0.0
    }
}

/// The phase between two neighbours. It is explained if they follow each other in the canonical
/// order, optional boundaries apart; else something happened in it that no boundary shows.
fn phase(
    steps: &[Step],
    (from, start): (usize, Instant),
    (to, end): (usize, Instant),
    total_ns: i64,
) -> Phase {
    let missing: Vec<&str> = steps
        .get(from + 1..to)
        .unwrap_or(&[])
        .iter()
        .filter(|s| !s.optional)
        .map(|s| s.name)
        .collect();
    let explained = to > from && missing.is_empty();
    let length_ns = end.at_ns - start.at_ns;
    let unresolved = (length_ns <= start.uncertainty_ns + end.uncertainty_ns).then_some(UNRESOLVED);
    let said = if to < from {
        Some(format!(
            "{} came after {}: not the usual order",
            steps[to].name, steps[from].name
        ))
    } else if !missing.is_empty() {
        Some(format!("no boundary for {}", missing.join(", ")))
    } else {
        None
    };
    let note = match (said, unresolved) {
        (Some(said), Some(unresolved)) => Some(format!("{said}; {unresolved}")),
        (said, unresolved) => said.or(unresolved.map(str::to_owned)),
    };
    Phase {
        name: if explained {
            steps[to].phase
        } else {
            UNEXPLAINED
        }
        .to_owned(),
        from: steps[from].name.to_owned(),
        to: steps[to].name.to_owned(),
        start_ns: start.at_ns,
        end_ns: end.at_ns,
        duration_s: seconds(length_ns),
        uncertainty_s: seconds(start.uncertainty_ns + end.uncertainty_ns),
        share_percent: share(length_ns, total_ns),
        explained,
        note,
    }
}
