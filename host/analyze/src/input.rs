//! Bounds on what is analysed, checked once, so that no formula can overflow.

use blackstart_plan::Plan;
use blackstart_record::{EventKind, RunRecords};

use crate::AnalyzeError;
use crate::time::NS_PER_S;

/// Largest distance of any time from the run epoch: about 12 days. Sums and differences of a few
/// such times stay far inside `i64`.
pub(crate) const TIME_LIMIT_NS: i64 = 1_000_000 * NS_PER_S;

/// Most buckets of one run.
pub(crate) const MAX_BUCKETS: i64 = 10_000_000;

/// Longest leading window and hold, in buckets.
const MAX_RULE_BUCKETS: u32 = 1_000_000;

fn time(what: &str, value: i64) -> Result<(), AnalyzeError> {
    if (-TIME_LIMIT_NS..=TIME_LIMIT_NS).contains(&value) {
        Ok(())
    } else {
        Err(AnalyzeError::TimeOutOfRange {
            what: what.to_owned(),
            value,
            limit: TIME_LIMIT_NS,
        })
    }
}

fn plan_error<T>(what: String) -> Result<T, AnalyzeError> {
    Err(AnalyzeError::Plan { what })
}

/// Checks the plan's numbers.
pub(crate) fn check_plan(plan: &Plan) -> Result<(), AnalyzeError> {
    let phases = &plan.phases;
    for (what, value) in [
        ("phases.warmup_ns", phases.warmup_ns),
        ("phases.baseline_ns", phases.baseline_ns),
        ("phases.fault_window_ns", phases.fault_window_ns),
        ("phases.cooldown_ns", phases.cooldown_ns),
        ("load.timeout_ns", plan.load.timeout_ns),
        (
            "observe.metrics_interval_ns",
            plan.observe.metrics_interval_ns,
        ),
    ] {
        time(what, value)?;
        if value < 0 {
            return plan_error(format!("{what} is negative"));
        }
    }
    if let Some(fault) = &plan.fault {
        time("fault.fire_at_ns", fault.fire_at_ns)?;
    }
    let rule = &plan.method.recovery;
    time("method.recovery.bucket_ns", rule.bucket_ns)?;
    if rule.bucket_ns <= 0 {
        return plan_error("method.recovery.bucket_ns must be positive".into());
    }
    if phases.load_end_ns() / rule.bucket_ns > MAX_BUCKETS {
        return plan_error(format!(
            "method.recovery.bucket_ns = {} gives more than {MAX_BUCKETS} buckets",
            rule.bucket_ns
        ));
    }
    let grid = &plan.method.sensitivity;
    let windows = grid.window_buckets.iter().chain([&rule.window_buckets]);
    if windows
        .into_iter()
        .any(|r| *r == 0 || *r > MAX_RULE_BUCKETS)
    {
        return plan_error(format!(
            "every window_buckets must lie between 1 and {MAX_RULE_BUCKETS}"
        ));
    }
    let holds = grid.hold_buckets.iter().chain([&rule.hold_buckets]);
    if holds.into_iter().any(|h| *h > MAX_RULE_BUCKETS) {
        return plan_error(format!(
            "every hold_buckets must be at most {MAX_RULE_BUCKETS}"
        ));
    }
    Ok(())
}

/// Checks every time of the records.
pub(crate) fn check_records(records: &RunRecords) -> Result<(), AnalyzeError> {
    for r in &records.requests {
        let what = |field: &str| format!("request {}: {field}", r.index);
        // The text is built only for the one that fails.
        let all = [
            ("intended_ns", Some(r.intended_ns)),
            ("admitted_ns", r.admitted_ns),
            ("connect_started_ns", r.connect_started_ns),
            ("dispatched_ns", r.dispatched_ns),
            ("headers_ns", r.headers_ns),
            ("first_event_ns", r.first_event_ns),
            ("first_token_ns", r.first_token_ns),
            ("last_token_ns", r.last_token_ns),
            ("ended_ns", Some(r.ended_ns)),
        ];
        for (field, value) in all {
            if let Some(value) = value
                && time("", value).is_err()
            {
                time(&what(field), value)?;
            }
        }
    }
    for bucket in records.gaps.buckets.keys() {
        if bucket.unsigned_abs() > TIME_LIMIT_NS.unsigned_abs() / NS_PER_S.unsigned_abs() {
            return time("gap bucket", bucket.saturating_mul(NS_PER_S));
        }
    }
    for (i, event) in records.events.iter().enumerate() {
        time(&format!("event {}", i + 1), event.at_ns)?;
        match &event.kind {
            EventKind::Effect(step) => {
                let times = [Some(step.planned_ns), step.before_ns, step.after_ns];
                for value in times.into_iter().flatten() {
                    time(&format!("event {} (effect)", i + 1), value)?;
                }
            }
            EventKind::Probe(probe) => {
                let times = [Some(probe.sent_ns), probe.first_token_ns];
                for value in times.into_iter().flatten() {
                    time(&format!("event {} (probe)", i + 1), value)?;
                }
            }
            EventKind::Canary(canary) => {
                time(&format!("event {} (canary)", i + 1), canary.sent_ns)?;
                let deviations = canary.itl_dev_ns.iter().chain(&canary.event_lag_ns);
                for value in deviations.chain(&canary.ttft_dev_ns) {
                    time(&format!("event {} (canary)", i + 1), *value)?;
                }
            }
            EventKind::ClientCpu { interval_ns, .. } => {
                time(&format!("event {} (client_cpu)", i + 1), *interval_ns)?;
            }
            EventKind::Clock(sample) => {
                time(&format!("event {} (clock)", i + 1), sample.offset_ns)?;
                time(&format!("event {} (clock)", i + 1), sample.bound_ns)?;
            }
            EventKind::Heartbeat {
                late_ns_p50,
                late_ns_p99,
                late_ns_max,
                ..
            } => {
                for value in [late_ns_p50, late_ns_p99, late_ns_max] {
                    time(&format!("event {} (heartbeat)", i + 1), *value)?;
                }
            }
            _ => {}
        }
    }
    for sample in &records.metrics.samples {
        time("metric sample", sample.at_ns)?;
    }
    Ok(())
}
