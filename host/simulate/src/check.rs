//! The analysis against the truth: what must be equal is equal, what must lie within a bound does.

use std::collections::{BTreeMap, BTreeSet};

use blackstart_analyze::{
    Detection, InFlightCounts, OutcomeCounts, RecoveryStatus, RunAnalysis, analyze_run, validity,
};
use blackstart_plan::Plan;

use crate::log::CAPTURE_NS;
use crate::truth::{FlightTruth, OutcomeTruth, RecoveryTruth, SplitTruth, Truth};
use crate::{Scenario, Settings, SimulateError, plan, simulate};

/// What a mismatch is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum About {
    Recovery,
    Count,
    Time,
    Verdict,
}

/// A figure that is not what was planted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mismatch {
    pub(crate) about: About,
    /// Which figure.
    pub what: String,
    /// What was planted.
    pub planted: String,
    /// What the analysis found.
    pub found: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: planted {}, found {}",
            self.what, self.planted, self.found
        )
    }
}

/// One run, compared.
#[derive(Debug, Clone, PartialEq)]
pub struct RunCheck {
    /// The scenario.
    pub scenario: &'static str,
    /// The seed.
    pub seed: u64,
    /// Requests of the run.
    pub requests: u64,
    /// Every figure that is not what was planted; empty = the analysis found the truth.
    pub mismatches: Vec<Mismatch>,
    /// Whether the method defines the conclusion: chance can not move it by more than a bucket.
    pub certain: bool,
    /// Whether the analysis says that service recovered.
    pub recovered: bool,
    /// Buckets from the entry that the planted course defines to the one that was found.
    pub off_buckets: Option<i64>,
    /// Buckets from the one in which service truly returned to the entry that was found.
    pub return_buckets: Option<i64>,
    /// Seconds from the true return of service to the entry that was found.
    pub lag_s: Option<f64>,
    /// Whether every count is exactly the planted one.
    pub counts_exact: bool,
    /// A recovery was found, and none was planted.
    pub false_recovery: bool,
    /// An outage was found, and none was planted.
    pub false_alarm: bool,
    /// By how many requests the count of those in flight differs from the count at the true fire
    /// (the fire is known only within its uncertainty).
    pub in_flight_off: Option<i64>,
}

/// Simulates a run, analyses its records, and compares.
///
/// # Errors
/// When the settings give no schedule.
pub fn check_run(
    scenario: &'static Scenario,
    settings: Settings,
    seed: u64,
) -> Result<RunCheck, SimulateError> {
    let plan = plan(scenario, settings, &[seed])?;
    let simulated = simulate(scenario, settings, &plan, &plan.runs[0])?;
    let truth = &simulated.truth;
    let mut run = RunCheck {
        scenario: scenario.name,
        seed,
        requests: truth.all.scheduled,
        mismatches: Vec::new(),
        certain: truth.expected.certain,
        recovered: false,
        off_buckets: None,
        return_buckets: None,
        lag_s: None,
        counts_exact: false,
        false_recovery: false,
        false_alarm: false,
        in_flight_off: None,
    };
    let analysis = match analyze_run(&plan, &plan.runs[0], &simulated.records) {
        Ok(analysis) => analysis,
        Err(error) => {
            run.mismatches.push(Mismatch {
                about: About::Verdict,
                what: "analysis".to_owned(),
                planted: "possible".to_owned(),
                found: error.to_string(),
            });
            return Ok(run);
        }
    };
    run.mismatches = check(&plan, truth, &analysis);
    run.counts_exact = !run.mismatches.iter().any(|m| m.about == About::Count);
    let found = &analysis.recovery.pre_fault;
    run.recovered = found.status == RecoveryStatus::Recovered;
    let returns = matches!(truth.expected.recovery, RecoveryTruth::Recovered { .. });
    run.false_recovery = run.recovered && !returns;
    run.false_alarm = truth.expected.recovery == RecoveryTruth::NoOutage
        && found.status != RecoveryStatus::NoOutage;
    let bucket_ns = plan.method.recovery.bucket_ns;
    if let Some(entry_ns) = found.entry_ns {
        if let RecoveryTruth::Recovered { entry_ns: expected } = truth.expected.recovery {
            run.off_buckets = Some((entry_ns - expected) / bucket_ns);
        }
        if let Some(at_ns) = truth.service_return_ns {
            run.return_buckets = Some((entry_ns - at_ns / bucket_ns * bucket_ns) / bucket_ns);
            run.lag_s = Some((entry_ns - at_ns) as f64 / 1e9);
        }
    }
    run.in_flight_off = analysis
        .in_flight
        .as_ref()
        .zip(truth.in_flight.as_ref())
        .map(|(found, planted)| found.all.total as i64 - planted.at_the_true_fire as i64);
    Ok(run)
}

/// Compares an analysis with the truth of its run: every difference, or none.
pub fn check(plan: &Plan, truth: &Truth, analysis: &RunAnalysis) -> Vec<Mismatch> {
    let mut c = Comparison {
        plan,
        truth,
        analysis,
        about: About::Recovery,
        found: Vec::new(),
    };
    c.recovery();
    c.about = About::Count;
    c.counts();
    c.about = About::Time;
    c.fire();
    c.outage();
    c.boundaries();
    c.segments();
    c.partition();
    c.about = About::Verdict;
    c.verdict();
    c.found
}

struct Comparison<'a> {
    plan: &'a Plan,
    truth: &'a Truth,
    analysis: &'a RunAnalysis,
    about: About,
    found: Vec<Mismatch>,
}

/// Segments of the log: name, boundary that begins them (`None` = the fire), boundary that ends them.
const SEGMENTS: [(&str, Option<&str>, &str); 7] = [
    ("log_bringup", Some("banner"), "server_start"),
    ("engine_init", None, "engine_init"),
    ("weight_load", Some("model_load_start"), "weights_loaded"),
    ("torch_compile", Some("model_loaded"), "torch_compile"),
    ("profile_kv_capture", Some("torch_compile"), "graph_capture"),
    ("engine_ready", None, "engine_ready"),
    ("server_ready", None, "startup_complete"),
];

/// Largest share of service away, from which the entry's bucket is that of the return.
const ALL_AWAY: f64 = 0.999;
/// Sums of floating-point numbers in another order differ by less.
const ROUNDING: f64 = 1e-6;

impl Comparison<'_> {
    fn differs(&mut self, what: impl Into<String>, planted: String, found: String) {
        self.found.push(Mismatch {
            about: self.about,
            what: what.into(),
            planted,
            found,
        });
    }

    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, planted: T, found: T) {
        if planted != found {
            self.differs(what, format!("{planted:?}"), format!("{found:?}"));
        }
    }

    /// The detector: as the rule reads on the planted requests, and near what was planted.
    fn recovery(&mut self) {
        let (truth, found) = (self.truth, &self.analysis.recovery.pre_fault);
        let conclusion = conclusion(found);
        let counted = &truth.counted;
        self.same(
            "detector on the planted requests",
            Some(counted.recovery),
            conclusion,
        );
        self.same("dips", counted.dips, found.dips);
        self.same(
            "redegradations",
            counted.redegradations,
            found.redegradations,
        );
        let ttr_ns = match counted.recovery {
            // Without a fire there is nothing to recover from, whatever chance made of it.
            RecoveryTruth::Recovered { entry_ns } if truth.fire_ns.is_some() => {
                Some(entry_ns - truth.anchor_ns)
            }
            _ => None,
        };
        let ttr_found = self.analysis.ttr_pre_fault_s;
        self.same(
            "ttr_pre_fault_s",
            ttr_ns,
            ttr_found.map(|s| (s * 1e9).round() as i64),
        );
        let deficit = &self.analysis.recovery.deficit;
        let deficit_s = match counted.recovery {
            RecoveryTruth::Recovered { .. } => deficit.integrated_goodput_deficit,
            _ => deficit.to_timeout,
        };
        if deficit_s.is_none_or(|s| (s - counted.deficit_s).abs() > ROUNDING) {
            self.differs(
                "goodput deficit",
                format!("{} s", counted.deficit_s),
                format!("{deficit_s:?}"),
            );
        }
        if truth.expected.certain {
            self.near_the_course(found, conclusion);
        }
    }

    /// Within one bucket of what the planted course of service defines.
    fn near_the_course(&mut self, found: &Detection, conclusion: Option<RecoveryTruth>) {
        let bucket_ns = self.plan.method.recovery.bucket_ns;
        let expected = self.truth.expected.recovery;
        let near = |a: i64, b: i64| (a - b).abs() <= bucket_ns;
        let holds = match (expected, conclusion) {
            (
                RecoveryTruth::Recovered { entry_ns: a },
                Some(RecoveryTruth::Recovered { entry_ns: b }),
            )
            | (
                RecoveryTruth::Unconfirmed { candidate_ns: a },
                Some(RecoveryTruth::Unconfirmed { candidate_ns: b }),
            ) => near(a, b),
            (a, b) => Some(a) == b,
        };
        if !holds {
            self.differs(
                "detector near the planted course",
                format!("{expected:?} ± one bucket"),
                format!("{conclusion:?}"),
            );
        }
        if let Some(planted) = self.truth.expected.redegradations {
            self.same("planted redegradations", planted, found.redegradations);
        }
        // Where all service was away, the planted course enters in the very bucket of the return.
        let (Some(return_ns), Some(entry_ns)) = (self.truth.service_return_ns, found.entry_ns)
        else {
            return;
        };
        let return_bucket_ns = return_ns / bucket_ns * bucket_ns;
        let enters_there = expected
            == RecoveryTruth::Recovered {
                entry_ns: return_bucket_ns,
            };
        if enters_there && self.truth.share_away > ALL_AWAY && !near(entry_ns, return_bucket_ns) {
            self.differs(
                "entry near the return of service",
                format!("{return_bucket_ns} ns ± one bucket"),
                format!("{entry_ns} ns"),
            );
        }
    }

    fn counts(&mut self) {
        let (truth, analysis) = (self.truth, self.analysis);
        self.outcomes("run", &truth.all, &analysis.counts);
        let planted: BTreeSet<&str> = truth.windows.keys().map(String::as_str).collect();
        let found: BTreeSet<&str> = analysis.windows.iter().map(|w| w.name.name()).collect();
        self.same("windows", planted, found);
        for window in &analysis.windows {
            let name = window.name.name();
            if let Some(planted) = truth.windows.get(name) {
                self.outcomes(name, planted, &window.counts);
                self.same(&format!("{name}.good"), planted.good, window.slo.good);
                let latencies = window.e2e_ms.count;
                self.same(&format!("{name} latencies"), planted.completed, latencies);
            }
        }
        let outage = truth.windows.get("outage");
        let found = analysis.outage_outcomes.as_ref();
        self.same(
            "outage_outcomes",
            outage.map(|o| (o.scheduled, o.completed, o.errored, o.censored)),
            found.map(|o| (o.total, o.completed, o.errored, o.censored)),
        );
        self.flight(
            truth.in_flight.as_ref(),
            analysis
                .in_flight
                .as_ref()
                .map(|f| (f.determinate, f.indeterminate, &f.errored_by_class)),
        );
        let split = analysis.losses.split.map(|s| SplitTruth {
            in_flight: pair(s.in_flight),
            before_fire: pair(s.before_fire),
            waiting_at_fire: pair(s.waiting_at_fire),
            during_outage: pair(s.during_outage),
            after_outage: pair(s.after_outage),
        });
        self.same("losses", truth.split, split);
        self.same(
            "lost",
            truth.all.errored + truth.all.censored,
            analysis.losses.lost,
        );
    }

    fn outcomes(&mut self, name: &str, planted: &OutcomeTruth, found: &OutcomeCounts) {
        self.same(
            &format!("{name}: scheduled, completed, errored, censored"),
            (
                planted.scheduled,
                planted.completed,
                planted.errored,
                planted.censored,
            ),
            (
                found.scheduled,
                found.completed,
                found.errored,
                found.censored,
            ),
        );
        self.same(
            &format!("{name}: errors by class"),
            &planted.errored_by_class,
            &found.errored_by_class,
        );
    }

    fn flight(
        &mut self,
        planted: Option<&FlightTruth>,
        found: Option<(InFlightCounts, InFlightCounts, &BTreeMap<String, u64>)>,
    ) {
        let counts = |o: &OutcomeTruth| InFlightCounts {
            total: o.scheduled,
            completed: o.completed,
            errored: o.errored,
            censored: o.censored,
        };
        self.same(
            "in flight, determinate and indeterminate",
            planted.map(|p| (counts(&p.determinate), counts(&p.indeterminate))),
            found.map(|(d, i, _)| (d, i)),
        );
        let classes = planted.map(|p| {
            let mut sum = p.determinate.errored_by_class.clone();
            for (class, n) in &p.indeterminate.errored_by_class {
                *sum.entry(class.clone()).or_default() += n;
            }
            sum
        });
        self.same(
            "in flight, errors by class",
            classes,
            found.map(|(.., classes)| classes.clone()),
        );
    }

    fn fire(&mut self) {
        let fire = &self.analysis.fire;
        let found = fire
            .actual_ns
            .zip(fire.fire_uncertainty_ns)
            .zip(fire.indeterminate_zone_ns)
            .map(|((at, uncertainty), zone)| (at, uncertainty, zone));
        self.same("fire, uncertainty, zone", self.truth.known_fire, found);
        self.same("anchor", self.truth.anchor_ns, fire.anchor_ns);
        if let (Some((at, uncertainty, _)), Some(truly)) = (found, self.truth.fire_ns)
            && (at - truly).abs() > uncertainty
        {
            self.differs(
                "the true fire within the uncertainty",
                format!("{truly} ns"),
                format!("{at} ± {uncertainty} ns"),
            );
        }
    }

    fn outage(&mut self) {
        let (truth, analysis) = (self.truth, self.analysis);
        let known = truth.known_fire.zip(truth.ready_probe_ns);
        let planted = known.map(|((at, ..), ready)| ready - at);
        let found = analysis.outage_s.map(|s| (s * 1e9).round() as i64);
        self.same("outage to the first answer", planted, found);
        let (Some(outage_s), Some(fire_ns), Some(answer_ns)) =
            (analysis.outage_s, truth.fire_ns, truth.first_answer_ns)
        else {
            return;
        };
        let truly_s = (answer_ns - fire_ns) as f64 / 1e9;
        let uncertainty_s = analysis.outage_uncertainty_s.unwrap_or(0.0);
        if (outage_s - truly_s).abs() > uncertainty_s + ROUNDING {
            self.differs(
                "the true outage within its uncertainty",
                format!("{truly_s} s"),
                format!("{outage_s} ± {uncertainty_s} s"),
            );
        }
    }

    fn boundaries(&mut self) {
        let found = &self.analysis.decomposition.boundaries;
        let planted: BTreeSet<&str> = self.truth.boundaries.iter().map(|b| &*b.key).collect();
        let keys: BTreeSet<&str> = found.keys().map(String::as_str).collect();
        self.same("boundaries after the fire", planted, keys);
        for boundary in &self.truth.boundaries {
            let Some(b) = found.get(&boundary.key) else {
                continue;
            };
            if (b.at_ns - boundary.written_ns).abs() > b.uncertainty_ns + CAPTURE_NS {
                self.differs(
                    format!("{} within its stamp's resolution", boundary.key),
                    format!("{} ns", boundary.written_ns),
                    format!("{} ± {} ns", b.at_ns, b.uncertainty_ns),
                );
            }
        }
    }

    fn segments(&mut self) {
        let written = |key: &str| {
            let boundary = self.truth.boundaries.iter().find(|b| b.key == key)?;
            Some(boundary.written_ns)
        };
        let mut wrong = Vec::new();
        for (name, from, to) in SEGMENTS {
            let start = from.map_or(self.truth.fire_ns, written);
            let planted = start.zip(written(to)).map(|(a, b)| (b - a) as f64 / 1e9);
            let segments = &self.analysis.decomposition.segments;
            let Some(segment) = segments.iter().find(|s| s.name == name) else {
                wrong.push((name, "a row".to_owned(), "none".to_owned()));
                continue;
            };
            let holds = match (planted, segment.duration_s) {
                (Some(planted), Some(found)) => {
                    let bound = segment.uncertainty_s.unwrap_or(0.0) + CAPTURE_NS as f64 / 1e9;
                    (planted - found).abs() <= bound + ROUNDING
                }
                (None, None) => true,
                // Two stamps of a second may lie in the wrong order; then the segment is not claimed.
                (Some(planted), None) => {
                    let note = segment.note.as_deref().unwrap_or_default();
                    planted <= 1.0 && note.starts_with("not claimed")
                }
                (None, Some(_)) => false,
            };
            if !holds {
                wrong.push((
                    name,
                    format!("{planted:?} s"),
                    format!("{:?} ± {:?} s", segment.duration_s, segment.uncertainty_s),
                ));
            }
        }
        for (name, planted, found) in wrong {
            self.differs(format!("segment {name}"), planted, found);
        }
    }

    /// Phases follow each other without a gap, from the fire to the end.
    fn partition(&mut self) {
        let Some(partition) = &self.analysis.decomposition.partition else {
            return;
        };
        let mut at_ns = partition.start_ns;
        let mut whole = true;
        for phase in &partition.phases {
            whole &= phase.start_ns == at_ns && phase.end_ns >= at_ns;
            at_ns = phase.end_ns;
        }
        whole &= at_ns == partition.end_ns;
        self.same("the partition is whole", true, whole);
        self.same(
            "the partition begins with the fire",
            self.truth.known_fire.map(|(at, ..)| at),
            Some(partition.start_ns),
        );
    }

    fn verdict(&mut self) {
        self.same("partial", false, self.analysis.partial);
        let judged = validity(self.plan, self.analysis, &[]);
        // A control in which chance may pass for an outage may be refused for it.
        if self.truth.expected.certain && judged.valid != self.truth.valid {
            let why: Vec<&str> = judged.reasons.iter().map(|r| r.code.as_str()).collect();
            self.differs(
                "valid",
                self.truth.valid.to_string(),
                format!("{} {why:?}", judged.valid),
            );
        }
    }
}

fn pair(counts: InFlightCounts) -> (u64, u64) {
    (counts.total, counts.lost())
}

/// The detector's conclusion in the words of the truth; `None` where it has none.
fn conclusion(found: &Detection) -> Option<RecoveryTruth> {
    match found.status {
        RecoveryStatus::Recovered => found
            .entry_ns
            .map(|entry_ns| RecoveryTruth::Recovered { entry_ns }),
        RecoveryStatus::NoOutage => Some(RecoveryTruth::NoOutage),
        RecoveryStatus::NotRecovered => Some(RecoveryTruth::NotRecovered),
        RecoveryStatus::Unconfirmed => found
            .candidate_ns
            .map(|candidate_ns| RecoveryTruth::Unconfirmed { candidate_ns }),
        RecoveryStatus::NotEstimable => None,
    }
}
