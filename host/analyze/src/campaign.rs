//! A campaign: per-run values, and only the statistics that a small sample carries.

use std::collections::{BTreeMap, BTreeSet};

use blackstart_plan::{Plan, Profile};
use blackstart_record::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::segments;
use crate::summary::{censored_summary, headline};
use crate::{RunAnalysis, Summary, Validity, campaign_validity, summarize, validity};

/// How an endpoint counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EndpointKind {
    /// The one question of the campaign.
    Primary,
    /// Further questions.
    Secondary,
    /// Described, not tested.
    Exploratory,
    /// Cannot occur in this campaign.
    NotApplicable,
}

/// A run that does not contribute a value, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DroppedRun {
    /// The run.
    pub run: u32,
    /// Why.
    pub reason: String,
}

/// A run whose value is only known to exceed a bound.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CensoredRun {
    /// The run.
    pub run: u32,
    /// The value is at least this.
    pub at_least: f64,
}

/// One endpoint of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Endpoint {
    /// Name of the per-run figure.
    pub name: String,
    /// UCUM unit.
    pub unit: String,
    /// How it counts.
    pub endpoint: EndpointKind,
    /// Summary of the values. With censored runs it has no mean, spread or interval.
    pub summary: Summary,
    /// Runs that contribute a value.
    pub contributing_n: u64,
    /// Runs that contribute nothing.
    pub dropped_runs: u64,
    /// Why this endpoint has no value at all.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub dropped_reason: Option<String>,
    /// The dropped runs by name.
    pub dropped: Vec<DroppedRun>,
    /// Right-censored runs: they count, as "at least".
    pub censored: Vec<CensoredRun>,
    /// Each value lies within ± this of the true one, at most, in the endpoint's unit: the largest
    /// uncertainty of a contributing run. `None` where the values carry none.
    pub uncertainty: Option<f64>,
    /// Kaplan–Meier median over values and censored runs; `None` = not reached.
    pub km_median: Option<f64>,
    /// Why it is absent.
    pub km_note: Option<String>,
}

/// One run's verdict.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunVerdict {
    /// The run.
    pub run: u32,
    /// Whether it was a negative control.
    pub negative_control: bool,
    /// Whether it counts, and why not.
    #[serde(flatten)]
    pub validity: Validity,
}

/// Every figure of a campaign.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignAnalysis {
    /// Version 1.
    pub schema_version: u32,
    /// Name of the campaign.
    pub campaign: String,
    /// Fault variant.
    pub variant: Option<String>,
    /// Runs that the plan has, controls apart.
    pub repetitions: u64,
    /// Runs that were analysed and count.
    pub valid_runs: u64,
    /// Runs that were analysed and do not count.
    pub invalid_runs: u64,
    /// Planned runs without an analysis.
    pub missing_runs: Vec<u32>,
    /// Verdicts, controls included.
    pub runs: Vec<RunVerdict>,
    /// Endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Length of each measured segment and partition phase over the runs, in seconds.
    pub segments: Vec<Endpoint>,
    /// Distinct accelerator fingerprints over all runs.
    pub fingerprints: Vec<String>,
    /// What is refused, and why (bootstrap, rank tests).
    pub refusals: BTreeMap<String, String>,
    /// What a reader must know beside the figures.
    pub caveats: Vec<String>,
}

/// Version of the campaign's analysis.
pub const CAMPAIGN_ANALYSIS_SCHEMA_VERSION: u32 = 1;

/// What one run contributes to an endpoint.
pub(crate) enum Contribution {
    Value(f64),
    AtLeast(f64),
    Nothing(String),
}

impl Contribution {
    pub(crate) fn of(value: Option<f64>, at_least: Option<f64>, note: &Option<String>) -> Self {
        match (value, at_least) {
            (Some(v), _) => Self::Value(v),
            (None, Some(v)) => Self::AtLeast(v),
            (None, None) => Self::Nothing(
                note.clone()
                    .unwrap_or_else(|| "not measured in this run".to_owned()),
            ),
        }
    }
}

/// An endpoint that campaigns publish.
pub(crate) struct Definition {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) kind: EndpointKind,
    pub(crate) heavy_tailed: bool,
    pub(crate) pick: fn(&RunAnalysis) -> Contribution,
    pub(crate) uncertainty: fn(&RunAnalysis) -> Option<f64>,
}

pub(crate) const DEFINITIONS: [Definition; 7] = [
    Definition {
        name: "outage_s",
        unit: "s",
        kind: EndpointKind::Primary,
        heavy_tailed: true,
        pick: |r| Contribution::of(r.outage_s, r.outage_censored_at_s, &r.outage_note),
        uncertainty: |r| r.outage_uncertainty_s,
    },
    Definition {
        name: "container_start_s",
        unit: "s",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| {
            Contribution::of(
                r.container_start_s,
                r.container_start_censored_at_s,
                &r.container_start_note,
            )
        },
        uncertainty: |r| r.container_start_uncertainty_s,
    },
    Definition {
        name: "ttr_equilibrium_s",
        unit: "s",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| {
            Contribution::of(
                r.ttr_equilibrium_s,
                r.ttr_equilibrium_censored_at_s,
                &r.equilibrium_note,
            )
        },
        uncertainty: |r| r.ttr_equilibrium_uncertainty_s,
    },
    Definition {
        name: "ttr_pre_fault_s",
        unit: "s",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| {
            Contribution::of(
                r.ttr_pre_fault_s,
                r.ttr_censored_at_s,
                &r.ttr_pre_fault_note,
            )
        },
        uncertainty: |r| r.ttr_pre_fault_uncertainty_s,
    },
    Definition {
        name: "in_flight_loss_fraction",
        unit: "1",
        kind: EndpointKind::Secondary,
        heavy_tailed: false,
        pick: |r| Contribution::of(r.in_flight_loss_fraction, None, &r.in_flight_loss_note),
        uncertainty: |_| None,
    },
    Definition {
        name: "survivor_p95_ms",
        unit: "ms",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| Contribution::of(r.survivor_p95_ms, None, &r.survivor_p95_note),
        uncertainty: |_| None,
    },
    Definition {
        name: "integrated_goodput_deficit",
        unit: "s",
        kind: EndpointKind::Exploratory,
        heavy_tailed: false,
        pick: |r| {
            let at_least = r.ttr_censored_at_s.and(r.recovery.deficit.to_timeout);
            Contribution::of(
                r.integrated_goodput_deficit,
                at_least,
                &r.integrated_goodput_deficit_note,
            )
        },
        uncertainty: |_| None,
    },
];

/// Every name that an endpoint or segment of a campaign can have, whatever its runs measured.
pub fn endpoint_names() -> Vec<String> {
    let endpoints = DEFINITIONS.iter().map(|d| d.name.to_owned());
    endpoints.chain(segments::names()).collect()
}

/// Analyses a campaign. `findings` holds the gates' findings by run number; a run without an entry
/// has none. Negative controls are judged but contribute to no endpoint. The verdicts in
/// [`CampaignAnalysis::runs`] are the final ones: they hold what only all runs together show
/// ([`campaign_validity`]).
pub fn analyze_campaign(
    plan: &Plan,
    runs: &[RunAnalysis],
    findings: &BTreeMap<u32, Vec<Finding>>,
) -> CampaignAnalysis {
    let none = Vec::new();
    let mut together = campaign_validity(plan, runs);
    let verdicts: Vec<RunVerdict> = runs
        .iter()
        .map(|r| {
            let mut validity = validity(plan, r, findings.get(&r.run).unwrap_or(&none));
            validity
                .reasons
                .extend(together.remove(&r.run).unwrap_or_default());
            validity.valid = validity.reasons.is_empty();
            RunVerdict {
                run: r.run,
                negative_control: r.negative_control,
                validity,
            }
        })
        .collect();
    let counted: Vec<(&RunAnalysis, &RunVerdict)> = runs
        .iter()
        .zip(&verdicts)
        .filter(|(r, _)| !r.negative_control)
        .collect();
    let missing_runs: Vec<u32> = plan
        .runs
        .iter()
        .map(|r| r.run)
        .filter(|n| !runs.iter().any(|r| r.run == *n))
        .collect();
    let planned_df = u64::from(plan.method.planned_runs).saturating_sub(1);
    let mut endpoints: Vec<Endpoint> = DEFINITIONS
        .iter()
        .map(|d| {
            endpoint(
                d.name,
                d.unit,
                d.kind,
                d.heavy_tailed,
                planned_df,
                &counted,
                |r| ((d.pick)(r), (d.uncertainty)(r)),
            )
        })
        .collect();
    for e in &mut endpoints {
        e.dropped_runs += missing_runs
            .iter()
            .filter(|n| !is_control(plan, **n))
            .count() as u64;
        e.dropped.extend(
            missing_runs
                .iter()
                .filter(|n| !is_control(plan, **n))
                .map(|n| DroppedRun {
                    run: *n,
                    reason: "the run was planned but has no records".to_owned(),
                }),
        );
        mark_not_applicable(plan, e);
    }
    let fingerprints: BTreeSet<String> = runs
        .iter()
        .flat_map(|r| r.fingerprint.fingerprints.iter().cloned())
        .collect();
    let valid_runs = counted.iter().filter(|(_, v)| v.validity.valid).count() as u64;
    CampaignAnalysis {
        schema_version: CAMPAIGN_ANALYSIS_SCHEMA_VERSION,
        campaign: plan.campaign.clone(),
        variant: plan.fault.as_ref().map(|f| f.variant.clone()),
        repetitions: plan.runs.iter().filter(|r| !r.negative_control).count() as u64,
        valid_runs,
        invalid_runs: counted.len() as u64 - valid_runs,
        segments: segments::over_runs(&counted, planned_df),
        caveats: caveats(plan, runs, valid_runs, fingerprints.len()),
        missing_runs,
        runs: verdicts,
        endpoints,
        fingerprints: fingerprints.into_iter().collect(),
        refusals: refusals(valid_runs),
    }
}

fn is_control(plan: &Plan, run: u32) -> bool {
    plan.runs.iter().any(|r| r.run == run && r.negative_control)
}

pub(crate) fn endpoint(
    name: &str,
    unit: &str,
    kind: EndpointKind,
    heavy_tailed: bool,
    planned_df: u64,
    runs: &[(&RunAnalysis, &RunVerdict)],
    pick: impl Fn(&RunAnalysis) -> (Contribution, Option<f64>),
) -> Endpoint {
    let mut uncertainty: Option<f64> = None;
    let (mut values, mut censored, mut dropped) = (Vec::new(), Vec::new(), Vec::new());
    for (run, verdict) in runs {
        if !verdict.validity.valid {
            let codes: Vec<&str> = verdict
                .validity
                .reasons
                .iter()
                .map(|r| r.code.as_str())
                .collect();
            dropped.push(DroppedRun {
                run: run.run,
                reason: format!("invalid run: {}", codes.join(", ")),
            });
            continue;
        }
        let (contribution, known_to) = pick(run);
        match contribution {
            Contribution::Value(v) => {
                values.push(v);
                uncertainty = uncertainty.into_iter().chain(known_to).reduce(f64::max);
            }
            Contribution::AtLeast(at_least) => censored.push(CensoredRun {
                run: run.run,
                at_least,
            }),
            Contribution::Nothing(reason) => dropped.push(DroppedRun {
                run: run.run,
                reason,
            }),
        }
    }
    let mut summary = summarize(&values, heavy_tailed, planned_df);
    let (km_median, km_note) = if censored.is_empty() {
        summary.headline = headline(&summary, uncertainty);
        (None, None)
    } else {
        censored_summary(&mut summary, &values, &censored, uncertainty)
    };
    let contributing_n = (values.len() + censored.len()) as u64;
    Endpoint {
        name: name.to_owned(),
        unit: unit.to_owned(),
        endpoint: kind,
        summary,
        contributing_n,
        dropped_runs: dropped.len() as u64,
        dropped_reason: (contributing_n == 0)
            .then(|| dropped.first().map(|d| d.reason.clone()))
            .flatten(),
        dropped,
        censored,
        uncertainty,
        km_median,
        km_note,
    }
}

fn mark_not_applicable(plan: &Plan, endpoint: &mut Endpoint) {
    if endpoint.contributing_n > 0 {
        return;
    }
    let one_replica = plan.target.replicas.len() == 1;
    let reason = match endpoint.name.as_str() {
        "ttr_equilibrium_s" if one_replica => {
            "one replica: the equilibrium is the level at which survivors carry on"
        }
        "survivor_p95_ms" if one_replica => "one replica: no survivor cohort",
        _ if plan.fault.is_none() => "the plan has no fault",
        _ => return,
    };
    endpoint.endpoint = EndpointKind::NotApplicable;
    endpoint.dropped_reason = Some(reason.to_owned());
    endpoint.dropped.clear();
    endpoint.dropped_runs = 0;
}

/// Sample size below which a percentile bootstrap is refused: at 5 it covers 81–84 % instead of 95 %.
const BOOTSTRAP_MIN_N: u64 = 20;

/// Sample size from which a two-sided sign or signed-rank test can reach p < 0.05 (2/2⁶ = 0.031).
const RANK_TEST_MIN_N: u64 = 6;

fn refusals(valid_runs: u64) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    if valid_runs < BOOTSTRAP_MIN_N {
        all.insert(
            "bootstrap".to_owned(),
            format!(
                "refused at N={valid_runs}: a percentile bootstrap of so few runs covers far less than its nominal 95 %"
            ),
        );
    }
    if valid_runs < RANK_TEST_MIN_N {
        all.insert(
            "rank_tests".to_owned(),
            format!(
                "refused at N={valid_runs}: no sign or rank test of fewer than {RANK_TEST_MIN_N} runs can reach p < 0.05 two-sided"
            ),
        );
    }
    if valid_runs < 2 {
        all.insert(
            "t_interval".to_owned(),
            format!("refused at N={valid_runs}: an interval needs at least two runs"),
        );
    }
    all
}

fn caveats(plan: &Plan, runs: &[RunAnalysis], valid_runs: u64, fingerprints: usize) -> Vec<String> {
    let mut all = Vec::new();
    if plan.profile == Profile::Free {
        all.push(
            "free profile: parameters differ from the pinned method; not comparable with published results"
                .to_owned(),
        );
    }
    let planned = u64::from(plan.method.planned_runs);
    if valid_runs != planned {
        all.push(format!(
            "{valid_runs} valid runs, {planned} planned: intervals are not at the planned degrees of freedom"
        ));
    }
    if fingerprints > 1 {
        all.push(format!(
            "{fingerprints} different accelerator fingerprints over the runs"
        ));
    }
    for run in runs.iter().filter(|r| r.negative_control) {
        let said = run.ttr_pre_fault_note.as_deref().unwrap_or("not estimable");
        all.push(format!("negative control, run {}: {said}", run.run));
    }
    for run in runs {
        if let Some(said) = &run.recovery_cross_check {
            all.push(format!("run {}: recovery_cross_check: {said}", run.run));
        }
    }
    all
}
