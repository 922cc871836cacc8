//! What a fault can wait for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use blackstart_clock::{NS_PER_MS, RunClock, RunNs, monotonic_ns, sleep_until};
use blackstart_targets::Targets;

use super::Shared;

/// How often a condition is looked at.
const LOOK_NS: i64 = 10 * NS_PER_MS;

/// What a fault can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// Another main process than at the beginning of the wait.
    StartedAgain,
    /// An inference answered, after one that failed since the beginning of the wait.
    ServingAgain,
}

impl Condition {
    /// What it is, for people.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::StartedAgain => "has started again",
            Self::ServingAgain => "serves again",
        }
    }
}

/// The last probes of each replica.
#[derive(Debug, Default)]
pub(super) struct Probes(Mutex<BTreeMap<String, Last>>);

#[derive(Debug, Clone, Copy, Default)]
struct Last {
    failed: Option<RunNs>,
    answered: Option<(RunNs, RunNs)>,
}

impl Probes {
    /// A probe of a replica: when it was sent, and its first token.
    pub(super) fn take(&self, replica: &str, sent: RunNs, first_token: Option<RunNs>) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.entry(replica.to_owned()).or_default();
        match first_token {
            None => last.failed = last.failed.max(Some(sent)),
            Some(at) => last.answered = last.answered.max(Some((sent, at))),
        }
    }

    /// Between which instants it began to serve again.
    fn serving_again(&self, replica: &str, since: RunNs) -> Option<(RunNs, RunNs)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.get(replica)?;
        let failed = last.failed.filter(|f| *f >= since)?;
        last.answered.filter(|(sent, _)| *sent > failed)
    }
}

/// Waits until a condition holds; the monotonic instants between which it began to.
pub(super) fn wait(
    shared: &Arc<Shared>,
    targets: &Targets,
    clock: RunClock,
    replica: &str,
    condition: Condition,
    deadline: RunNs,
) -> Result<(i64, i64), String> {
    let since = clock.now();
    let main = || {
        let held = targets.resolve_main(replica).ok()?;
        Some((held.pid(), held.start_time()))
    };
    let first = main();
    let mut last_look = monotonic_ns();
    loop {
        match condition {
            Condition::StartedAgain => {
                let now = main();
                if now.is_some() && now != first {
                    return Ok((last_look, monotonic_ns()));
                }
            }
            Condition::ServingAgain => {
                if let Some((sent, at)) = shared.probes.serving_again(replica, since) {
                    return Ok((clock.to_monotonic(sent), clock.to_monotonic(at)));
                }
            }
        }
        if shared.lock().cancelled {
            return Err("cancelled while it was waited for".to_owned());
        }
        if clock.now() >= deadline {
            return Err(format!(
                "replica `{replica}` did not get there in time ({})",
                condition.describe()
            ));
        }
        last_look = monotonic_ns();
        sleep_until(last_look + LOOK_NS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_only_after_a_failure_within_the_wait() {
        let probes = Probes::default();
        probes.take("r0", 10, Some(12));
        assert_eq!(probes.serving_again("r0", 5), None, "never failed");
        probes.take("r0", 20, None);
        assert_eq!(probes.serving_again("r0", 5), None, "still failing");
        probes.take("r0", 30, Some(33));
        assert_eq!(
            probes.serving_again("r0", 25),
            None,
            "failed before the wait"
        );
        assert_eq!(probes.serving_again("r0", 15), Some((30, 33)));
        assert_eq!(probes.serving_again("r1", 0), None);
    }
}
