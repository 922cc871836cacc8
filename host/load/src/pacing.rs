//! What releases requests: the times of a schedule, or the ends of others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use blackstart_plan::{MAX_SCHEDULED_REQUESTS, MAX_TURNS, Schedule, Share, Turn};
use tokio::sync::Semaphore;

use crate::LoadError;
use crate::conversation::{Conversations, UnderWay};

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
    /// Which turn of which conversation each request is; nothing where every request stands alone. A
    /// share then takes whole conversations: every `of`th from the `number`th on.
    pub turns: Vec<Turn>,
}

impl OpenLoop {
    /// A whole schedule without a cap.
    pub fn whole(schedule: Schedule) -> Self {
        Self {
            schedule,
            share: Share::WHOLE,
            concurrency: None,
            turns: Vec::new(),
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
    /// Most turns of the conversations that slots walk through; `None` where every request stands
    /// alone.
    pub turns: Option<u32>,
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
        turns: Option<Turns>,
    },
    Closed {
        plan: ClosedLoop,
        started: AtomicU64,
        /// Conversations that were begun.
        conversations: AtomicU32,
    },
}

/// The share's conversations.
#[derive(Debug)]
pub(crate) struct Turns {
    /// Which turn the share's requests are, by their place in it.
    turns: Vec<Turn>,
    /// Their places in the whole schedule, ascending.
    indices: Vec<u64>,
    under_way: Arc<Conversations>,
}

impl Turns {
    fn of(share: Share, turns: Vec<Turn>) -> Self {
        let (indices, turns) = (0..)
            .zip(turns)
            .filter(|(_, turn)| share.position(u64::from(turn.conversation)).is_some())
            .unzip();
        Self {
            turns,
            indices,
            under_way: Arc::default(),
        }
    }
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
                let whole = &open.schedule.intended_ns;
                if !open.turns.is_empty() && open.turns.len() != whole.len() {
                    return Err(plan(format!(
                        "{} turns for a schedule of {} requests; compute both again",
                        open.turns.len(),
                        whole.len()
                    )));
                }
                let turns = (!open.turns.is_empty()).then(|| Turns::of(open.share, open.turns));
                let permits = open
                    .concurrency
                    .map(checked)
                    .transpose()?
                    .map(|n| Semaphore::new(n as usize));
                Ok(Self::Open {
                    schedule: match &turns {
                        Some(turns) => turns.indices.iter().map(|i| whole[*i as usize]).collect(),
                        None => open.share.of_schedule(&open.schedule),
                    },
                    turns,
                    share: open.share,
                    permits,
                    cap: u64::from(open.concurrency.unwrap_or(0)),
                })
            }
            Pacing::Closed(closed) => {
                checked(closed.concurrency)?;
                if let Some(turns) = closed.turns
                    && !(1..=MAX_TURNS).contains(&turns)
                {
                    return Err(plan(format!("{turns} turns; choose 1 to {MAX_TURNS}")));
                }
                if closed.requests > MAX_SCHEDULED_REQUESTS as u64 {
                    return Err(plan(format!(
                        "{} requests; at most {MAX_SCHEDULED_REQUESTS}",
                        closed.requests
                    )));
                }
                Ok(Self::Closed {
                    plan: closed,
                    started: AtomicU64::new(0),
                    conversations: AtomicU32::new(0),
                })
            }
        }
    }

    /// Requests that there will be, as far as is known: of a closed loop those that were started.
    pub(crate) fn total(&self) -> u64 {
        match self {
            Self::Open { schedule, .. } => schedule.len() as u64,
            Self::Closed { started, plan, .. } => {
                started.load(Ordering::Acquire).min(plan.requests)
            }
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

    /// Place in the whole load of the share's request at this place.
    pub(crate) fn index(&self, position: u64) -> u64 {
        match self {
            Self::Open {
                turns: Some(turns), ..
            } => turns.indices[position as usize],
            Self::Open { share, .. } => share.index(position),
            Self::Closed { .. } => position,
        }
    }

    /// The share's place of a request of the whole load, if it is in the share.
    pub(crate) fn position(&self, index: u64) -> Option<u64> {
        match self {
            Self::Open {
                turns: Some(turns), ..
            } => turns.indices.binary_search(&index).ok().map(|p| p as u64),
            Self::Open { share, .. } => share.position(index),
            Self::Closed { .. } => Some(index),
        }
    }

    /// Which turn the share's request at this place is, if it is one.
    pub(crate) fn turn(&self, position: u64) -> Option<Turn> {
        match self {
            Self::Open {
                turns: Some(turns), ..
            } => turns.turns.get(position as usize).copied(),
            _ => None,
        }
    }

    /// Begins the turn that the share's request at this place is, if it is one.
    pub(crate) fn enter(&self, position: u64) -> Option<UnderWay> {
        let turn = self.turn(position)?;
        match self {
            Self::Open {
                turns: Some(turns), ..
            } => Some(turns.under_way.enter(turn)),
            _ => None,
        }
    }

    /// Whether requests are turns of conversations.
    pub(crate) fn has_turns(&self) -> bool {
        match self {
            Self::Open { turns, .. } => turns.is_some(),
            Self::Closed { plan, .. } => plan.turns.is_some(),
        }
    }

    /// Turns that wait for the end of an earlier one.
    pub(crate) fn turns_waiting(&self) -> u64 {
        match self {
            Self::Open {
                turns: Some(turns), ..
            } => turns.under_way.waiting(),
            _ => 0,
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
                turns: Vec::new(),
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
            turns: None,
        };
        assert!(State::new(Pacing::Closed(closed)).is_err());
    }

    #[test]
    fn a_share_takes_whole_conversations_at_their_own_places() {
        // Two conversations of two turns around one of a single turn.
        let turns: Vec<Turn> = [(0, 0, 2), (1, 0, 1), (2, 0, 2), (0, 1, 2), (2, 1, 2)]
            .map(|(conversation, turn, of)| Turn {
                conversation,
                turn,
                of,
            })
            .to_vec();
        let state = |number| {
            State::new(Pacing::Open(OpenLoop {
                schedule: Schedule {
                    intended_ns: vec![10, 20, 30, 40, 50],
                },
                share: Share { number, of: 2 },
                concurrency: None,
                turns: turns.clone(),
            }))
            .unwrap()
        };
        let (even, odd) = (state(0), state(1));
        assert_eq!(even.schedule(), [10, 30, 40, 50]);
        assert_eq!(odd.schedule(), [20]);
        let indices: Vec<u64> = (0..4).map(|p| even.index(p)).collect();
        assert_eq!(indices, [0, 2, 3, 4]);
        for position in 0..4 {
            assert_eq!(even.position(even.index(position)), Some(position));
        }
        assert_eq!((even.position(1), odd.position(1)), (None, Some(0)));
        assert_eq!(even.turn(2), Some(turns[3]));
    }
}
