//! A campaign: per-run values, and only the statistics that a small sample carries.

use std::collections::{BTreeMap, BTreeSet};

use blackstart_plan::{Plan, Profile};
use blackstart_record::Finding;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{
    RunAnalysis, Validity, campaign_validity, kaplan_meier, stats, t_multiplier, validity,
};

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

/// Summary of a sample. Field names and texts as in the predecessor's published endpoints; what the
/// sample cannot carry is `None`, where the predecessor wrote 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Per-run values, verbatim, in run order.
    pub values: Option<Vec<f64>>,
    /// How many.
    pub n: u64,
    /// Median.
    pub median: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Sample standard deviation (n − 1).
    pub sample_sd: Option<f64>,
    /// Standard error of the mean.
    pub sem: Option<f64>,
    /// Lower end of the 95 % t-interval.
    pub t_interval_lo: Option<f64>,
    /// Upper end.
    pub t_interval_hi: Option<f64>,
    /// Its multiplier, to three decimals.
    pub t_multiplier: Option<f64>,
    /// Degrees of freedom.
    pub df: Option<u64>,
    /// Whether `df` is the planned one.
    pub at_pinned_df: bool,
    /// Sample SD over mean.
    pub coefficient_of_variation: Option<f64>,
    /// Whether that is defined.
    pub cov_defined: bool,
    /// Whether the quantity is heavy-tailed: median and range lead.
    pub heavy_tailed: bool,
    /// The sentence to publish.
    pub headline: String,
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

/// Summary of per-run values. `planned_df` is the planned number of runs minus 1.
///
/// Mean, sample SD (n − 1), SEM = SD/√n, and mean ± t·SEM with the two-sided 95 % multiplier of its
/// own df to three decimals. Heavy-tailed values lead with median and range, others with the mean.
///
/// Worked example: 41, 41, 43, 41, 42 → median 41, mean 41.6, SD 0.894, interval [40.490, 42.710].
pub fn summarize(values: &[f64], heavy_tailed: bool, planned_df: u64) -> Summary {
    let n = values.len() as u64;
    let df = n.checked_sub(1);
    let mean = stats::mean(values);
    let median = stats::median(values);
    let sample_sd = stats::sample_sd(values);
    let sem = sample_sd.map(|sd| sd / (n as f64).sqrt());
    let t = df.and_then(t_multiplier);
    let reach = t.zip(sem).map(|(t, sem)| t * sem);
    let interval = mean.zip(reach).map(|(m, r)| (m - r, m + r));
    let cov = mean
        .zip(sample_sd)
        .filter(|(m, _)| *m != 0.0)
        .map(|(m, sd)| sd / m);
    let min = values.iter().copied().reduce(f64::min);
    let max = values.iter().copied().reduce(f64::max);
    let headline = match (median, mean, min, max, interval, t, df) {
        (Some(median), _, Some(min), Some(max), Some((lo, hi)), _, _) if heavy_tailed => format!(
            "median {median:.3} (range {min:.3}–{max:.3}, N={n}); t-interval [{lo:.3}, {hi:.3}] reported with normality caveat"
        ),
        (Some(median), Some(mean), _, _, Some((lo, hi)), Some(t), Some(df)) => format!(
            "mean {mean:.3} (95% t-interval [{lo:.3}, {hi:.3}], t={t:.3} df={df}), median {median:.3}"
        ),
        (Some(median), ..) => format!("{median:.3} (N=1): one run carries no interval"),
        _ => String::new(),
    };
    Summary {
        values: (n > 0).then(|| values.to_vec()),
        n,
        median,
        mean,
        min,
        max,
        sample_sd,
        sem,
        t_interval_lo: interval.map(|i| i.0),
        t_interval_hi: interval.map(|i| i.1),
        t_multiplier: t,
        df: df.filter(|d| *d > 0),
        at_pinned_df: df.is_some_and(|d| d > 0 && d == planned_df),
        coefficient_of_variation: cov,
        cov_defined: cov.is_some(),
        heavy_tailed,
        headline,
    }
}

/// What one run contributes to an endpoint.
enum Contribution {
    Value(f64),
    AtLeast(f64),
    Nothing(String),
}

impl Contribution {
    fn of(value: Option<f64>, at_least: Option<f64>, note: &Option<String>) -> Self {
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
struct Definition {
    name: &'static str,
    unit: &'static str,
    kind: EndpointKind,
    heavy_tailed: bool,
    pick: fn(&RunAnalysis) -> Contribution,
}

const DEFINITIONS: [Definition; 7] = [
    Definition {
        name: "outage_s",
        unit: "s",
        kind: EndpointKind::Primary,
        heavy_tailed: true,
        pick: |r| Contribution::of(r.outage_s, r.outage_censored_at_s, &r.outage_note),
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
    },
    Definition {
        name: "ttr_equilibrium_s",
        unit: "s",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| Contribution::of(r.ttr_equilibrium_s, None, &r.equilibrium_note),
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
    },
    Definition {
        name: "in_flight_loss_fraction",
        unit: "1",
        kind: EndpointKind::Secondary,
        heavy_tailed: false,
        pick: |r| Contribution::of(r.in_flight_loss_fraction, None, &r.in_flight_loss_note),
    },
    Definition {
        name: "survivor_p95_ms",
        unit: "ms",
        kind: EndpointKind::Secondary,
        heavy_tailed: true,
        pick: |r| Contribution::of(r.survivor_p95_ms, None, &r.survivor_p95_note),
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
    },
];

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
                |r| (d.pick)(r),
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
        segments: segments(&counted, planned_df),
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

fn endpoint(
    name: &str,
    unit: &str,
    kind: EndpointKind,
    heavy_tailed: bool,
    planned_df: u64,
    runs: &[(&RunAnalysis, &RunVerdict)],
    pick: impl Fn(&RunAnalysis) -> Contribution,
) -> Endpoint {
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
        match pick(run) {
            Contribution::Value(v) => values.push(v),
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
        (None, None)
    } else {
        censored_summary(&mut summary, &values, &censored)
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
        km_median,
        km_note,
    }
}

/// With right-censored runs, mean, spread and interval of the other values would be biased towards
/// short times: they are withdrawn, and the Kaplan–Meier median leads.
fn censored_summary(
    summary: &mut Summary,
    values: &[f64],
    censored: &[CensoredRun],
) -> (Option<f64>, Option<String>) {
    let sample: Vec<(f64, bool)> = values
        .iter()
        .map(|v| (*v, true))
        .chain(censored.iter().map(|c| (c.at_least, false)))
        .collect();
    let median = kaplan_meier(&sample)
        .into_iter()
        .find(|(_, survival)| *survival <= 0.5 + 1e-12)
        .map(|(at, _)| at);
    summary.median = None;
    summary.mean = None;
    summary.max = None;
    summary.sample_sd = None;
    summary.sem = None;
    summary.t_interval_lo = None;
    summary.t_interval_hi = None;
    summary.t_multiplier = None;
    summary.df = None;
    summary.at_pinned_df = false;
    summary.coefficient_of_variation = None;
    summary.cov_defined = false;
    let (k, n) = (censored.len(), sample.len());
    summary.headline = match median {
        Some(m) => format!(
            "Kaplan–Meier median {m:.3} (N={n}); {k} of {n} runs never got there and count as \"at least\""
        ),
        None => format!("median not reached: {k} of {n} runs never got there"),
    };
    let note = median
        .is_none()
        .then(|| format!("not reached: {k} of {n} runs are right-censored"));
    (median, note)
}

fn mark_not_applicable(plan: &Plan, endpoint: &mut Endpoint) {
    if endpoint.contributing_n > 0 {
        return;
    }
    let one_replica = plan.target.replicas.len() == 1;
    let reason = match endpoint.name.as_str() {
        "ttr_equilibrium_s" if one_replica => {
            "one replica: the single-replica equilibrium is a survivor quantity"
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

/// Lengths of segments and phases that at least one valid run measured.
fn segments(runs: &[(&RunAnalysis, &RunVerdict)], planned_df: u64) -> Vec<Endpoint> {
    let mut names = Vec::<(String, bool)>::new();
    for (run, _) in runs.iter().filter(|(_, v)| v.validity.valid) {
        let measured = run.decomposition.segments.iter().filter(|s| s.measured);
        let phases = run.decomposition.partition.iter().flat_map(|p| &p.phases);
        let all = measured
            .map(|s| (s.name.clone(), false))
            .chain(phases.map(|p| (p.name.clone(), true)));
        for name in all {
            if !names.contains(&name) {
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
                    let value = if *phase {
                        phase_s(r, name)
                    } else {
                        segment_s(r, name)
                    };
                    Contribution::of(value, None, &Some("not measured in this run".to_owned()))
                },
            )
        })
        .collect()
}

fn segment_s(run: &RunAnalysis, name: &str) -> Option<f64> {
    run.decomposition
        .segments
        .iter()
        .find(|s| s.name == name)
        .and_then(|s| s.duration_s)
}

/// All phases of that name together; a run may have several unexplained stretches.
fn phase_s(run: &RunAnalysis, name: &str) -> Option<f64> {
    let partition = run.decomposition.partition.as_ref()?;
    let lengths: Vec<f64> = partition
        .phases
        .iter()
        .filter(|p| p.name == name)
        .map(|p| p.duration_s)
        .collect();
    (!lengths.is_empty()).then(|| lengths.iter().sum())
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
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example() {
        let s = summarize(&[41.0, 41.0, 43.0, 41.0, 42.0], true, 4);
        assert_eq!(
            s.headline,
            "median 41.000 (range 41.000–43.000, N=5); t-interval [40.490, 42.710] reported with normality caveat"
        );
        assert!(s.at_pinned_df);
        assert_eq!(s.t_multiplier, Some(2.776));
        let s = summarize(&[39.0, 39.0, 40.0, 39.0, 41.0], false, 4);
        assert_eq!(
            s.headline,
            "mean 39.600 (95% t-interval [38.490, 40.710], t=2.776 df=4), median 39.000"
        );
    }

    #[test]
    fn one_run_carries_no_interval() {
        let s = summarize(&[3.0], true, 4);
        assert_eq!(
            (s.median, s.sample_sd, s.t_interval_lo),
            (Some(3.0), None, None)
        );
        assert!(s.headline.contains("no interval"));
        let none = summarize(&[], true, 4);
        assert_eq!((none.n, none.values, none.median), (0, None, None));
    }

    #[test]
    fn censored_runs_withdraw_the_mean() {
        let values = [10.0, 12.0, 11.0];
        let mut s = summarize(&values, true, 4);
        let never = |run| CensoredRun {
            run,
            at_least: 600.0,
        };
        let (median, note) = censored_summary(&mut s, &values, &[never(2), never(5)]);
        assert_eq!((median, note), (Some(12.0), None));
        assert_eq!(s.mean, None);
        let (median, note) = censored_summary(&mut s, &[10.0], &[never(2), never(3), never(4)]);
        assert_eq!(median, None);
        assert!(note.unwrap().contains("not reached"));
    }
}
