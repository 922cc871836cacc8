//! Conversations: each arrival of a schedule begins one, and its later turns have times of their own.
//!
//! The times are computed before the start from the seed alone, as those of single requests are. A
//! turn's time is that of the turn before plus a think time, never the end of an answer plus
//! something: nothing that the server does moves the schedule. A turn whose predecessor has not
//! ended by then waits for it, and that wait counts in its latencies.

use serde::{Deserialize, Serialize};

use super::gaps::Gaps;
use super::{Arrivals, ArrivalsError, MAX_SCHEDULED_REQUESTS, Schedule};

/// Most turns of a conversation.
pub const MAX_TURNS: u32 = 128;
/// Longest think time, or mean of them, in nanoseconds: a day.
pub const MAX_THINK_NS: i64 = 86_400_000_000_000;

/// The conversations of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Conversations {
    /// Most turns of one.
    pub turns: u32,
    /// From one turn's intended time to that of the next. `None` in a closed loop, where a turn
    /// follows the end of the one before.
    pub think_time: Option<ThinkTime>,
}

/// The time between two turns' intended times.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "distribution", rename_all = "snake_case", deny_unknown_fields)]
pub enum ThinkTime {
    /// Always the same.
    Constant {
        /// In nanoseconds.
        ns: i64,
    },
    /// Independent of each other, exponentially distributed.
    Exponential {
        /// Their mean in nanoseconds.
        mean_ns: i64,
    },
}

impl ThinkTime {
    /// Its mean in nanoseconds.
    pub fn mean_ns(self) -> i64 {
        match self {
            Self::Constant { ns } => ns,
            Self::Exponential { mean_ns } => mean_ns,
        }
    }
}

/// Which turn of which conversation a request is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// The conversation, from 0 in the order in which they begin.
    pub conversation: u32,
    /// The turn, from 0.
    pub turn: u32,
    /// How many turns of this conversation there are in the schedule, which may end before the
    /// conversation does.
    pub of: u32,
}

/// The requests of all conversations by their intended times.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConversationSchedule {
    /// When each request is sent.
    pub schedule: Schedule,
    /// Which turn each of them is.
    pub turns: Vec<Turn>,
}

impl Conversations {
    /// The requests of conversations that begin at `starts`: turns before `end_ns`, and of these the
    /// first `requests`. `turns_of` says how many turns a conversation has; more than
    /// [`turns`](Self::turns) are left out.
    ///
    /// # Errors
    /// When it asks for more than the instrument accepts.
    pub fn schedule(
        self,
        starts: &Schedule,
        turns_of: impl Fn(u32) -> u32,
        end_ns: i64,
        requests: Option<u64>,
        seed: u64,
    ) -> Result<ConversationSchedule, ArrivalsError> {
        if !(1..=MAX_TURNS).contains(&self.turns) {
            return Err(ArrivalsError::Turns(self.turns));
        }
        let think = self.think_time.unwrap_or(ThinkTime::Constant { ns: 0 });
        if !(0..=MAX_THINK_NS).contains(&think.mean_ns()) {
            return Err(ArrivalsError::ThinkTime(think.mean_ns() as f64 / 1e9));
        }
        let mut gaps = Gaps::think_times(seed);
        let mut all = Vec::new();
        for (conversation, start_ns) in (0_u32..).zip(&starts.intended_ns) {
            let turns = turns_of(conversation);
            let mut at_ns = *start_ns;
            // All are drawn, needed or not, so that no conversation's times depend on another's
            // length.
            for turn in 0..self.turns {
                if turn > 0 {
                    let think_ns = match think {
                        ThinkTime::Constant { ns } => ns,
                        ThinkTime::Exponential { mean_ns } => {
                            (gaps.draw() * mean_ns as f64).round() as i64
                        }
                    };
                    at_ns = at_ns.saturating_add(think_ns);
                }
                if turn < turns && at_ns < end_ns {
                    all.push((at_ns, conversation, turn));
                }
            }
            if all.len() > MAX_SCHEDULED_REQUESTS {
                return Err(ArrivalsError::TooManyTurns {
                    conversations: starts.intended_ns.len(),
                    turns: self.turns,
                });
            }
        }
        all.sort_unstable();
        if let Some(requests) = requests {
            all.truncate(usize::try_from(requests).unwrap_or(usize::MAX));
        }
        // Earlier turns come first: what is cut off of a conversation is its end.
        let mut counts = vec![0_u32; starts.intended_ns.len()];
        for (_, conversation, _) in &all {
            counts[*conversation as usize] += 1;
        }
        Ok(ConversationSchedule {
            schedule: Schedule {
                intended_ns: all.iter().map(|(at_ns, ..)| *at_ns).collect(),
            },
            turns: all
                .iter()
                .map(|(_, conversation, turn)| Turn {
                    conversation: *conversation,
                    turn: *turn,
                    of: counts[*conversation as usize],
                })
                .collect(),
        })
    }
}

/// The think times of a load that is not told any: exponential with a mean of 5 s.
pub const DEFAULT_THINK_TIME: ThinkTime = ThinkTime::Exponential {
    mean_ns: 5_000_000_000,
};

/// The schedule of an open loop of conversations, recomputed from what `load.json` says.
///
/// # Errors
/// See [`ArrivalsError`].
pub fn conversation_schedule(
    arrivals: Arrivals,
    profile: &super::RateProfile,
    conversations: Conversations,
    turns_of: impl Fn(u32) -> u32,
    requests: Option<u64>,
    seed: u64,
) -> Result<ConversationSchedule, ArrivalsError> {
    let starts = arrivals.schedule_profile(profile, seed)?;
    conversations.schedule(&starts, turns_of, profile.length_ns(), requests, seed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000_000;

    fn talk(turns: u32, think_time: ThinkTime) -> Conversations {
        Conversations {
            turns,
            think_time: Some(think_time),
        }
    }

    fn starts(at: &[i64]) -> Schedule {
        Schedule {
            intended_ns: at.to_vec(),
        }
    }

    #[test]
    fn a_worked_schedule() {
        let found = talk(3, ThinkTime::Constant { ns: 10 })
            .schedule(
                &starts(&[0, 5, 12]),
                |c| if c == 1 { 1 } else { 9 },
                30,
                None,
                1,
            )
            .unwrap();
        assert_eq!(found.schedule.intended_ns, [0, 5, 10, 12, 20, 22]);
        let turns: Vec<_> = found
            .turns
            .iter()
            .map(|t| (t.conversation, t.turn, t.of))
            .collect();
        // The third turn of the last conversation would be due when the schedule has ended.
        assert_eq!(
            turns,
            [
                (0, 0, 3),
                (1, 0, 1),
                (0, 1, 3),
                (2, 0, 2),
                (0, 2, 3),
                (2, 1, 2)
            ]
        );
        let fewer = talk(3, ThinkTime::Constant { ns: 10 })
            .schedule(&starts(&[0, 5, 12]), |_| 3, 30, Some(3), 1)
            .unwrap();
        assert_eq!(fewer.schedule.intended_ns, [0, 5, 10]);
        assert_eq!(fewer.turns[0].of, 2);
    }

    #[test]
    fn times_have_pinned_bytes_and_leave_the_arrivals_as_they_are() {
        let profile = super::super::RateProfile::constant(5.0, 100 * S);
        let of = |seed| {
            conversation_schedule(
                Arrivals::Poisson,
                &profile,
                talk(4, ThinkTime::Exponential { mean_ns: 2 * S }),
                |_| 4,
                None,
                seed,
            )
            .unwrap()
        };
        let found = of(42);
        assert_eq!(found, of(42));
        assert_ne!(found.schedule, of(43).schedule);
        assert_eq!(
            found.schedule.sha256(),
            PINNED_SHA256,
            "first times {:?}",
            &found.schedule.intended_ns[..4]
        );
        let first: Vec<i64> = found
            .turns
            .iter()
            .zip(&found.schedule.intended_ns)
            .filter(|(t, _)| t.turn == 0)
            .map(|(_, at)| *at)
            .collect();
        let arrivals = Arrivals::Poisson.schedule_profile(&profile, 42).unwrap();
        assert_eq!(first, arrivals.intended_ns);
    }

    const PINNED_SHA256: &str = "28dca9fda5809e7efb1695800800a995bdcc0bf7c5758cd271151a435a1cfcdf";

    #[test]
    fn think_times_have_the_mean_and_the_spread_of_an_exponential() {
        let at: Vec<i64> = (0..20_000).collect();
        let found = talk(2, ThinkTime::Exponential { mean_ns: S })
            .schedule(&starts(&at), |_| 2, i64::MAX, None, 7)
            .unwrap();
        let mut thoughts = Vec::new();
        for (turn, at_ns) in found.turns.iter().zip(&found.schedule.intended_ns) {
            if turn.turn == 1 {
                thoughts.push((at_ns - at[turn.conversation as usize]) as f64 / 1e9);
            }
        }
        assert_eq!(thoughts.len(), at.len());
        let mean = thoughts.iter().sum::<f64>() / thoughts.len() as f64;
        let var = thoughts.iter().map(|t| (t - mean).powi(2)).sum::<f64>() / thoughts.len() as f64;
        assert!((mean - 1.0).abs() < 0.03, "{mean}");
        assert!((var.sqrt() / mean - 1.0).abs() < 0.05, "{var}");
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let nothing = starts(&[]);
        for (turns, ns) in [(0, 1), (MAX_TURNS + 1, 1), (2, -1), (2, MAX_THINK_NS + 1)] {
            let spec = talk(turns, ThinkTime::Constant { ns });
            let found = spec.schedule(&nothing, |_| 1, 1, None, 1);
            assert!(found.is_err(), "{turns} {ns}");
        }
        let many = starts(&vec![0; MAX_SCHEDULED_REQUESTS / 100]);
        let error = talk(101, ThinkTime::Constant { ns: 0 })
            .schedule(&many, |_| 101, 1, None, 1)
            .unwrap_err()
            .to_string();
        assert!(error.contains("101 turns"), "{error}");
    }

    proptest! {
        /// Whatever is asked: times ascend, and each conversation has its turns once, in their order.
        #[test]
        fn every_conversation_has_its_turns_in_order(
            at in prop::collection::vec(0_i64..1000, 0..40),
            turns in 1_u32..6,
            mean_ns in 0_i64..400,
            most in prop::option::of(0_u64..150),
            seed: u64,
        ) {
            let mut at = at;
            at.sort_unstable();
            let spec = talk(turns, ThinkTime::Exponential { mean_ns });
            let found = spec.schedule(&starts(&at), |c| c % 7 + 1, 1000, most, seed).unwrap();
            prop_assert!(found.schedule.intended_ns.is_sorted());
            prop_assert_eq!(found.schedule.intended_ns.len(), found.turns.len());
            let mut next = vec![0; at.len()];
            for turn in &found.turns {
                let next = &mut next[turn.conversation as usize];
                prop_assert_eq!(turn.turn, *next);
                prop_assert!(turn.turn < turn.of);
                *next += 1;
            }
            for turn in &found.turns {
                prop_assert_eq!(next[turn.conversation as usize], turn.of);
            }
        }
    }
}
