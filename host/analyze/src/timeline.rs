//! The run second by second, for the report's charts.

use blackstart_plan::Plan;
use blackstart_record::{Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::slo::is_good;
use crate::stats::nearest_rank;
use crate::time::{NS_PER_S, millis};
use crate::watch::Watch;

/// One second of intended time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Second {
    /// Start of the second in run time, in seconds.
    pub at_s: i64,
    /// Requests intended in it.
    pub scheduled: u64,
    /// Of these, good.
    pub good: u64,
    /// Of these, completed.
    pub completed: u64,
    /// Of these, errored.
    pub errored: u64,
    /// Of these, censored.
    pub censored: u64,
    /// Median TTFT of the completed ones; `None` if there is none.
    pub ttft_ms_p50: Option<f64>,
}

/// Seconds of `[0, load_end)`, or up to the cut where the run was cut off; a started last second
/// counts.
pub(crate) fn analyze(plan: &Plan, requests: &[RequestRecord], watch: Watch) -> Vec<Second> {
    let load_end_ns = watch.until(plan.phases.load_end_ns());
    let len = usize::try_from((load_end_ns + NS_PER_S - 1) / NS_PER_S).unwrap_or(0);
    let mut seconds: Vec<Second> = (0..len)
        .map(|s| Second {
            at_s: s as i64,
            scheduled: 0,
            good: 0,
            completed: 0,
            errored: 0,
            censored: 0,
            ttft_ms_p50: None,
        })
        .collect();
    let mut ttft_ns: Vec<Vec<i64>> = vec![Vec::new(); len];
    let slo = plan.method.slo;
    for r in requests.iter().filter(|r| r.intended_ns >= 0) {
        let Ok(i) = usize::try_from(r.intended_ns / NS_PER_S) else {
            continue;
        };
        let Some(second) = seconds.get_mut(i) else {
            continue;
        };
        second.scheduled += 1;
        second.good += u64::from(is_good(r, slo.ttft_ms, slo.e2e_ms));
        match r.outcome {
            Outcome::Completed => {
                second.completed += 1;
                ttft_ns[i].extend(r.ttft_ns());
            }
            Outcome::Errored => second.errored += 1,
            Outcome::Censored => second.censored += 1,
        }
    }
    for (second, mut samples) in seconds.iter_mut().zip(ttft_ns) {
        samples.sort_unstable();
        second.ttft_ms_p50 = nearest_rank(&samples, 0.5).map(millis);
    }
    // The second in which the cut came was watched in part: without a request it shows nothing.
    if watch.cut_ns.is_some_and(|cut| cut % NS_PER_S != 0)
        && seconds.last().is_some_and(|s| s.scheduled == 0)
    {
        seconds.pop();
    }
    seconds
}
