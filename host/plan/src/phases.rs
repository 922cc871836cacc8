//! Phases of a run: warm-up → baseline → fault window → cooldown, in run time.

use serde::{Deserialize, Serialize};

/// A phase of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PhaseName {
    /// Discarded.
    Warmup,
    /// What service looks like without the fault.
    Baseline,
    /// From the planned fire.
    Fault,
    /// Load still runs, so that the last requests of the fault window meet the same service.
    Cooldown,
    /// No new requests; the run waits until each one has an outcome.
    Drain,
}

/// Lengths of the phases, in nanoseconds. The epoch (0) is the start of warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Phases {
    /// Warm-up.
    pub warmup_ns: i64,
    /// Baseline.
    pub baseline_ns: i64,
    /// Fault window, from the planned fire.
    pub fault_window_ns: i64,
    /// Cooldown.
    pub cooldown_ns: i64,
}

/// Longest phase that a plan may have: a year. Sums of the four stay far inside what a number holds.
const MAX_PHASE_NS: i64 = 366 * 86_400 * 1_000_000_000;

impl Phases {
    /// Whether every length is one; the reason is for people. A plan from a file can hold anything.
    ///
    /// # Errors
    /// Names the phase.
    pub fn check(&self) -> Result<(), String> {
        for (name, ns) in [
            ("warmup_ns", self.warmup_ns),
            ("baseline_ns", self.baseline_ns),
            ("fault_window_ns", self.fault_window_ns),
            ("cooldown_ns", self.cooldown_ns),
        ] {
            if !(0..=MAX_PHASE_NS).contains(&ns) {
                return Err(format!("phases.{name} = {ns} is no length of a phase"));
            }
        }
        if self.load_end_ns() == 0 {
            return Err("all phases are 0 ns long".to_owned());
        }
        Ok(())
    }

    /// End of warm-up and start of the baseline.
    pub fn baseline_start_ns(&self) -> i64 {
        self.warmup_ns
    }

    /// The planned fire: end of the baseline phase.
    pub fn fire_at_ns(&self) -> i64 {
        self.warmup_ns + self.baseline_ns
    }

    /// End of the fault window.
    pub fn fault_window_end_ns(&self) -> i64 {
        self.fire_at_ns() + self.fault_window_ns
    }

    /// End of the schedule: no request is intended at or after this instant.
    pub fn load_end_ns(&self) -> i64 {
        self.fault_window_end_ns() + self.cooldown_ns
    }

    /// The phase at a run time, and the run time at which it ends (`None` while draining).
    pub fn at(&self, now_ns: i64) -> (PhaseName, Option<i64>) {
        let ends = [
            (PhaseName::Warmup, self.baseline_start_ns()),
            (PhaseName::Baseline, self.fire_at_ns()),
            (PhaseName::Fault, self.fault_window_end_ns()),
            (PhaseName::Cooldown, self.load_end_ns()),
        ];
        for (name, end) in ends {
            if now_ns < end {
                return (name, Some(end));
            }
        }
        (PhaseName::Drain, None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phases_follow_each_other() {
        let phases = Phases {
            warmup_ns: 2,
            baseline_ns: 3,
            fault_window_ns: 4,
            cooldown_ns: 1,
        };
        assert_eq!(phases.at(-1), (PhaseName::Warmup, Some(2)));
        assert_eq!(phases.at(2), (PhaseName::Baseline, Some(5)));
        assert_eq!(phases.at(5), (PhaseName::Fault, Some(9)));
        assert_eq!(phases.at(9), (PhaseName::Cooldown, Some(10)));
        assert_eq!(phases.at(10), (PhaseName::Drain, None));
    }
}
