//! Two campaigns compared: planted differences are found, and nothing else.

// The whole file is a test; the lint knows only functions marked as such.
#![allow(clippy::unwrap_used)]

mod common;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use blackstart_analyze::{
    CampaignAnalysis, CampaignComparison, CompareError, CompareInput, ComparedEndpoint, Pairing,
    RunAnalysis, Verdict, analyze_campaign, analyze_run, compare, permutation_paired,
    permutation_unpaired, shift_unpaired,
};
use blackstart_plan::{Plan, RunPlan};
use common::{plan, records, run};
use proptest::prelude::*;

static RUN: LazyLock<RunAnalysis> =
    LazyLock::new(|| analyze_run(&plan(), &run(2100), &records()).unwrap());

/// A campaign whose runs differ in their outage only; `None` = never back within 50 s.
struct Campaign {
    plan: Plan,
    analysis: CampaignAnalysis,
    runs: Vec<RunAnalysis>,
}

impl Campaign {
    fn of(outages: &[Option<f64>], first_seed: u64) -> Self {
        Self::with(outages, first_seed, |_| {})
    }

    fn with(outages: &[Option<f64>], first_seed: u64, change: impl Fn(&mut RunAnalysis)) -> Self {
        let mut plan = plan();
        plan.runs = (0..outages.len() as u32)
            .map(|i| RunPlan {
                run: i + 1,
                seed: first_seed + u64::from(i),
                ..run(2100)
            })
            .collect();
        let runs: Vec<RunAnalysis> = outages
            .iter()
            .zip(&plan.runs)
            .map(|(outage, planned)| {
                let mut r = RUN.clone();
                (r.run, r.seed) = (planned.run, planned.seed);
                r.outage_s = *outage;
                r.outage_uncertainty_s = outage.map(|_| 0.1);
                r.outage_censored_at_s = outage.is_none().then_some(50.0);
                change(&mut r);
                r
            })
            .collect();
        let analysis = analyze_campaign(&plan, &runs, &BTreeMap::new());
        Self {
            plan,
            analysis,
            runs,
        }
    }

    fn input(&self) -> CompareInput<'_> {
        CompareInput {
            plan: &self.plan,
            campaign: &self.analysis,
            runs: &self.runs,
        }
    }
}

fn some(values: &[f64]) -> Vec<Option<f64>> {
    values.iter().copied().map(Some).collect()
}

fn compared(a: &Campaign, b: &Campaign) -> CampaignComparison {
    compare(a.input(), b.input(), Pairing::Auto, None).unwrap()
}

fn outage(c: &CampaignComparison) -> &ComparedEndpoint {
    c.endpoints.iter().find(|e| e.name == "outage_s").unwrap()
}

fn why(e: &ComparedEndpoint) -> &str {
    match &e.verdict {
        Verdict::CannotTell { why } => why,
        other => panic!("{other:?}"),
    }
}

const SHORT: [f64; 5] = [4.1, 4.4, 4.2, 4.6, 4.3];
const LONG: [f64; 5] = [9.3, 9.0, 9.9, 9.4, 9.1];

#[test]
fn a_planted_difference_is_found_and_nothing_else() {
    let (a, b) = (
        Campaign::of(&some(&SHORT), 1),
        Campaign::of(&some(&LONG), 1),
    );
    let c = compared(&a, &b);
    assert!(c.comparable && c.refusal.is_none(), "{c:?}");
    let pairing = c.pairing.as_ref().unwrap();
    assert!(
        !pairing.paired && pairing.reason.contains("0.0625"),
        "{pairing:?}"
    );
    let e = outage(&c);
    assert_eq!(e.verdict, Verdict::ALower);
    assert_eq!(e.p, Some(2.0 / 252.0));
    assert_eq!(e.p_adjusted, e.p);
    assert!((e.median_difference.unwrap() - 5.0).abs() < 1e-9, "{e:?}");
    assert!((e.noise.uncertainty - 0.2).abs() < 1e-12);
    let shift = e.shift_interval.unwrap();
    assert!(shift.lo < 5.0 && shift.hi > 5.0 && shift.lo > 4.0);
    for other in c.endpoints.iter().filter(|e| e.name != "outage_s") {
        assert!(!why(other).is_empty(), "{other:?}");
    }
}

#[test]
fn one_campaign_against_itself_has_no_winner() {
    for values in [&SHORT[..], &LONG[..], &[4.0; 5], &SHORT[..2], &SHORT[..1]] {
        let a = Campaign::of(&some(values), 1);
        for pairing in [Pairing::Auto, Pairing::Paired, Pairing::Unpaired] {
            let c = compare(a.input(), a.input(), pairing, None).unwrap();
            for e in &c.endpoints {
                assert!(!why(e).is_empty(), "{e:?}");
                assert!(e.p.is_none_or(|p| p == 1.0), "{e:?}");
            }
        }
    }
}

#[test]
fn a_difference_below_the_figures_own_uncertainty_names_no_winner() {
    let shifted: Vec<f64> = SHORT.iter().map(|x| x / 100.0 + 4.1).collect();
    let a = Campaign::of(&some(&SHORT.map(|x| x / 100.0 + 4.0)), 1);
    let c = compared(&a, &Campaign::of(&some(&shifted), 1));
    let e = outage(&c);
    assert_eq!(e.p, Some(2.0 / 252.0));
    assert!(why(e).contains("uncertainty"), "{e:?}");
}

#[test]
fn too_few_runs_are_refused_a_test() {
    let (a, b) = (
        Campaign::of(&some(&SHORT[..3]), 1),
        Campaign::of(&some(&LONG[..3]), 1),
    );
    let c = compared(&a, &b);
    let e = outage(&c);
    assert_eq!((e.p, e.smallest_p), (None, Some(0.1)));
    assert!(why(e).contains("cannot reach"), "{e:?}");
    let c = compare(a.input(), b.input(), Pairing::Paired, None).unwrap();
    assert_eq!(outage(&c).smallest_p, Some(0.25));
    assert_eq!(outage(&c).pairs, Some(3));
}

#[test]
fn equal_seeds_pair_where_the_pairs_carry_it() {
    let a: [f64; 6] = [4.1, 5.4, 6.2, 7.6, 8.3, 9.1];
    let b = a.map(|x| x + 1.0 + (x * 7.0).sin() / 10.0);
    let (a, b) = (Campaign::of(&some(&a), 1), Campaign::of(&some(&b), 1));
    let c = compared(&a, &b);
    assert!(c.pairing.as_ref().unwrap().paired);
    assert_eq!(outage(&c).p, Some(2.0 / 64.0));
    assert_eq!(outage(&c).verdict, Verdict::ALower);
    // Sample against sample, the spread over the runs hides it.
    let c = compare(a.input(), b.input(), Pairing::Unpaired, None).unwrap();
    assert!(why(outage(&c)).contains("p = "));
}

#[test]
fn runs_without_partners_are_not_paired() {
    let a = Campaign::of(&some(&SHORT), 1);
    for b in [
        Campaign::of(&some(&LONG), 2),
        Campaign::of(&some(&LONG[..4]), 1),
    ] {
        assert!(!compared(&a, &b).pairing.unwrap().paired);
        let error = compare(a.input(), b.input(), Pairing::Paired, None).unwrap_err();
        assert!(matches!(error, CompareError::NotPairable { .. }), "{error}");
    }
}

#[test]
fn equivalence_is_claimed_only_within_a_margin_that_was_asked_for() {
    let (a, b) = (
        Campaign::of(&some(&[10.0, 10.1, 9.9, 10.05, 9.95]), 1),
        Campaign::of(&some(&[10.02, 10.12, 9.92, 10.0, 9.97]), 1),
    );
    let with = |margin| compare(a.input(), b.input(), Pairing::Auto, margin);
    let c = with(None).unwrap();
    assert!(why(outage(&c)).contains("p = "));
    let carried = outage(&c).carried_margin.unwrap();
    assert!(carried > 0.2 && carried < 1.0, "{carried}");
    let c = with(Some(10.0)).unwrap();
    assert!(
        matches!(outage(&c).verdict, Verdict::Equivalent { within } if within >= carried),
        "{:?}",
        outage(&c)
    );
    assert!(!why(outage(&with(Some(1.0)).unwrap())).is_empty());
    for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
        assert!(matches!(with(Some(bad)), Err(CompareError::Margin { .. })));
    }
}

#[test]
fn runs_that_never_came_back_count() {
    let never = [Some(9.3), Some(9.0), None, None, None];
    let (a, b) = (Campaign::of(&some(&SHORT), 1), Campaign::of(&never, 1));
    let c = compared(&a, &b);
    let e = outage(&c);
    assert_eq!(e.b.censored.len(), 3);
    assert_eq!(
        (e.b.mean, e.mean_difference, e.mean_interval),
        (None, None, None)
    );
    assert_eq!(e.p, Some(2.0 / 252.0));
    assert_eq!(e.verdict, Verdict::ALower);
    // Dropped, the three would leave two runs that look like A's.
    let alike = [Some(4.2), Some(4.3), None, None, None];
    let c = compared(&a, &Campaign::of(&alike, 1));
    assert_eq!(outage(&c).b.centre(), None);
    assert!(why(outage(&c)).contains("p = "));
}

#[test]
fn invalid_runs_are_left_out_by_name() {
    let a = Campaign::of(&some(&SHORT), 1);
    let b = Campaign::with(&some(&LONG), 1, |r| {
        if r.run == 2 {
            r.partial = true;
        }
    });
    let c = compared(&a, &b);
    assert_eq!((c.b.valid_runs, c.b.invalid_runs), (4, 1));
    assert_eq!(c.b.excluded.len(), 1);
    assert!(c.b.excluded[0].reason.contains("partial"));
    assert_eq!(outage(&c).b.values.len(), 4);
    let none = Campaign::with(&some(&LONG), 1, |r| r.partial = true);
    let c = compared(&a, &none);
    assert!(!c.comparable && c.endpoints.is_empty());
    assert_eq!(c.refusal.as_deref(), Some("B has no valid run"));
    let c = compared(&none, &none);
    assert_eq!(
        c.refusal.as_deref(),
        Some("neither A nor B has a valid run")
    );
}

#[test]
fn another_question_is_refused_and_another_target_is_named() {
    let a = Campaign::of(&some(&SHORT), 1);
    let mut b = Campaign::of(&some(&LONG), 6);
    b.plan.campaign = "another name".into();
    b.plan.config_sha256 = "other".into();
    b.plan.target.replicas[0].base_url = "http://127.0.0.1:2".into();
    b.plan
        .load
        .headers
        .push(("authorization".into(), "secret".into()));
    let c = compared(&a, &b);
    assert!(c.comparable, "{:?}", c.refusal);
    let keys: Vec<&str> = c.differences.iter().map(|d| d.key.as_str()).collect();
    assert_eq!(keys, ["load.headers[0]", "target.replicas[0].base_url"]);
    assert!(!format!("{:?}", c.differences).contains("secret"));
    b.plan.phases.baseline_ns += 1;
    b.plan.fault.as_mut().unwrap().variant = "process-freeze".into();
    let c = compared(&a, &b);
    assert!(!c.comparable && c.endpoints.is_empty());
    let refusal = c.refusal.unwrap();
    assert!(
        refusal.contains("fault.variant, phases.baseline_ns"),
        "{refusal}"
    );
}

/// Values on a grid of 1/16, so that shifts are exact and ties occur.
fn sample() -> impl Strategy<Value = Vec<f64>> {
    prop::collection::vec((16..2000_i32).prop_map(|x| f64::from(x) / 16.0), 1..7)
}

/// The same with runs that never came back.
fn outages() -> impl Strategy<Value = Vec<Option<f64>>> {
    prop::collection::vec(
        prop::option::weighted(0.8, (16..600_i32).prop_map(|x| f64::from(x) / 16.0)),
        1..7,
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn exchanging_the_sides_negates_the_difference(a in outages(), b in outages(), same in any::<bool>()) {
        let (a, b) = (Campaign::of(&a, 1), Campaign::of(&b, if same { 1 } else { 50 }));
        let there = compare(a.input(), b.input(), Pairing::Auto, Some(20.0)).unwrap();
        let back = compare(b.input(), a.input(), Pairing::Auto, Some(20.0)).unwrap();
        for (x, y) in there.endpoints.iter().zip(&back.endpoints) {
            let opposite = |x: Option<f64>, y: Option<f64>| match (x, y) {
                (Some(x), Some(y)) => (x + y).abs() < 1e-9,
                (x, y) => x.is_none() && y.is_none(),
            };
            prop_assert!(opposite(x.mean_difference, y.mean_difference));
            prop_assert!(opposite(x.median_difference, y.median_difference));
            prop_assert!(opposite(x.mean_interval.map(|i| i.lo), y.mean_interval.map(|i| i.hi)));
            prop_assert!(opposite(x.shift_interval.map(|i| i.lo), y.shift_interval.map(|i| i.hi)));
            prop_assert_eq!(x.p, y.p);
            match (&x.verdict, &y.verdict) {
                (Verdict::ALower, other) => prop_assert_eq!(other, &Verdict::BLower),
                (Verdict::BLower, other) => prop_assert_eq!(other, &Verdict::ALower),
                (Verdict::Equivalent { within: x }, Verdict::Equivalent { within: y }) => {
                    prop_assert!((x - y).abs() < 1e-12);
                }
                (x, y) => {
                    let neither = matches!(
                        (x, y),
                        (Verdict::CannotTell { .. }, Verdict::CannotTell { .. })
                    );
                    prop_assert!(neither);
                }
            }
        }
    }

    #[test]
    fn p_is_invariant_under_shifts_and_order(a in sample(), b in sample(), shift in -4000..4000_i32) {
        let shift = f64::from(shift);
        let moved = |x: &[f64]| -> Vec<f64> { x.iter().rev().map(|v| v + shift).collect() };
        let p = permutation_unpaired(&a, &b).unwrap();
        prop_assert_eq!(p, permutation_unpaired(&moved(&a), &moved(&b)).unwrap());
        prop_assert_eq!(p, permutation_unpaired(&b, &a).unwrap());
        prop_assert!(p.p >= p.smallest_p - 1e-12 && p.p <= 1.0);
        let negated: Vec<f64> = a.iter().map(|x| -x).collect();
        prop_assert_eq!(permutation_paired(&a).unwrap(), permutation_paired(&negated).unwrap());
    }

    /// The interval of the shift moves with the shift.
    #[test]
    fn a_shift_is_in_its_interval(a in prop::collection::vec((16..2000_i32).prop_map(f64::from), 4..9), by in -500..500_i32) {
        let by = f64::from(by);
        let b: Vec<f64> = a.iter().map(|x| x + by).collect();
        let (lo, hi) = shift_unpaired(&a, &b, 0.025).unwrap();
        prop_assert!(lo <= by && by <= hi);
    }
}

/// Campaigns of one truth: the primary endpoint names a winner in at most 5 of 100 pairs.
#[test]
fn without_a_difference_a_winner_is_named_no_more_often_than_the_level() {
    let mut state = 1_u64;
    let mut unit = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1_u64 << 53) as f64
    };
    let (mut winners, pairs) = (0, 1000);
    for _ in 0..pairs {
        // Heavy tails, and no uncertainty that would make it easier.
        let mut draw = || -> Vec<Option<f64>> {
            (0..5)
                .map(|_| Some(5.0 - 20.0 * unit().max(1e-9).ln()))
                .collect()
        };
        let exact = |r: &mut RunAnalysis| r.outage_uncertainty_s = None;
        let (a, b) = (
            Campaign::with(&draw(), 1, exact),
            Campaign::with(&draw(), 9, exact),
        );
        let c = compared(&a, &b);
        winners += u32::from(!matches!(outage(&c).verdict, Verdict::CannotTell { .. }));
    }
    assert!(winners <= pairs * 7 / 100, "{winners} of {pairs}");
}

/// The whole comparison against scipy: `reference/make.py` made the values.
#[test]
fn differences_and_censored_tests_are_those_of_the_reference() {
    let all: serde_json::Value =
        serde_json::from_str(include_str!("reference/values.json")).unwrap();
    let numbers = |v: &serde_json::Value| -> Vec<f64> {
        v.as_array()
            .unwrap()
            .iter()
            .map(|x| x.as_f64().unwrap())
            .collect()
    };
    for row in all["two_samples"].as_array().unwrap() {
        let (a, b) = (numbers(&row["a"]), numbers(&row["b"]));
        let (a, b) = (Campaign::of(&some(&a), 1), Campaign::of(&some(&b), 1));
        let paired = if row["paired"] == true {
            Pairing::Paired
        } else {
            Pairing::Unpaired
        };
        let c = compare(a.input(), b.input(), paired, None).unwrap();
        let e = outage(&c);
        let interval = e.mean_interval.unwrap();
        for (got, key) in [
            (e.mean_difference.unwrap(), "mean_difference"),
            (interval.lo, "mean_lo"),
            (interval.hi, "mean_hi"),
            (e.df.unwrap(), "df"),
        ] {
            let want = row[key].as_f64().unwrap();
            assert!((got - want).abs() < 1e-9, "{key}: {got}, reference {want}");
        }
    }
    for row in all["gehan"].as_array().unwrap() {
        let n = row["n"].as_u64().unwrap() as usize;
        let sample: Vec<(f64, bool)> = row["sample"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| (r[0].as_f64().unwrap(), r[1].as_bool().unwrap()))
            .collect();
        let side = |rows: &[(f64, bool)]| {
            let values: Vec<Option<f64>> =
                rows.iter().map(|(x, exact)| exact.then_some(*x)).collect();
            let bounds: BTreeMap<u32, f64> = rows
                .iter()
                .enumerate()
                .map(|(i, r)| (i as u32 + 1, r.0))
                .collect();
            Campaign::with(&values, 1, move |r| {
                if r.outage_s.is_none() {
                    r.outage_censored_at_s = Some(bounds[&r.run]);
                }
            })
        };
        let (a, b) = (side(&sample[..n]), side(&sample[n..]));
        let c = compare(a.input(), b.input(), Pairing::Unpaired, None).unwrap();
        let (got, want) = (outage(&c).p.unwrap(), row["p"].as_f64().unwrap());
        assert!((got - want).abs() < 1e-12, "{got}, reference {want}");
    }
}
