//! Lengths of segments and phases over the runs of a campaign.

use crate::campaign::{Contribution, endpoint};
use crate::partition::phase_names;
use crate::{Endpoint, EndpointKind, RunAnalysis, RunVerdict};

/// Lengths of segments and phases that at least one valid run measured.
pub(crate) fn over_runs(runs: &[(&RunAnalysis, &RunVerdict)], planned_df: u64) -> Vec<Endpoint> {
    let mut names = Vec::<(String, bool)>::new();
    for (run, _) in runs.iter().filter(|(_, v)| v.validity.valid) {
        let all = run.decomposition.segments.iter();
        let measured = all.filter(|s| s.measured || s.censored_at_s.is_some());
        let phases = run.decomposition.partition.iter().flat_map(|p| &p.phases);
        let all = measured
            .map(|s| (s.name.clone(), false))
            .chain(phases.map(|p| (p.name.clone(), true)));
        for name in all {
            let (key, phase) = (&name.0, name.1);
            let has_a_value = !phase || matches!(phase_s(run, key).0, Contribution::Value(_));
            if has_a_value && !names.contains(&name) {
                names.push(name);
            }
        }
    }
    // Segments first, then phases; each in the order of its first appearance.
    names.sort_by_key(|(_, phase)| *phase);
    names
        .iter()
        .map(|(name, phase)| {
            let title = if *phase {
                format!("phase.{name}_s")
            } else {
                format!("segment.{name}_s")
            };
            endpoint(
                &title,
                "s",
                EndpointKind::Exploratory,
                true,
                planned_df,
                runs,
                |r| {
                    if *phase {
                        phase_s(r, name)
                    } else {
                        segment_s(r, name)
                    }
                },
            )
        })
        .collect()
}

fn nothing() -> (Contribution, Option<f64>) {
    (
        Contribution::Nothing("not measured in this run".to_owned()),
        None,
    )
}

fn segment_s(run: &RunAnalysis, name: &str) -> (Contribution, Option<f64>) {
    let mut all = run.decomposition.segments.iter();
    match all.find(|s| s.name == name) {
        Some(s) => (
            Contribution::of(s.duration_s, s.censored_at_s, &s.note),
            s.uncertainty_s,
        ),
        None => nothing(),
    }
}

/// All phases of that name together; a run may have several unexplained stretches.
///
/// Where service did not come back, the last stretch ends where the watch does. Its length is that of
/// the watch, and no phase's; the stretches of its name add up to nothing that can be compared.
fn phase_s(run: &RunAnalysis, name: &str) -> (Contribution, Option<f64>) {
    let Some(partition) = &run.decomposition.partition else {
        return nothing();
    };
    let named = || partition.phases.iter().filter(|p| p.name == name);
    if named().next().is_none() {
        return nothing();
    }
    if !partition.came_back() && named().any(|p| p.to == partition.end) {
        let reason =
            "service did not come back: the last stretch is as long as the run was watched"
                .to_owned();
        return (Contribution::Nothing(reason), None);
    }
    let length = named().map(|p| p.duration_s).sum();
    let uncertainty = named().map(|p| p.uncertainty_s).sum();
    (Contribution::Value(length), Some(uncertainty))
}

/// Segments of the method, in its order.
const SEGMENTS: [&str; 14] = [
    "reschedule",
    "container_start",
    "log_bringup",
    "engine_init",
    "weight_download",
    "weight_load",
    "torch_compile",
    "profile_kv_capture",
    "engine_ready",
    "server_ready",
    "replica_ready",
    "traffic_restored",
    "routing_propagation",
    "goodput_restored",
];

/// Every name that an entry of [`crate::CampaignAnalysis::segments`] can have.
pub(crate) fn names() -> impl Iterator<Item = String> {
    let segments = SEGMENTS.iter().map(|name| format!("segment.{name}_s"));
    segments.chain(
        phase_names()
            .into_iter()
            .map(|name| format!("phase.{name}_s")),
    )
}
