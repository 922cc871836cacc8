//! The kill, the clocks and the container's states: fire instant, uncertainty, zone.

use super::checker::{Checker, TOLERANCE_S, show};
use crate::time::{NS_PER_S, seconds};
use crate::{ClockOffset, fire_from_bracket};

/// The recomputed fire.
pub(crate) struct ForeignFire {
    /// Nanoseconds since the Unix epoch on the local clock.
    pub(crate) at_ns: i64,
    /// Offset at arm time: remote − local.
    pub(crate) offset_ns: i64,
    /// Paths of what determines it.
    pub(crate) evidence: Vec<String>,
}

/// SIGKILL, the only signal of the variant `process_kill`.
const SIGKILL: i64 = 9;

/// How late after the plan the kill may have been sent: the predecessor slept to the instant.
const DISPATCH_LAG_NS: i64 = 1_000_000;

/// Pinned phases before and after the planned fire, in seconds.
const BEFORE_FIRE_S: i64 = 60 + 300;
const AFTER_FIRE_S: i64 = 600 + 60;

/// How long before the epoch the clocks were compared, and after the load again: the drain (the client
/// timeout) and the time that both take.
const ARM_LEAD_S: f64 = 1.0;
const AFTER_LAG_S: f64 = 60.0;

/// Longest wait between the container's own stamp of a change and the runtime's event for it.
const EVENT_LAG_S: f64 = 1.0;
/// Longest wait of a restart policy before a start.
const RESTART_WAIT_S: f64 = 60.0;

/// Checks one run's container evidence, and gives the fire that follows from it.
pub(crate) fn check(check: &mut Checker<'_>, run: &str) -> Option<ForeignFire> {
    let c = format!("{run}.container");
    check.doc.get(&c)?;
    let fire = fire(check, run, &c);
    states(check, &c);
    if let Some(fire) = &fire {
        order(check, run, &c, fire);
    }
    fire
}

fn fire(check: &mut Checker<'_>, run: &str, c: &str) -> Option<ForeignFire> {
    let p = |name: &str| format!("{c}.{name}");
    let before_path = p("kill.remote_before_ns");
    let after_path = p("kill.remote_after_ns");
    let o_arm_path = p("offset_at_arm.offset_ns");
    let o_after_path = p("offset_after.offset_ns");
    let b_arm_path = p("offset_at_arm.bound_ns");
    let b_after_path = p("offset_after.bound_ns");
    let before = check.int(&before_path);
    let after = check.int(&after_path);
    let (o_arm, b_arm) = (check.int(&o_arm_path), check.count(&b_arm_path));
    let (o_after, b_after) = (check.int(&o_after_path), check.count(&b_after_path));
    let (Some(before), Some(after), Some(o_arm), Some(b_arm), Some(o_after), Some(b_after)) =
        (before, after, o_arm, b_arm, o_after, b_after)
    else {
        check.require(
            &p("kill"),
            "complete",
            false,
            "the clock reads around the kill and both offsets with their bounds".to_owned(),
            "not all of them".to_owned(),
            &[],
        );
        return None;
    };
    let at = |offset_ns, bound_ns| ClockOffset {
        offset_ns,
        bound_ns,
    };
    let (fire_ns, uncertainty, zone) =
        fire_from_bracket(before, after, at(o_arm, b_arm), at(o_after, b_after));
    // Only the larger bound enters the formulas.
    let (larger, smaller) = if b_arm > b_after {
        (&b_arm_path, &b_after_path)
    } else {
        (&b_after_path, &b_arm_path)
    };
    let evidence = [
        before_path.as_str(),
        after_path.as_str(),
        o_arm_path.as_str(),
        o_after_path.as_str(),
        larger.as_str(),
    ];
    let uncertainty_path = p("fire_uncertainty_ns");
    check.eq_int(&uncertainty_path, "formula", uncertainty, &evidence);
    check.mention(&[smaller]);
    check.eq_int(&p("indeterminate_zone_ns"), "formula", zone, &evidence);
    check.mention(&[smaller]);
    let seconds_path = format!("{run}.fire_uncertainty_s");
    check.eq_num(
        &seconds_path,
        "formula",
        seconds(uncertainty),
        5e-10,
        &[&uncertainty_path],
    );
    check.require(
        smaller,
        "positive",
        b_arm > 0 && b_after > 0,
        "more than 0: an unmeasured offset is not 0".to_owned(),
        b_arm.min(b_after).to_string(),
        &[larger],
    );
    check.require(
        &after_path,
        "bracket",
        after >= before,
        format!("not before {before}"),
        after.to_string(),
        &[&before_path],
    );
    let samples = check.count(&p("offset_at_arm.samples"));
    let samples_after = check.count(&p("offset_after.samples"));
    check.equal(
        &p("offset_after.samples"),
        "same-as-arm",
        samples.is_some_and(|n| n > 0) && samples == samples_after,
        format!("{}, as at arm time, and more than 0", show(samples)),
        show(samples_after),
        &[&p("offset_at_arm.samples")],
    );
    Some(ForeignFire {
        at_ns: fire_ns,
        offset_ns: o_arm,
        evidence: [before_path, after_path, o_arm_path].into(),
    })
}

/// The container before and after, and the runtime's events.
fn states(check: &mut Checker<'_>, c: &str) {
    let p = |name: &str| format!("{c}.{name}");
    for side in ["before", "after"] {
        check.eq_flag(&p(&format!("{side}.running")), "running", true, &[]);
    }
    if let Some(pid) = check.count(&p("before.pid")) {
        check.eq_int(&p("kill.pid"), "victim", pid, &[&p("before.pid")]);
        let new = check.count(&p("after.pid"));
        check.require(
            &p("after.pid"),
            "new-process",
            new.is_some_and(|n| n > 1 && n != pid),
            format!("another process than {pid}"),
            show(new),
            &[&p("before.pid")],
        );
    }
    if check.doc.text("campaign.variant") == Some("process_kill") {
        check.eq_int(&p("kill.signal"), "variant", SIGKILL, &["campaign.variant"]);
    }
    for name in ["id", "restart_policy"] {
        if let Some(before) = check.doc.text(&p(&format!("before.{name}"))) {
            let before = before.to_owned();
            check.eq_text(
                &p(&format!("after.{name}")),
                "unchanged",
                &before,
                &[&p(&format!("before.{name}"))],
            );
        }
    }
    let mut starts = 0;
    let (mut die, mut start) = (None, None);
    for i in 0..check.doc.len(&p("events")) {
        let at = p(&format!("events[{i}].at"));
        match check.doc.text(&p(&format!("events[{i}].action"))) {
            Some("die") if die.is_none() => die = Some(at),
            Some("start") => {
                starts += 1;
                start.get_or_insert(at);
            }
            _ => {}
        }
    }
    if let Some(count) = check.count(&p("before.restart_count")) {
        check.eq_int(
            &p("after.restart_count"),
            "one-more-per-start",
            count + starts,
            &[&p("before.restart_count")],
        );
    }
    if let (Some(die), Some(start)) = (die, start)
        && let (Some(died), Some(started)) = (check.stamp(&die), check.stamp(&start))
    {
        let between = seconds(started.saturating_sub(died));
        check.eq_num(
            &p("die_to_start_s"),
            "formula",
            between,
            TOLERANCE_S,
            &[&die, &start],
        );
        lag(
            check,
            "event-lag",
            &p("after.finished_at"),
            &die,
            EVENT_LAG_S,
        );
        lag(
            check,
            "event-lag",
            &p("after.started_at"),
            &start,
            EVENT_LAG_S,
        );
    }
    lag(
        check,
        "restart-wait",
        &p("before.finished_at"),
        &p("before.started_at"),
        RESTART_WAIT_S,
    );
}

/// The later stamp follows the earlier one within a bound.
fn lag(check: &mut Checker<'_>, name: &str, earlier: &str, later: &str, most_s: f64) {
    if let (Some(a), Some(b)) = (check.stamp(earlier), check.stamp(later)) {
        let lag_s = seconds(b.saturating_sub(a));
        check.within(later, name, lag_s, (0.0, most_s), &[earlier]);
    }
}

/// What must come before what, on each clock, and the plan that follows from the detector's entry.
fn order(check: &mut Checker<'_>, run: &str, c: &str, fire: &ForeignFire) {
    let p = |name: &str| format!("{c}.{name}");
    check.ascending(
        "order",
        &[
            &p("before.finished_at"),
            &p("before.started_at"),
            &p("offset_at_arm.at"),
            &p("kill.sent_at"),
            &p("kill.returned_at"),
            &p("offset_after.at"),
        ],
    );
    check.ascending("order", &[&p("after.finished_at"), &p("after.started_at")]);
    let evidence: Vec<&str> = fire.evidence.iter().map(String::as_str).collect();
    for (name, before) in [("kill.sent_at", true), ("kill.returned_at", false)] {
        let path = p(name);
        if let Some(at) = check.stamp(&path) {
            let ok = if before {
                at <= fire.at_ns
            } else {
                at >= fire.at_ns
            };
            check.require(
                &path,
                "encloses-fire",
                ok,
                format!(
                    "{} the fire at {}",
                    if before { "not after" } else { "not before" },
                    show(crate::time::rfc3339(fire.at_ns))
                ),
                show(crate::time::rfc3339(at)),
                &evidence,
            );
        }
    }
    planned(check, run, c);
}

/// The planned fire is the detector's entry minus the time to recovery; the epoch lies the pinned
/// phases before it.
fn planned(check: &mut Checker<'_>, run: &str, c: &str) {
    let p = |name: &str| format!("{c}.{name}");
    let ttr_path = format!("{run}.ttr_pre_fault_s");
    let Some(entry_path) = super::segments::path(check, run, "goodput_restored", "end_at") else {
        return;
    };
    let (Some(entry), Some(ttr)) = (check.stamp(&entry_path), check.num(&ttr_path)) else {
        return;
    };
    if !(0.0..1e6).contains(&ttr) {
        check.within(&ttr_path, "range", ttr, (0.0, 1e6), &[]);
        return;
    }
    let planned = entry.saturating_sub((ttr * 1e9) as i64);
    let others = [entry_path.as_str(), ttr_path.as_str()];
    if let Some(sent) = check.stamp(&p("kill.sent_at")) {
        let late_ns = sent.saturating_sub(planned);
        check.within(
            &p("kill.sent_at"),
            "sent-as-planned",
            late_ns as f64,
            (0.0, DISPATCH_LAG_NS as f64),
            &others,
        );
    }
    let epoch = planned.saturating_sub(BEFORE_FIRE_S * NS_PER_S);
    if let Some(at) = check.stamp(&p("offset_at_arm.at")) {
        let lead = seconds(epoch.saturating_sub(at));
        check.within(
            &p("offset_at_arm.at"),
            "before-epoch",
            lead,
            (0.0, ARM_LEAD_S),
            &others,
        );
    }
    if let Some(at) = check.stamp(&p("offset_after.at")) {
        let load_end = planned.saturating_add(AFTER_FIRE_S * NS_PER_S);
        let lag = seconds(at.saturating_sub(load_end));
        check.within(
            &p("offset_after.at"),
            "after-load",
            lag,
            (0.0, AFTER_LAG_S),
            &others,
        );
    }
}
