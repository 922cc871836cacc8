//! Recovery of a run: the detector's sensitivity, both baselines, components and the goodput deficit.

use blackstart_plan::{Plan, RecoveryRule};
use blackstart_record::{CensorKind, Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::cross_check::{self, CrossCheckInput};
use crate::detector::buckets;
use crate::slo::{holds_e2e, holds_ttft, is_good};
use crate::time::{NS_PER_MS, seconds};
use crate::watch::Watch;
use crate::{BucketCounts, CrossCheck, Detection, RecoveryStatus, Span, detect};

/// One cell of the sensitivity table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SensitivityCell {
    /// Entry threshold, percent of the baseline.
    pub entry_percent: u32,
    /// R, in buckets.
    pub window_buckets: u32,
    /// H, in buckets.
    pub hold_buckets: u32,
    /// The conclusion.
    pub status: RecoveryStatus,
    /// Time to recovery.
    pub ttr_s: Option<f64>,
    /// Cancelled candidates.
    pub dips: u32,
    /// Re-degradations.
    pub redegradations: u32,
}

/// Recovery of one component of goodput.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ComponentRecovery {
    /// `ttft_slo`, `e2e_slo` or `error_free`.
    pub component: String,
    /// The detector on that component.
    #[serde(flatten)]
    pub detection: Detection,
}

/// The degraded plateau as a baseline of its own.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Equilibrium {
    /// Its goodput.
    pub goodput: Option<f64>,
    /// Where it was taken.
    pub start_ns: Option<i64>,
    /// First instant after it.
    pub end_ns: Option<i64>,
    /// The detector against it.
    pub detection: Option<Detection>,
    /// Why it is not estimable.
    pub note: Option<String>,
}

/// Goodput that was lost: Σ over buckets of `max(0, baseline − observed)`, in seconds of full
/// baseline service. A bucket without requests shows no loss and adds nothing.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Deficit {
    /// From the anchor to recovery; `None` if there was none, or no outage to recover from.
    pub integrated_goodput_deficit: Option<f64>,
    /// From the anchor to the timeout: a lower bound where service did not recover.
    pub to_timeout: Option<f64>,
    /// Buckets without requests on the way to recovery (or the timeout).
    pub empty_buckets: u64,
    /// Why it is absent.
    pub note: Option<String>,
}

/// Recovery of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recovery {
    /// Bucket width of the detector in seconds: it finds an entry no finer than this.
    pub resolution_s: f64,
    /// Until when the detector looked for an entry, in run time: the end of the fault window, or the
    /// cut where the run was cut off before.
    pub watched_until_ns: i64,
    /// Against the baseline before the fault, by the plan's rule.
    pub pre_fault: Detection,
    /// What change-points say of the same counts. It gives no figure, only a flag.
    pub cross_check: CrossCheck,
    /// Against the degraded plateau.
    pub equilibrium: Equilibrium,
    /// The pre-fault detector over the grid.
    pub sensitivity: Vec<SensitivityCell>,
    /// By component.
    pub components: Vec<ComponentRecovery>,
    /// Goodput lost.
    pub deficit: Deficit,
}

/// What recovery is measured on.
pub(crate) struct RecoveryInput<'a> {
    pub(crate) plan: &'a Plan,
    /// Requests that were meant to be sent while the run was watched.
    pub(crate) requests: &'a [RequestRecord],
    pub(crate) anchor_ns: i64,
    /// The fire, where it is known.
    pub(crate) fire_ns: Option<i64>,
    pub(crate) baseline: Span,
    pub(crate) watch: Watch,
}

impl RecoveryInput<'_> {
    fn buckets(&self, good: impl Fn(&RequestRecord) -> bool) -> Vec<BucketCounts> {
        buckets(
            self.requests,
            self.plan.method.recovery.bucket_ns,
            self.decided_until_ns(),
            good,
        )
    }

    /// Up to where every request is decided. One that the cut censored while it could still have been
    /// good is neither good nor a loss of service, and its bucket says nothing.
    fn decided_until_ns(&self) -> i64 {
        let end_ns = self.watch.until(self.plan.phases.load_end_ns());
        let Some(cut_ns) = self.watch.cut_ns else {
            return end_ns;
        };
        let e2e_ns = i64::from(self.plan.method.slo.e2e_ms) * NS_PER_MS;
        self.requests
            .iter()
            .filter(|r| r.censor_kind == Some(CensorKind::RunEnd))
            .filter(|r| cut_ns - r.intended_ns <= e2e_ns)
            .map(|r| r.intended_ns)
            .min()
            .map_or(end_ns, |at| at.min(end_ns))
    }

    /// The instant after which no entry counts: the end of the fault window, or the cut before it.
    fn timeout_ns(&self) -> i64 {
        self.watch.until(self.plan.phases.fault_window_end_ns())
    }

    /// The detector, and what only the run knows of its conclusion.
    fn detect(
        &self,
        series: &[BucketCounts],
        rule: &RecoveryRule,
        baseline: BucketCounts,
    ) -> Detection {
        let timeout_ns = self.timeout_ns();
        let mut found = detect(series, rule, self.anchor_ns, timeout_ns, baseline);
        let cut = timeout_ns < self.plan.phases.fault_window_end_ns();
        if cut && found.status == RecoveryStatus::NotRecovered {
            found.note = Some(format!(
                "not recovered when the run was cut off, {:.3} s after the anchor",
                seconds(timeout_ns - self.anchor_ns)
            ));
        }
        // A fire that came late: what the detector found before it is no recovery from it.
        if let (Some(entry_ns), Some(fire_ns)) = (found.entry_ns, self.fire_ns)
            && entry_ns + rule.bucket_ns <= fire_ns
        {
            found.status = RecoveryStatus::NotEstimable;
            found.entry_ns = None;
            found.ttr_s = None;
            found.note = Some(format!(
                "service held from {:.3} s of the run on, which is before the fire at {:.3} s: no recovery from it can be told",
                seconds(entry_ns),
                seconds(fire_ns)
            ));
        }
        found
    }

    fn baseline(&self, good: impl Fn(&RequestRecord) -> bool) -> BucketCounts {
        let mut sum = BucketCounts::default();
        for r in self.requests.iter().filter(|r| self.baseline.holds(r)) {
            sum.scheduled += 1;
            sum.good += u64::from(good(r));
        }
        sum
    }
}

/// Recovery of a run.
pub(crate) fn analyze(input: &RecoveryInput<'_>) -> Recovery {
    let method = &input.plan.method;
    let slo = method.slo;
    let good = |r: &RequestRecord| is_good(r, slo.ttft_ms, slo.e2e_ms);
    let series = input.buckets(good);
    let baseline = input.baseline(good);
    let run_rule = |rule: &RecoveryRule| input.detect(&series, rule, baseline);
    let pre_fault = run_rule(&method.recovery);
    let mut sensitivity = Vec::new();
    for entry_percent in &method.sensitivity.entry_percent {
        for window_buckets in &method.sensitivity.window_buckets {
            for hold_buckets in &method.sensitivity.hold_buckets {
                let cell = run_rule(&RecoveryRule {
                    entry_percent: *entry_percent,
                    window_buckets: *window_buckets,
                    hold_buckets: *hold_buckets,
                    ..method.recovery
                });
                sensitivity.push(SensitivityCell {
                    entry_percent: *entry_percent,
                    window_buckets: *window_buckets,
                    hold_buckets: *hold_buckets,
                    status: cell.status,
                    ttr_s: cell.ttr_s,
                    dips: cell.dips,
                    redegradations: cell.redegradations,
                });
            }
        }
    }
    let component = |name: &str, holds: &dyn Fn(&RequestRecord) -> bool| ComponentRecovery {
        component: name.to_owned(),
        detection: input.detect(
            &input.buckets(holds),
            &method.recovery,
            input.baseline(holds),
        ),
    };
    let components = vec![
        component("ttft_slo", &|r| holds_ttft(r, slo.ttft_ms)),
        component("e2e_slo", &|r| holds_e2e(r, slo.e2e_ms)),
        component("error_free", &|r| r.outcome != Outcome::Errored),
    ];
    let equilibrium = equilibrium(input, &series, &pre_fault);
    let deficit = deficit(input, &series, &pre_fault);
    let cross_check = cross_check::analyze(&CrossCheckInput {
        series: &series,
        rule: &method.recovery,
        from_ns: input.plan.phases.baseline_start_ns(),
        anchor_ns: input.anchor_ns,
        timeout_ns: input.timeout_ns(),
        baseline,
        detected: &pre_fault,
    });
    Recovery {
        resolution_s: seconds(method.recovery.bucket_ns),
        watched_until_ns: input.timeout_ns(),
        pre_fault,
        cross_check,
        equilibrium,
        sensitivity,
        components,
        deficit,
    }
}

/// Why one replica has no equilibrium: nobody carries on while it is away, so that whatever it serves
/// in between is its own return, and no level to recover to.
pub(crate) const ONE_REPLICA: &str =
    "not applicable: one replica, and the equilibrium is the level at which survivors carry on";

/// Equilibrium baseline: goodput over `[anchor + R, recovery to pre-fault or timeout)`, whole
/// buckets only; estimable if that span is at least R long and its goodput is above 0.
fn equilibrium(
    input: &RecoveryInput<'_>,
    series: &[BucketCounts],
    pre_fault: &Detection,
) -> Equilibrium {
    let rule = &input.plan.method.recovery;
    let none = |note: String| Equilibrium {
        goodput: None,
        start_ns: None,
        end_ns: None,
        detection: None,
        note: Some(note),
    };
    if input.plan.target.replicas.len() == 1 {
        return none(ONE_REPLICA.to_owned());
    }
    if pre_fault.status == RecoveryStatus::NoOutage {
        return none("not estimable: no outage found, so there is no degraded plateau".to_owned());
    }
    let window_ns = i64::from(rule.window_buckets) * rule.bucket_ns;
    let start_ns = input.anchor_ns + window_ns;
    let end_ns = pre_fault.entry_ns.unwrap_or(input.timeout_ns());
    if end_ns - start_ns < window_ns {
        return none(format!(
            "not estimable: the degraded plateau from {:.3} s after the anchor is shorter than R = {:.3} s",
            seconds(window_ns),
            seconds(window_ns)
        ));
    }
    let mut sum = BucketCounts::default();
    for (i, bucket) in series.iter().enumerate() {
        let at = i as i64 * rule.bucket_ns;
        if at >= start_ns && at + rule.bucket_ns <= end_ns {
            sum.scheduled += bucket.scheduled;
            sum.good += bucket.good;
        }
    }
    if sum.good == 0 {
        return none("not estimable: no service during the degraded plateau".to_owned());
    }
    Equilibrium {
        goodput: Some(sum.good as f64 / sum.scheduled as f64),
        start_ns: Some(start_ns),
        end_ns: Some(end_ns),
        detection: Some(input.detect(series, rule, sum)),
        note: None,
    }
}

/// Σ over buckets of max(0, baseline − observed) × bucket length, from the first bucket wholly after
/// the anchor.
fn deficit(input: &RecoveryInput<'_>, series: &[BucketCounts], pre_fault: &Detection) -> Deficit {
    let bucket_ns = input.plan.method.recovery.bucket_ns;
    let Some(baseline) = pre_fault.baseline else {
        return Deficit {
            integrated_goodput_deficit: None,
            to_timeout: None,
            empty_buckets: 0,
            note: pre_fault.note.clone(),
        };
    };
    let (mut to_recovery, mut to_timeout, mut empty_buckets) = (0.0, 0.0, 0);
    let timeout_ns = input.timeout_ns();
    let end = pre_fault.entry_ns.unwrap_or(timeout_ns);
    for (i, bucket) in series.iter().enumerate() {
        let at = i as i64 * bucket_ns;
        if at < input.anchor_ns || at >= timeout_ns {
            continue;
        }
        if bucket.scheduled == 0 {
            empty_buckets += u64::from(at < end);
            continue;
        }
        let observed = bucket.good as f64 / bucket.scheduled as f64;
        let lost = (baseline - observed).max(0.0) * seconds(bucket_ns);
        to_timeout += lost;
        if at < end {
            to_recovery += lost;
        }
    }
    let recovered = pre_fault.entry_ns.is_some();
    Deficit {
        integrated_goodput_deficit: recovered.then_some(to_recovery),
        to_timeout: Some(to_timeout),
        empty_buckets,
        note: match pre_fault.status {
            RecoveryStatus::Recovered => None,
            RecoveryStatus::NoOutage => Some(format!(
                "no outage found, so there is no stretch to sum over; goodput below the baseline adds up to {to_timeout:.3} s of full service by the timeout"
            )),
            _ => Some(format!(
                "service did not recover: at least {to_timeout:.3} s of full service were lost by {:.3} s of the run, where it was watched no longer",
                seconds(timeout_ns)
            )),
        },
    }
}
