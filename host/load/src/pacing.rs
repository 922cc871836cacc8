//! What releases requests: the times of a schedule, or the ends of others.

use std::sync::atomic::{AtomicU64, Ordering};

use blackstart_plan::{MAX_SCHEDULED_REQUESTS, Schedule};
use tokio::sync::Semaphore;

use crate::LoadError;

/// Most requests that a concurrency limit may allow at a time.
pub const MAX_CONCURRENCY: u32 = 100_000;

/// What releases requests.
#[derive(Debug, Clone, PartialEq)]
pub enum Pacing {
    /// The schedule, whatever the server does.
    Open(OpenLoop),
    /// The end of an earlier request: the server sets the pace, so that its stalls slow the load
    /// down. For capacity, never for what a stall costs.
    Closed(ClosedLoop),
}

/// Requests at the times of a schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenLoop {
    /// Intended send times of the whole load, over all shares.
    pub schedule: Schedule,
    /// The part of it that is sent here.
    pub share: Share,
    /// Most requests under way at a time; the wait for admission counts in their latencies.
    pub concurrency: Option<u32>,
}

impl OpenLoop {
    /// A whole schedule without a cap.
    pub fn whole(schedule: Schedule) -> Self {
        Self {
            schedule,
            share: Share::WHOLE,
            concurrency: None,
        }
    }
}

/// A fixed number of requests under way at all times.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClosedLoop {
    /// How many.
    pub concurrency: u32,
    /// Most requests altogether.
    pub requests: u64,
    /// When no more are started, in run time.
    pub end_ns: i64,
}

/// One of several equal parts of a schedule: every `of`th request from the `number`th on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// From 0.
    pub number: u32,
    /// How many parts there are.
    pub of: u32,
}

impl Share {
    /// All of it.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// Place in the whole schedule of the share's `position`th request.
    pub fn index(self, position: u64) -> u64 {
        u64::from(self.number) + position * u64::from(self.of)
    }

    /// The share's place of a request of the whole schedule, if it is in the share.
    pub fn position(self, index: u64) -> Option<u64> {
        let (number, of) = (u64::from(self.number), u64::from(self.of));
        (index >= number && (index - number).is_multiple_of(of)).then(|| (index - number) / of)
    }

    /// The share's own times.
    pub fn of_schedule(self, schedule: &Schedule) -> Vec<i64> {
        schedule
            .intended_ns
            .iter()
            .skip(self.number as usize)
            .step_by(self.of.max(1) as usize)
            .copied()
            .collect()
    }
}

/// The state of what releases requests.
#[derive(Debug)]
pub(crate) enum State {
    Open {
        /// The share's intended send times, ascending.
        schedule: Vec<i64>,
        share: Share,
        permits: Option<Semaphore>,
        /// How many permits there are.
        cap: u64,
    },
    Closed {
        plan: ClosedLoop,
        started: AtomicU64,
    },
}

impl State {
    /// # Errors
    /// [`LoadError::Plan`] when it asks for something impossible.
    pub(crate) fn new(pacing: Pacing) -> Result<Self, LoadError> {
        let plan = |what: String| LoadError::Plan { what };
        let checked = |concurrency: u32| {
            if (1..=MAX_CONCURRENCY).contains(&concurrency) {
                Ok(concurrency)
            } else {
                Err(plan(format!(
                    "a concurrency of {concurrency}; choose 1 to {MAX_CONCURRENCY}"
                )))
            }
        };
        match pacing {
            Pacing::Open(open) => {
                if !open.schedule.intended_ns.is_sorted() {
                    return Err(plan(
                        "the schedule's intended times do not ascend; compute it again".to_owned(),
                    ));
                }
                if open.share.number >= open.share.of {
                    return Err(plan(format!(
                        "share {} of {}; shares are numbered from 0",
                        open.share.number, open.share.of
                    )));
                }
                let permits = open
                    .concurrency
                    .map(checked)
                    .transpose()?
                    .map(|n| Semaphore::new(n as usize));
                Ok(Self::Open {
                    schedule: open.share.of_schedule(&open.schedule),
                    share: open.share,
                    permits,
                    cap: u64::from(open.concurrency.unwrap_or(0)),
                })
            }
            Pacing::Closed(closed) => {
                checked(closed.concurrency)?;
                if closed.requests > MAX_SCHEDULED_REQUESTS as u64 {
                    return Err(plan(format!(
                        "{} requests; at most {MAX_SCHEDULED_REQUESTS}",
                        closed.requests
                    )));
                }
                Ok(Self::Closed {
                    plan: closed,
                    started: AtomicU64::new(0),
                })
            }
        }
    }

    /// Requests that there will be, as far as is known: of a closed loop those that were started.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Self::Open { schedule, .. } => schedule.len() as u64,
            Self::Closed { started, plan } => started.load(Ordering::Acquire).min(plan.requests),
        }
    }

    /// Requests that the concurrency cap has admitted and that have not ended; `None` without a cap.
    pub(crate) fn admitted(&self) -> Option<u64> {
        match self {
            Self::Open {
                permits: Some(permits),
                cap,
                ..
            } => Some(cap.saturating_sub(permits.available_permits() as u64)),
            _ => None,
        }
    }

    /// The share's times of an open loop; nothing of a closed one.
    pub(crate) fn schedule(&self) -> &[i64] {
        match self {
            Self::Open { schedule, .. } => schedule,
            Self::Closed { .. } => &[],
        }
    }

    /// Which requests of the load these are.
    pub(crate) fn share(&self) -> Share {
        match self {
            Self::Open { share, .. } => *share,
            Self::Closed { .. } => Share::WHOLE,
        }
    }
}

/// The next request of a closed loop, unless it is over.
pub(crate) fn next(plan: &ClosedLoop, started: &AtomicU64, now_ns: i64) -> Option<u64> {
    if now_ns >= plan.end_ns {
        return None;
    }
    // Counted beyond the limit by at most one a slot, which `total` cuts off.
    let index = started.fetch_add(1, Ordering::AcqRel);
    (index < plan.requests).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Every request of a schedule is in exactly one share, at its own place.
        #[test]
        fn shares_are_a_partition(times in prop::collection::vec(0_i64..1000, 0..200), of in 1_u32..9) {
            let mut times = times;
            times.sort_unstable();
            let schedule = Schedule { intended_ns: times.clone() };
            let mut put_together: Vec<Option<i64>> = vec![None; times.len()];
            for number in 0..of {
                let share = Share { number, of };
                for (position, t) in (0..).zip(share.of_schedule(&schedule)) {
                    let index = share.index(position);
                    prop_assert_eq!(share.position(index), Some(position));
                    prop_assert_eq!(put_together[index as usize].replace(t), None);
                }
            }
            prop_assert_eq!(put_together.into_iter().map(Option::unwrap).collect::<Vec<_>>(), times);
        }
    }

    #[test]
    fn impossible_pacing_is_refused() {
        let open = |share, concurrency, times: &[i64]| {
            let schedule = Schedule {
                intended_ns: times.to_vec(),
            };
            State::new(Pacing::Open(OpenLoop {
                schedule,
                share,
                concurrency,
            }))
        };
        assert!(open(Share::WHOLE, Some(0), &[]).is_err());
        assert!(open(Share::WHOLE, None, &[2, 1]).is_err());
        assert!(open(Share { number: 2, of: 2 }, None, &[]).is_err());
        assert!(open(Share { number: 1, of: 2 }, Some(3), &[1, 2]).is_ok());
        let closed = ClosedLoop {
            concurrency: 1,
            requests: u64::MAX,
            end_ns: 0,
        };
        assert!(State::new(Pacing::Closed(closed)).is_err());
    }
}
