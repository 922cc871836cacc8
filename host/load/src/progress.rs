//! What a person watching the load wants to know. Nothing here feeds a result.

use std::sync::Mutex;

use blackstart_clock::{NS_PER_MS, NS_PER_S};
use blackstart_plan::SloThresholds;
use blackstart_record::{Outcome, RequestRecord};

use crate::shared::{Shared, lock};

/// Requests of one second whose TTFT is kept for the percentiles, per load thread: the first ones.
const TTFTS_PER_SECOND: usize = 512;
/// Seconds of which the ends are counted apart.
const SECONDS: usize = 4;

/// A snapshot.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Progress {
    /// Run time of the snapshot.
    pub at_ns: i64,
    /// Requests in the schedule.
    pub scheduled: u64,
    /// Requests whose time has come.
    pub offered: u64,
    /// Requests without an outcome among those offered.
    pub in_flight: u64,
    /// Of these, requests that wait for admission under a concurrency cap, or for the end of the turn
    /// before them.
    pub waiting: u64,
    /// Completed requests.
    pub completed: u64,
    /// Errored requests.
    pub errored: u64,
    /// Censored requests.
    pub censored: u64,
    /// Errored requests by class, in the order of [`blackstart_record::ErrorClass::ALL`].
    pub errored_by_class: [u64; 12],
    /// Requests intended in the last whole second.
    pub offered_last_second: u64,
    /// Requests that ended in the last whole second, completed and within both thresholds.
    pub good_last_second: u64,
    /// Requests that ended in the last whole second in any way.
    pub ended_last_second: u64,
    /// Time to first token of the requests that completed in the last whole second, p50, in
    /// milliseconds; absent where none did.
    pub ttft_ms_p50: Option<f64>,
    /// The same, p99.
    pub ttft_ms_p99: Option<f64>,
}

/// Counts of one load thread.
#[derive(Debug, Default)]
pub(crate) struct ThreadProgress(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    by_outcome: [u64; 3],
    by_class: [u64; 12],
    seconds: [Second; SECONDS],
}

#[derive(Debug, Default)]
struct Second {
    second: i64,
    /// Requests of a closed loop that were started; a schedule's are known without counting.
    started: u64,
    ended: u64,
    good: u64,
    ttfts_ns: Vec<i64>,
}

impl Counts {
    /// The slot of an instant, emptied if it held another second.
    fn second(&mut self, at_ns: i64) -> &mut Second {
        let second = at_ns.div_euclid(NS_PER_S);
        let slot = &mut self.seconds[second.rem_euclid(SECONDS as i64) as usize];
        if slot.second != second {
            slot.ttfts_ns.clear();
            *slot = Second {
                second,
                // Its memory is used again.
                ttfts_ns: std::mem::take(&mut slot.ttfts_ns),
                ..Second::default()
            };
        }
        slot
    }
}

impl ThreadProgress {
    /// Counts a request of a closed loop that is started.
    pub(crate) fn started(&self, at_ns: i64) {
        lock(&self.0).second(at_ns).started += 1;
    }

    /// Counts a request that has its outcome.
    pub(crate) fn count(&self, record: &RequestRecord, good: SloThresholds) {
        let counts = &mut *lock(&self.0);
        counts.by_outcome[record.outcome as usize] += 1;
        if let Some(class) = record.error_class {
            counts.by_class[class as usize] += 1;
        }
        let slot = counts.second(record.ended_ns);
        slot.ended += 1;
        slot.good += u64::from(is_good(record, good));
        if record.outcome == Outcome::Completed
            && let Some(ttft) = record.ttft_ns()
            && slot.ttfts_ns.len() < TTFTS_PER_SECOND
        {
            slot.ttfts_ns.push(ttft);
        }
    }
}

fn is_good(record: &RequestRecord, good: SloThresholds) -> bool {
    record.outcome == Outcome::Completed
        && record
            .ttft_ns()
            .is_some_and(|t| t <= i64::from(good.ttft_ms) * NS_PER_MS)
        && record.observed_ns() <= i64::from(good.e2e_ms) * NS_PER_MS
}

/// Adds up all threads.
pub(crate) fn snapshot(shared: &Shared) -> Progress {
    let at_ns = shared.clock.now();
    let last = at_ns.div_euclid(NS_PER_S) - 1;
    let schedule = shared.pacing.schedule();
    let intended_before = |t: i64| schedule.partition_point(|&x| x < t) as u64;
    let mut progress = Progress {
        at_ns,
        scheduled: shared.total(),
        offered: shared.released(),
        offered_last_second: intended_before((last + 1) * NS_PER_S)
            - intended_before(last * NS_PER_S),
        ..Progress::default()
    };
    let mut ttfts = Vec::new();
    for thread in &shared.progress {
        let counts = lock(&thread.0);
        progress.completed += counts.by_outcome[Outcome::Completed as usize];
        progress.errored += counts.by_outcome[Outcome::Errored as usize];
        progress.censored += counts.by_outcome[Outcome::Censored as usize];
        for (sum, n) in progress.errored_by_class.iter_mut().zip(counts.by_class) {
            *sum += n;
        }
        for second in counts.seconds.iter().filter(|s| s.second == last) {
            progress.offered_last_second += second.started;
            progress.good_last_second += second.good;
            progress.ended_last_second += second.ended;
            ttfts.extend_from_slice(&second.ttfts_ns);
        }
    }
    let ended = progress.completed + progress.errored + progress.censored;
    progress.in_flight = progress.offered.saturating_sub(ended);
    if let Some(admitted) = shared.pacing.admitted() {
        progress.waiting = progress.in_flight.saturating_sub(admitted);
    } else {
        let waiting = shared.pacing.turns_waiting();
        progress.waiting = waiting.min(progress.in_flight);
    }
    ttfts.sort_unstable();
    let quantile = |percent: usize| {
        // Nearest rank.
        let rank = (ttfts.len() * percent).div_ceil(100).max(1);
        ttfts.get(rank - 1).map(|ns| *ns as f64 / NS_PER_MS as f64)
    };
    progress.ttft_ms_p50 = quantile(50);
    progress.ttft_ms_p99 = quantile(99);
    progress
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outcome::{Expectation, Response};
    use crate::pacing::{OpenLoop, Pacing, State};
    use blackstart_clock::{RunClock, monotonic_ns};
    use blackstart_plan::Schedule;
    use blackstart_record::CensorKind;

    #[test]
    fn a_second_in_which_nothing_completed_shows_no_old_figure() {
        // The run is ten and a half seconds old: the last whole second is the ninth.
        let clock = RunClock::from_recorded(monotonic_ns() - 10 * NS_PER_S - NS_PER_S / 2, 0);
        let nothing = OpenLoop::whole(Schedule {
            intended_ns: Vec::new(),
        });
        let shared = Shared::new(clock, State::new(Pacing::Open(nothing)).unwrap(), 1);
        let good = SloThresholds {
            ttft_ms: 1000,
            e2e_ms: 14_000,
        };
        let completed = |ended_ns: i64| {
            let expect = Expectation::until(i64::MAX);
            let mut response = Response::new(0, ended_ns - 2 * NS_PER_MS, expect);
            response.censor(ended_ns, CensorKind::RunEnd);
            RequestRecord {
                outcome: Outcome::Completed,
                first_token_ns: Some(ended_ns - NS_PER_MS),
                ..response.into_record()
            }
        };
        let last = |shared: &Shared| {
            let p = snapshot(shared);
            (p.ended_last_second, p.ttft_ms_p50)
        };
        shared.progress[0].count(&completed(7 * NS_PER_S), good);
        assert_eq!(last(&shared), (0, None));
        shared.progress[0].count(&completed(9 * NS_PER_S + NS_PER_S / 4), good);
        assert_eq!(last(&shared), (1, Some(1.0)));
    }
}
