//! Two campaigns: differences with the intervals that their samples carry, exact permutation tests, the
//! noise floor, and no winner where the data name none.
//!
//! Everything here is symmetric: exchanging the campaigns negates differences and mirrors verdicts.

use std::collections::{BTreeMap, BTreeSet};

use blackstart_plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::campaign::{Contribution, DEFINITIONS, Definition};
use crate::permutation::{
    PermutationTest, gehan_scores, permutation_paired, permutation_unpaired, shift_paired,
    shift_unpaired,
};
use crate::stats::{holm, mean, median, sample_sd, t_quantile_real};
use crate::{
    CampaignAnalysis, CensoredRun, DroppedRun, EndpointKind, PlanDifference, RunAnalysis,
    WindowName, kaplan_meier, plan_differences, precision,
};

/// Version of the comparison as JSON.
pub const COMPARISON_SCHEMA_VERSION: u32 = 1;

/// Two-sided level of every test.
pub const LEVEL: f64 = 0.05;

/// One campaign of a comparison.
#[derive(Debug, Clone, Copy)]
pub struct CompareInput<'a> {
    /// Its plan.
    pub plan: &'a Plan,
    /// Its figures, with the verdicts over its runs.
    pub campaign: &'a CampaignAnalysis,
    /// Its runs.
    pub runs: &'a [RunAnalysis],
}

/// How runs are set against each other, as the user asks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Pairing {
    /// By the rule of the method: paired where the seeds agree and the pairs can reach [`LEVEL`].
    #[default]
    Auto,
    /// Run against run of the same seed.
    Paired,
    /// Sample against sample.
    Unpaired,
}

/// Why a comparison cannot be made as asked.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum CompareError {
    /// The runs have no partners.
    #[error("the runs cannot be paired: {why}")]
    NotPairable {
        /// In one sentence.
        why: String,
    },
    /// The margin is no size.
    #[error("a margin of {percent} % is none: it must be above 0 and finite")]
    Margin {
        /// As asked.
        percent: f64,
    },
}

/// How runs were set against each other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PairingUsed {
    /// Run against run of the same seed.
    pub paired: bool,
    /// Why.
    pub reason: String,
}

/// One campaign as it went in.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedSide {
    /// Its name.
    pub campaign: String,
    /// Fault variant.
    pub variant: Option<String>,
    /// The instrument that planned it.
    pub instrument_version: String,
    /// Planned runs, controls apart.
    pub planned_runs: u64,
    /// Runs that count.
    pub valid_runs: u64,
    /// Runs that were analysed and do not count.
    pub invalid_runs: u64,
    /// Runs that contribute nothing at all, by name.
    pub excluded: Vec<DroppedRun>,
}

/// One run's value.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedValue {
    /// The run.
    pub run: u32,
    /// Its seed.
    pub seed: u64,
    /// Its figure, in the endpoint's unit.
    pub value: f64,
}

/// One side of an endpoint. With censored runs it has no median, mean or spread.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EndpointSide {
    /// Per-run values, in run order.
    pub values: Vec<ComparedValue>,
    /// Runs that never got there: they count as at least this.
    pub censored: Vec<CensoredRun>,
    /// Valid runs without a value, and why.
    pub dropped: Vec<DroppedRun>,
    /// Median.
    pub median: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Sample standard deviation (n − 1).
    pub sample_sd: Option<f64>,
    /// Kaplan–Meier median over values and censored runs; `None` without censored runs, or where it is
    /// not reached.
    pub km_median: Option<f64>,
    /// Each value lies within ± this of the true one; `None` where the values carry none.
    pub uncertainty: Option<f64>,
}

impl EndpointSide {
    fn numbers(&self) -> Vec<f64> {
        self.values.iter().map(|v| v.value).collect()
    }

    fn sample(&self) -> Vec<(f64, bool)> {
        let values = self.values.iter().map(|v| (v.value, true));
        let bounds = self.censored.iter().map(|c| (c.at_least, false));
        values.chain(bounds).collect()
    }

    fn n(&self) -> usize {
        self.values.len() + self.censored.len()
    }

    /// Median, Kaplan–Meier's where runs are censored.
    pub fn centre(&self) -> Option<f64> {
        self.median.or(self.km_median)
    }
}

/// An interval of a difference B − A.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Interval {
    fn widened(self, by: f64) -> Self {
        Self {
            lo: self.lo - by,
            hi: self.hi + by,
        }
    }

    fn holds_zero(self) -> bool {
        self.lo <= 0.0 && self.hi >= 0.0
    }
}

/// What a difference must rise above.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Noise {
    /// Spread within the sides together (pooled sample SD), or of the differences of pairs.
    pub spread: Option<f64>,
    /// By how much the figures' own uncertainties can move a difference: the sum of both sides'.
    pub uncertainty: f64,
    /// The smallest mean difference that could be told from none: t·SE + uncertainty. `None` where
    /// the spread cannot be estimated.
    pub floor: Option<f64>,
}

/// What the samples say.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "word", rename_all = "snake_case")]
pub enum Verdict {
    /// A's figure is the lower one.
    ALower,
    /// B's figure is the lower one.
    BLower,
    /// The difference lies inside the margin that was asked for.
    Equivalent {
        /// The margin, in the endpoint's unit.
        within: f64,
    },
    /// The samples name no winner and show no equivalence.
    CannotTell {
        /// Why.
        why: String,
    },
}

/// One endpoint of both campaigns.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComparedEndpoint {
    /// Name of the per-run figure.
    pub name: String,
    /// UCUM unit of every figure here, p apart.
    pub unit: String,
    /// How it counts: exploratory figures are described, not tested.
    pub endpoint: EndpointKind,
    /// Whether median and shift lead, or the mean.
    pub heavy_tailed: bool,
    /// Side A.
    pub a: EndpointSide,
    /// Side B.
    pub b: EndpointSide,
    /// Pairs with a value on both sides; `None` = compared unpaired.
    pub pairs: Option<u64>,
    /// Median of B minus that of A (Kaplan–Meier's where runs are censored), or median of the
    /// differences of pairs.
    pub median_difference: Option<f64>,
    /// Interval of the shift from A to B, at least 95 %, without normality.
    pub shift_interval: Option<Interval>,
    /// Mean of B minus that of A.
    pub mean_difference: Option<f64>,
    /// 95 % t-interval of it: Welch's, or of the differences of pairs.
    pub mean_interval: Option<Interval>,
    /// Degrees of freedom of its multiplier.
    pub df: Option<f64>,
    /// Why an interval is absent, or a caveat.
    pub interval_note: Option<String>,
    /// Exact two-sided p.
    pub p: Option<f64>,
    /// After Holm's adjustment over the tested secondary endpoints; the primary one stands alone.
    pub p_adjusted: Option<f64>,
    /// The smallest p that so many runs can reach.
    pub smallest_p: Option<f64>,
    /// Why there is no p, or how it was found.
    pub p_note: Option<String>,
    /// What a difference must rise above.
    pub noise: Noise,
    /// The smallest margin within which these samples show equivalence: the farther end of the 90 %
    /// interval, uncertainty included (two one-sided tests at 5 %).
    pub carried_margin: Option<f64>,
    /// What the samples say.
    pub verdict: Verdict,
}

/// The figures of an endpoint that stand first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Leading {
    /// Which they are: `median`, `mean`, or `KM` (Kaplan–Meier median).
    pub word: &'static str,
    /// A's.
    pub a: Option<f64>,
    /// B's.
    pub b: Option<f64>,
    /// B's minus A's.
    pub difference: Option<f64>,
    /// Its 95 % interval.
    pub interval: Option<Interval>,
}

impl ComparedEndpoint {
    /// Whether runs never got there.
    pub fn censored(&self) -> bool {
        !(self.a.censored.is_empty() && self.b.censored.is_empty())
    }

    /// The figures that stand first: medians of heavy-tailed ones, Kaplan–Meier's where runs are censored,
    /// else means.
    pub fn leading(&self) -> Leading {
        if self.censored() {
            Leading {
                word: "KM",
                a: self.a.centre(),
                b: self.b.centre(),
                difference: self.median_difference,
                interval: None,
            }
        } else if self.heavy_tailed {
            Leading {
                word: "median",
                a: self.a.median,
                b: self.b.median,
                difference: self.median_difference,
                interval: self.shift_interval.or(self.mean_interval),
            }
        } else {
            Leading {
                word: "mean",
                a: self.a.mean,
                b: self.b.mean,
                difference: self.mean_difference,
                interval: self.mean_interval,
            }
        }
    }

    /// Decimals that its figures are shown with: no more than their uncertainty leaves.
    pub fn decimals(&self) -> usize {
        let known = self.a.uncertainty.into_iter().chain(self.b.uncertainty);
        match (known.reduce(f64::min), self.unit.as_str()) {
            (None, "ms") => 1,
            (known, _) => precision::decimals(known),
        }
    }
}

/// Two campaigns compared.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CampaignComparison {
    /// [`COMPARISON_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Whether anything was compared.
    pub comparable: bool,
    /// Why not.
    pub refusal: Option<String>,
    /// The first campaign.
    pub a: ComparedSide,
    /// The second.
    pub b: ComparedSide,
    /// Keys at which the plans differ, those that refuse the comparison first.
    pub differences: Vec<PlanDifference>,
    /// How runs were set against each other.
    pub pairing: Option<PairingUsed>,
    /// [`LEVEL`].
    pub level: f64,
    /// The margin asked for, in percent of the lower side's mean.
    pub margin_percent: Option<f64>,
    /// The endpoints; empty where nothing was compared.
    pub endpoints: Vec<ComparedEndpoint>,
    /// What a reader must know beside the figures.
    pub caveats: Vec<String>,
}

/// Every name that an endpoint of a comparison can have.
pub fn compared_names() -> Vec<&'static str> {
    DEFINITIONS.iter().chain(&FURTHER).map(|d| d.name).collect()
}

fn window(r: &RunAnalysis, name: WindowName) -> Option<&crate::WindowAnalysis> {
    r.windows.iter().find(|w| w.name == name)
}

/// A figure of a window, which has no censored runs.
fn of_window(value: Option<f64>) -> Contribution {
    Contribution::of(
        value,
        None,
        &Some("the window holds no request of this kind".to_owned()),
    )
}

/// Figures that are compared besides the endpoints of a campaign: described, not tested.
const FURTHER: [Definition; 6] = [
    Definition {
        name: "baseline_goodput",
        unit: "1",
        kind: EndpointKind::Exploratory,
        heavy_tailed: false,
        pick: |r| of_window(window(r, WindowName::Baseline).and_then(|w| w.slo.goodput)),
        uncertainty: |_| None,
    },
    Definition {
        name: "baseline_ttft_p95_ms",
        unit: "ms",
        kind: EndpointKind::Exploratory,
        heavy_tailed: true,
        pick: |r| of_window(window(r, WindowName::Baseline).and_then(|w| w.ttft_ms.p95)),
        uncertainty: |_| None,
    },
    Definition {
        name: "baseline_e2e_p95_ms",
        unit: "ms",
        kind: EndpointKind::Exploratory,
        heavy_tailed: true,
        pick: |r| of_window(window(r, WindowName::Baseline).and_then(|w| w.e2e_ms.p95)),
        uncertainty: |_| None,
    },
    Definition {
        name: "fault_window_goodput",
        unit: "1",
        kind: EndpointKind::Exploratory,
        heavy_tailed: false,
        pick: |r| of_window(window(r, WindowName::Fault).and_then(|w| w.slo.goodput)),
        uncertainty: |_| None,
    },
    Definition {
        name: "fault_window_e2e_p95_ms",
        unit: "ms",
        kind: EndpointKind::Exploratory,
        heavy_tailed: true,
        pick: |r| {
            Contribution::of(
                r.fault_window_e2e_p95_ms,
                None,
                &r.fault_window_e2e_p95_note,
            )
        },
        uncertainty: |_| None,
    },
    Definition {
        name: "requests_lost",
        unit: "1",
        kind: EndpointKind::Exploratory,
        heavy_tailed: false,
        pick: |r| {
            Contribution::of(
                (r.requests_recorded > 0).then_some(r.losses.lost as f64),
                None,
                &Some("the run has no request records".to_owned()),
            )
        },
        uncertainty: |_| None,
    },
];

/// Compares two campaigns. `margin_percent` is the difference that does not matter, in percent of the
/// lower side's mean; it must be chosen before the figures are seen, and without it no equivalence is
/// claimed. Campaigns that asked different questions, or have no valid run, give a comparison without
/// endpoints that says why.
///
/// # Errors
/// When runs are to be paired that have no partners, or the margin is no size.
pub fn compare(
    a: CompareInput<'_>,
    b: CompareInput<'_>,
    pairing: Pairing,
    margin_percent: Option<f64>,
) -> Result<CampaignComparison, CompareError> {
    if let Some(percent) = margin_percent.filter(|m| !(m.is_finite() && *m > 0.0)) {
        return Err(CompareError::Margin { percent });
    }
    let differences = plan_differences(a.plan, b.plan);
    let mut comparison = CampaignComparison {
        schema_version: COMPARISON_SCHEMA_VERSION,
        comparable: false,
        refusal: refusal(a, b, &differences),
        a: side(a),
        b: side(b),
        differences,
        pairing: None,
        level: LEVEL,
        margin_percent,
        endpoints: Vec::new(),
        caveats: Vec::new(),
    };
    if comparison.refusal.is_some() {
        return Ok(comparison);
    }
    let used = decide(a, b, pairing)?;
    let mut endpoints: Vec<ComparedEndpoint> = DEFINITIONS
        .iter()
        .chain(&FURTHER)
        .map(|d| describe(d, a, b, used.paired))
        .collect();
    judge(&mut endpoints, margin_percent);
    comparison.comparable = true;
    comparison.caveats = caveats(a, b);
    comparison.pairing = Some(used);
    comparison.endpoints = endpoints;
    Ok(comparison)
}

fn refusal(
    a: CompareInput<'_>,
    b: CompareInput<'_>,
    differences: &[PlanDifference],
) -> Option<String> {
    let keys: Vec<&str> = differences
        .iter()
        .filter(|d| d.refused)
        .map(|d| d.key.as_str())
        .collect();
    if !keys.is_empty() {
        return Some(format!(
            "the campaigns asked different questions: their plans differ in {}",
            keys.join(", ")
        ));
    }
    match (a.campaign.valid_runs, b.campaign.valid_runs) {
        (0, 0) => Some("neither A nor B has a valid run".to_owned()),
        (0, _) => Some("A has no valid run".to_owned()),
        (_, 0) => Some("B has no valid run".to_owned()),
        _ => None,
    }
}

fn side(input: CompareInput<'_>) -> ComparedSide {
    let campaign = input.campaign;
    let invalid = campaign
        .runs
        .iter()
        .filter(|v| !v.negative_control && !v.validity.valid)
        .map(|v| {
            let codes: Vec<&str> = v.validity.reasons.iter().map(|r| r.code.as_str()).collect();
            DroppedRun {
                run: v.run,
                reason: format!("invalid run: {}", codes.join(", ")),
            }
        });
    let missing = input
        .plan
        .runs
        .iter()
        .filter(|r| !r.negative_control && campaign.missing_runs.contains(&r.run))
        .map(|r| DroppedRun {
            run: r.run,
            reason: "the run was planned but has no records".to_owned(),
        });
    ComparedSide {
        campaign: campaign.campaign.clone(),
        variant: campaign.variant.clone(),
        instrument_version: input.plan.instrument_version.clone(),
        planned_runs: campaign.repetitions,
        valid_runs: campaign.valid_runs,
        invalid_runs: campaign.invalid_runs,
        excluded: invalid.chain(missing).collect(),
    }
}

/// The runs that count.
fn counted<'a>(input: CompareInput<'a>) -> impl Iterator<Item = &'a RunAnalysis> {
    input.runs.iter().filter(move |r| {
        !r.negative_control
            && input
                .campaign
                .runs
                .iter()
                .any(|v| v.run == r.run && v.validity.valid)
    })
}

fn decide(
    a: CompareInput<'_>,
    b: CompareInput<'_>,
    pairing: Pairing,
) -> Result<PairingUsed, CompareError> {
    let unpaired = |reason: String| PairingUsed {
        paired: false,
        reason,
    };
    if pairing == Pairing::Unpaired {
        return Ok(unpaired("as asked".to_owned()));
    }
    let planned = |input: CompareInput<'_>| -> Vec<u64> {
        let mut seeds: Vec<u64> = input
            .plan
            .runs
            .iter()
            .filter(|r| !r.negative_control)
            .map(|r| r.seed)
            .collect();
        seeds.sort_unstable();
        seeds
    };
    let (seeds_a, seeds_b) = (planned(a), planned(b));
    let distinct = seeds_a.windows(2).all(|w| w[0] != w[1]);
    if seeds_a != seeds_b || !distinct {
        let why = if seeds_a.len() == seeds_b.len() {
            "their seeds differ".to_owned()
        } else {
            format!("A plans {} runs, B {}", seeds_a.len(), seeds_b.len())
        };
        return match pairing {
            Pairing::Paired => Err(CompareError::NotPairable { why }),
            _ => Ok(unpaired(why)),
        };
    }
    if pairing == Pairing::Paired {
        return Ok(PairingUsed {
            paired: true,
            reason: "as asked; run against run of the same seed".to_owned(),
        });
    }
    let in_b: BTreeSet<u64> = counted(b).map(|r| r.seed).collect();
    let pairs = counted(a).filter(|r| in_b.contains(&r.seed)).count();
    let smallest = 2.0 / 2_f64.powi(i32::try_from(pairs).unwrap_or(i32::MAX));
    Ok(if smallest <= LEVEL {
        PairingUsed {
            paired: true,
            reason: format!("the seeds agree, and {pairs} pairs can reach p ≤ {LEVEL}"),
        }
    } else {
        unpaired(format!(
            "the seeds agree, but {pairs} pairs cannot reach p ≤ {LEVEL} (the smallest possible is {})",
            smallest.min(1.0)
        ))
    })
}

fn gather(definition: &Definition, input: CompareInput<'_>) -> EndpointSide {
    let mut all = EndpointSide {
        values: Vec::new(),
        censored: Vec::new(),
        dropped: Vec::new(),
        median: None,
        mean: None,
        sample_sd: None,
        km_median: None,
        uncertainty: None,
    };
    for run in counted(input) {
        match (definition.pick)(run) {
            Contribution::Value(value) => {
                all.values.push(ComparedValue {
                    run: run.run,
                    seed: run.seed,
                    value,
                });
                all.uncertainty = all
                    .uncertainty
                    .into_iter()
                    .chain((definition.uncertainty)(run))
                    .reduce(f64::max);
            }
            Contribution::AtLeast(at_least) => all.censored.push(CensoredRun {
                run: run.run,
                at_least,
            }),
            Contribution::Nothing(reason) => all.dropped.push(DroppedRun {
                run: run.run,
                reason,
            }),
        }
    }
    if all.censored.is_empty() {
        let numbers = all.numbers();
        all.median = median(&numbers);
        all.mean = mean(&numbers);
        all.sample_sd = sample_sd(&numbers);
    } else {
        all.km_median = kaplan_meier(&all.sample())
            .into_iter()
            .find(|(_, survival)| *survival <= 0.5 + 1e-12)
            .map(|(at, _)| at);
    }
    all
}

/// An estimate of a mean difference.
struct Estimate {
    difference: f64,
    se: f64,
    df: f64,
}

impl Estimate {
    /// Welch's (1947), with Satterthwaite's degrees of freedom; `None` without any spread.
    fn unpaired(a: &[f64], b: &[f64]) -> Option<Self> {
        let share = |x: &[f64]| sample_sd(x).map(|sd| sd * sd / x.len() as f64);
        let (va, vb) = (share(a)?, share(b)?);
        let total = va + vb;
        let below = va * va / (a.len() - 1) as f64 + vb * vb / (b.len() - 1) as f64;
        (total > 0.0).then_some(Self {
            difference: mean(b)? - mean(a)?,
            se: total.sqrt(),
            df: total * total / below,
        })
    }

    fn paired(differences: &[f64]) -> Option<Self> {
        let sd = sample_sd(differences).filter(|sd| *sd > 0.0)?;
        Some(Self {
            difference: mean(differences)?,
            se: sd / (differences.len() as f64).sqrt(),
            df: (differences.len() - 1) as f64,
        })
    }

    /// t·SE, with the multiplier to three decimals as everywhere in the method.
    fn reach(&self, p: f64) -> Option<f64> {
        t_quantile_real(p, self.df).map(|t| (t * 1000.0).round() / 1000.0 * self.se)
    }

    fn interval(&self, p: f64) -> Option<Interval> {
        self.reach(p).map(|r| Interval {
            lo: self.difference - r,
            hi: self.difference + r,
        })
    }
}

/// Upper tail outside a 95 % interval.
const TAIL_95: f64 = 0.025;
/// Upper tail outside a 90 % interval, that of two one-sided tests at 5 %.
const TAIL_90: f64 = 0.05;

/// Everything but p after adjustment and the verdict.
fn describe(
    definition: &Definition,
    a: CompareInput<'_>,
    b: CompareInput<'_>,
    paired: bool,
) -> ComparedEndpoint {
    let (side_a, side_b) = (gather(definition, a), gather(definition, b));
    let uncertainty = side_a.uncertainty.unwrap_or(0.0) + side_b.uncertainty.unwrap_or(0.0);
    let mut e = ComparedEndpoint {
        name: definition.name.to_owned(),
        unit: definition.unit.to_owned(),
        endpoint: definition.kind,
        heavy_tailed: definition.heavy_tailed,
        pairs: None,
        median_difference: None,
        shift_interval: None,
        mean_difference: None,
        mean_interval: None,
        df: None,
        interval_note: None,
        p: None,
        p_adjusted: None,
        smallest_p: None,
        p_note: None,
        noise: Noise {
            spread: None,
            uncertainty,
            floor: None,
        },
        carried_margin: None,
        verdict: Verdict::CannotTell { why: String::new() },
        a: side_a,
        b: side_b,
    };
    let censored = !(e.a.censored.is_empty() && e.b.censored.is_empty());
    let test = if e.a.n() == 0 || e.b.n() == 0 {
        Err(absence(&e))
    } else if censored {
        describe_censored(&mut e, paired)
    } else if paired {
        describe_pairs(&mut e)
    } else {
        describe_samples(&mut e)
    };
    if e.endpoint == EndpointKind::Exploratory {
        e.p_note = Some("exploratory: described, not tested".to_owned());
        return e;
    }
    match test {
        Ok(test) if test.smallest_p <= LEVEL => {
            e.p = Some(test.p);
            e.smallest_p = Some(test.smallest_p);
        }
        Ok(test) => {
            e.smallest_p = Some(test.smallest_p);
            e.p_note = Some(format!(
                "refused: so few runs cannot reach p ≤ {LEVEL}; the smallest possible is {}",
                p_text(test.smallest_p)
            ));
        }
        Err(why) => e.p_note = Some(why),
    }
    e
}

fn p_text(p: f64) -> String {
    if p < 0.0001 {
        "below 0.0001".to_owned()
    } else {
        format!("{p:.4}")
    }
}

/// Why one side has nothing to compare.
fn absence(e: &ComparedEndpoint) -> String {
    let sides: Vec<String> = [("A", &e.a), ("B", &e.b)]
        .into_iter()
        .filter(|(_, s)| s.n() == 0)
        .map(|(name, s)| {
            let reason = s.dropped.first().map_or("no run", |d| d.reason.as_str());
            format!("{name} has no value: {reason}")
        })
        .collect();
    sides.join("; ")
}

fn describe_censored(e: &mut ComparedEndpoint, paired: bool) -> Result<PermutationTest, String> {
    e.median_difference = e.b.centre().zip(e.a.centre()).map(|(b, a)| b - a);
    e.interval_note = Some(
        "refused: runs that never got there count as \"at least\", and carry no mean or spread"
            .to_owned(),
    );
    let how = "exact permutation of Gehan's scores, which rank censored runs by what is certain";
    e.p_note = Some(if paired {
        format!("{how}; unpaired, since a censored run has no difference")
    } else {
        how.to_owned()
    });
    let (a, b) = scores(e);
    permutation_unpaired(&a, &b)
}

/// Gehan's scores of both sides.
fn scores(e: &ComparedEndpoint) -> (Vec<f64>, Vec<f64>) {
    let pooled: Vec<(f64, bool)> = e.a.sample().into_iter().chain(e.b.sample()).collect();
    let mut a = gehan_scores(&pooled);
    let b = a.split_off(e.a.n());
    (a, b)
}

fn describe_samples(e: &mut ComparedEndpoint) -> Result<PermutationTest, String> {
    let (a, b) = (e.a.numbers(), e.b.numbers());
    e.median_difference = median(&b).zip(median(&a)).map(|(b, a)| b - a);
    e.mean_difference = mean(&b).zip(mean(&a)).map(|(b, a)| b - a);
    e.noise.spread = pooled_sd(&a, &b);
    let shift = |tail| shift_unpaired(&a, &b, tail);
    fill_intervals(e, Estimate::unpaired(&a, &b), shift);
    permutation_unpaired(&a, &b)
}

fn pooled_sd(a: &[f64], b: &[f64]) -> Option<f64> {
    let squares = |x: &[f64]| sample_sd(x).map(|sd| sd * sd * (x.len() - 1) as f64);
    let (sa, sb) = (squares(a), squares(b));
    let df = (a.len() + b.len()).checked_sub(2).filter(|df| *df > 0)?;
    (sa.is_some() || sb.is_some())
        .then(|| ((sa.unwrap_or(0.0) + sb.unwrap_or(0.0)) / df as f64).sqrt())
}

fn describe_pairs(e: &mut ComparedEndpoint) -> Result<PermutationTest, String> {
    let of_b: BTreeMap<u64, f64> = e.b.values.iter().map(|v| (v.seed, v.value)).collect();
    let differences: Vec<f64> =
        e.a.values
            .iter()
            .filter_map(|v| of_b.get(&v.seed).map(|b| b - v.value))
            .collect();
    e.pairs = Some(differences.len() as u64);
    e.median_difference = median(&differences);
    e.mean_difference = mean(&differences);
    e.noise.spread = sample_sd(&differences);
    let shift = |tail| shift_paired(&differences, tail);
    fill_intervals(e, Estimate::paired(&differences), shift);
    permutation_paired(&differences)
}

fn fill_intervals(
    e: &mut ComparedEndpoint,
    estimate: Option<Estimate>,
    shift: impl Fn(f64) -> Option<(f64, f64)>,
) {
    let shift = |tail| shift(tail).map(|(lo, hi)| Interval { lo, hi });
    e.shift_interval = shift(TAIL_95);
    if let Some(estimate) = &estimate {
        e.mean_interval = estimate.interval(1.0 - TAIL_95);
        e.df = Some(estimate.df);
        e.noise.floor = estimate
            .reach(1.0 - TAIL_95)
            .map(|r| r + e.noise.uncertainty);
    }
    let of_mean = estimate.and_then(|x| x.interval(1.0 - TAIL_90));
    let lead = if e.heavy_tailed {
        // Two samples that carry the 90 % shift but not that of 95 % are led by the t-interval.
        e.shift_interval.and_then(|_| shift(TAIL_90)).or(of_mean)
    } else {
        of_mean
    };
    e.carried_margin = lead
        .map(|i| i.widened(e.noise.uncertainty))
        .map(|i| i.lo.abs().max(i.hi.abs()));
    e.interval_note = match (e.shift_interval, e.mean_interval) {
        (None, None) => {
            Some("no interval: it needs two runs a side that differ from each other".to_owned())
        }
        (None, Some(_)) if e.heavy_tailed => Some(
            "t-interval with normality caveat: so few runs carry no interval without normality"
                .to_owned(),
        ),
        _ => None,
    };
}

/// The interval that a verdict rests on: the shift's for heavy tails where the sample carries it, else
/// that of the mean.
fn lead(e: &ComparedEndpoint) -> Option<Interval> {
    if e.heavy_tailed {
        e.shift_interval.or(e.mean_interval)
    } else {
        e.mean_interval
    }
}

/// Adjusts the family and gives every endpoint its verdict.
fn judge(endpoints: &mut [ComparedEndpoint], margin_percent: Option<f64>) {
    let family: Vec<usize> = (0..endpoints.len())
        .filter(|i| endpoints[*i].endpoint == EndpointKind::Secondary && endpoints[*i].p.is_some())
        .collect();
    let p: Vec<f64> = family.iter().filter_map(|i| endpoints[*i].p).collect();
    let best = family
        .iter()
        .filter_map(|i| endpoints[*i].smallest_p)
        .reduce(f64::min);
    let reachable = best.is_none_or(|best| best * family.len() as f64 <= LEVEL);
    for (i, adjusted) in family.iter().zip(holm(&p)) {
        endpoints[*i].p_adjusted = Some(adjusted);
    }
    let m = family.len();
    for e in endpoints {
        if e.endpoint == EndpointKind::Primary {
            e.p_adjusted = e.p;
        }
        let holm_bars = e.endpoint == EndpointKind::Secondary && !reachable;
        e.verdict = verdict(e, margin_percent, holm_bars.then_some(m));
    }
}

/// The margin in the endpoint's unit.
fn margin(e: &ComparedEndpoint, percent: f64) -> Option<f64> {
    let lower = e.a.mean?.abs().min(e.b.mean?.abs());
    Some(percent / 100.0 * lower).filter(|m| *m > 0.0)
}

fn verdict(e: &ComparedEndpoint, margin_percent: Option<f64>, barred: Option<usize>) -> Verdict {
    let cannot = |why: String| Verdict::CannotTell { why };
    if e.endpoint == EndpointKind::Exploratory {
        let note = if e.a.n() == 0 || e.b.n() == 0 {
            absence(e)
        } else {
            e.p_note.clone().unwrap_or_default()
        };
        return cannot(note);
    }
    let asked = margin_percent.and_then(|percent| margin(e, percent));
    if let (Some(asked), Some(carried)) = (asked, e.carried_margin)
        && carried <= asked
    {
        return Verdict::Equivalent { within: asked };
    }
    let (Some(p), Some(adjusted)) = (e.p, e.p_adjusted) else {
        return cannot(e.p_note.clone().unwrap_or_default());
    };
    if adjusted > LEVEL {
        return cannot(match barred {
            Some(m) if p <= LEVEL => format!(
                "p = {}, but so few runs cannot reach {LEVEL} after Holm over {m} figures",
                p_text(p)
            ),
            _ if p <= LEVEL => format!("p = {} after Holm", p_text(adjusted)),
            _ => format!("p = {}", p_text(adjusted)),
        });
    }
    let uncertainty = e.noise.uncertainty;
    if lead(e).is_some_and(|i| i.widened(uncertainty).holds_zero()) {
        return cannot(
            "the interval holds 0 once the figures' own uncertainty is added".to_owned(),
        );
    }
    if e.median_difference.is_some_and(|d| d.abs() <= uncertainty) {
        return cannot("the difference is no larger than the figures' own uncertainty".to_owned());
    }
    let (a, b) = scores(e);
    let tested = e
        .mean_difference
        .or_else(|| mean(&b).zip(mean(&a)).map(|(b, a)| b - a))
        .unwrap_or(0.0);
    match e.median_difference {
        Some(d) if d * tested <= 0.0 => {
            cannot("the medians and what was tested point in different directions".to_owned())
        }
        _ if tested > 0.0 => Verdict::ALower,
        _ => Verdict::BLower,
    }
}

fn caveats(a: CompareInput<'_>, b: CompareInput<'_>) -> Vec<String> {
    let mut all = Vec::new();
    for (name, side) in [("A", a), ("B", b)] {
        all.extend(side.campaign.caveats.iter().map(|c| format!("{name}: {c}")));
    }
    all.push(
        "two campaigns run one after the other differ in everything that changed between them, not only in the target"
            .to_owned(),
    );
    all
}
