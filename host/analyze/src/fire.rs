//! The fire instant: from the clock reads around the operation and the offset of the clock that
//! made them.

use blackstart_plan::Plan;
use blackstart_record::{Event, EventKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::millis;
use crate::watch::{Watch, fire_unobserved};

/// Offset of the clock that bracketed the operation, remote − local.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClockOffset {
    /// Offset.
    pub offset_ns: i64,
    /// Half-width of the interval that holds it.
    pub bound_ns: i64,
}

impl ClockOffset {
    /// The same clock: offset 0, bound 0.
    pub const SAME: Self = Self {
        offset_ns: 0,
        bound_ns: 0,
    };
}

/// Which clock bracketed the fire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum FireClock {
    /// The instrument's own monotonic clock: offset 0, bound 0.
    Local,
    /// Another host's clock, with a measured offset.
    Remote,
    /// Another host's clock whose offset was not measured: the run is invalid.
    Unmeasured,
}

/// When the fault was fired, and how well that is known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Fire {
    /// Whether a fault was planned for this run.
    pub planned: bool,
    /// Whether an effect was started. `false` with `unobserved` says nothing.
    pub fired: bool,
    /// The record of events ends before it could hold the fire (a full disk, an instrument that was
    /// killed): whether an effect was started is not known.
    pub unobserved: bool,
    /// Planned fire; in a run without a fault the end of the baseline phase.
    pub planned_ns: i64,
    /// The fire instant.
    pub actual_ns: Option<i64>,
    /// The fire anchor: the earlier of planned and actual.
    pub anchor_ns: i64,
    /// Actual minus planned, in milliseconds.
    pub fire_error_ms: Option<f64>,
    /// Half-width of the interval that holds the fire instant.
    pub fire_uncertainty_ns: Option<i64>,
    /// Distance from the fire within which a terminal event can not be ordered against it.
    pub indeterminate_zone_ns: Option<i64>,
    /// Clock read before the operation.
    pub bracket_before_ns: Option<i64>,
    /// Clock read after the operation.
    pub bracket_after_ns: Option<i64>,
    /// Which clock that was.
    pub clock: FireClock,
    /// Offset at arm time.
    pub offset_at_arm: ClockOffset,
    /// Offset afterwards.
    pub offset_after: ClockOffset,
    /// Why the fire instant is absent, or a remark.
    pub note: Option<String>,
}

/// The fire instant from the clock reads around the operation (§4):
///
/// - fire = (before + after)/2 − o_arm
/// - fire_uncertainty = max(b_arm, b_after) + |o_after − o_arm| + (after − before)/2
/// - indeterminate_zone = fire_uncertainty + max(b_arm, b_after)
///
/// Returns `(fire, fire_uncertainty, indeterminate_zone)`; halves are rounded up in the widths.
///
/// Worked example: before = 100, after = 140, o_arm = 20, b_arm = 5, o_after = 26, b_after = 7 →
/// fire 100, uncertainty 7 + 6 + 20 = 33, zone 40.
pub fn fire_from_bracket(
    before_ns: i64,
    after_ns: i64,
    arm: ClockOffset,
    after: ClockOffset,
) -> (i64, i64, i64) {
    let (before, after_read) = (i128::from(before_ns), i128::from(after_ns));
    let width = (after_read - before).max(0);
    let bound = i128::from(arm.bound_ns.max(after.bound_ns));
    let drift = (i128::from(after.offset_ns) - i128::from(arm.offset_ns)).abs();
    let fire = before + width / 2 - i128::from(arm.offset_ns);
    let uncertainty = bound + drift + (width + 1) / 2;
    let zone = uncertainty + bound;
    // Saturation is out of reach for real clocks; it only keeps damaged input from a panic.
    let narrow = |v: i128| i64::try_from(v).unwrap_or(if v < 0 { i64::MIN } else { i64::MAX });
    (narrow(fire), narrow(uncertainty), narrow(zone))
}

/// The fire of a run, from its events.
pub(crate) fn analyze(plan: &Plan, events: &[Event], watch: Watch) -> Fire {
    let planned_ns = plan
        .fault
        .as_ref()
        .map_or(plan.phases.fire_at_ns(), |f| f.fire_at_ns);
    let (clock, arm, after) = clock_of(events);
    let mut fire = Fire {
        planned: plan.fault.is_some(),
        fired: false,
        unobserved: false,
        planned_ns,
        actual_ns: None,
        anchor_ns: planned_ns,
        fire_error_ms: None,
        fire_uncertainty_ns: None,
        indeterminate_zone_ns: None,
        bracket_before_ns: None,
        bracket_after_ns: None,
        clock,
        offset_at_arm: arm,
        offset_after: after,
        note: None,
    };
    // The fire is the first effect that started.
    let started = events
        .iter()
        .filter_map(|e| match &e.kind {
            EventKind::Effect(s) if s.step == "started" => Some(s),
            _ => None,
        })
        .min_by_key(|s| s.before_ns.or(s.after_ns).unwrap_or(i64::MAX));
    let Some(step) = started else {
        let lost = plan
            .fault
            .as_ref()
            .and_then(|_| fire_unobserved(plan, watch, planned_ns));
        fire.unobserved = lost.is_some();
        fire.note = lost.or_else(|| {
            Some(if plan.fault.is_none() {
                "the plan has no fault".to_owned()
            } else {
                "no effect of the fault was started".to_owned()
            })
        });
        return fire;
    };
    fire.fired = true;
    let (Some(before_ns), Some(after_ns)) = (step.before_ns, step.after_ns) else {
        fire.note = Some(format!(
            "effect {} was started, but the clock was not read on both sides of it",
            step.effect
        ));
        return fire;
    };
    fire.bracket_before_ns = Some(before_ns);
    fire.bracket_after_ns = Some(after_ns);
    if clock == FireClock::Unmeasured {
        fire.note = Some(
            "the clock of the host that executed the fault was not measured at arm time and again afterwards"
                .to_owned(),
        );
        return fire;
    }
    let (actual, uncertainty, zone) = fire_from_bracket(before_ns, after_ns, arm, after);
    fire.actual_ns = Some(actual);
    fire.anchor_ns = planned_ns.min(actual);
    fire.fire_error_ms = Some(millis(actual - planned_ns));
    fire.fire_uncertainty_ns = Some(uncertainty);
    fire.indeterminate_zone_ns = Some(zone);
    fire
}

/// Which clock brackets the fire. No sample at all means that the instrument executed it on its own
/// host; a sample made of 0 round trips says so explicitly.
fn clock_of(events: &[Event]) -> (FireClock, ClockOffset, ClockOffset) {
    let mut any = false;
    let (mut arm, mut after) = (None, None);
    for event in events {
        if let EventKind::Clock(sample) = &event.kind
            && sample.samples > 0
        {
            any = true;
            let offset = ClockOffset {
                offset_ns: sample.offset_ns,
                bound_ns: sample.bound_ns.max(0),
            };
            match sample.phase.as_str() {
                "arm" => arm = Some(offset),
                "after" if after.is_none() => after = Some(offset),
                _ => {}
            }
        }
    }
    match (arm, after) {
        (Some(arm), Some(after)) => (FireClock::Remote, arm, after),
        _ if any => (
            FireClock::Unmeasured,
            arm.unwrap_or(ClockOffset::SAME),
            after.unwrap_or(ClockOffset::SAME),
        ),
        _ => (FireClock::Local, ClockOffset::SAME, ClockOffset::SAME),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example() {
        let arm = ClockOffset {
            offset_ns: 20,
            bound_ns: 5,
        };
        let after = ClockOffset {
            offset_ns: 26,
            bound_ns: 7,
        };
        assert_eq!(fire_from_bracket(100, 140, arm, after), (100, 33, 40));
    }

    #[test]
    fn the_published_run() {
        let arm = ClockOffset {
            offset_ns: 8_517_185,
            bound_ns: 7_669_101,
        };
        let after = ClockOffset {
            offset_ns: 12_412_942,
            bound_ns: 8_412_769,
        };
        let (fire, uncertainty, zone) = fire_from_bracket(
            1_790_957_731_351_347_315,
            1_790_957_731_354_187_865,
            arm,
            after,
        );
        assert_eq!(fire, 1_790_957_731_344_250_405);
        assert_eq!(uncertainty, 13_728_801);
        assert_eq!(zone, 22_141_570);
    }

    #[test]
    fn on_one_clock_only_the_bracket_counts() {
        assert_eq!(
            fire_from_bracket(10, 21, ClockOffset::SAME, ClockOffset::SAME),
            (15, 6, 6)
        );
    }

    #[test]
    fn damaged_clocks_do_not_panic() {
        let wild = ClockOffset {
            offset_ns: i64::MIN,
            bound_ns: i64::MAX,
        };
        let (_, uncertainty, _) = fire_from_bracket(i64::MIN, i64::MAX, wild, ClockOffset::SAME);
        assert_eq!(uncertainty, i64::MAX);
    }
}
