//! Parts of a schedule, for several machines.

use serde::{Deserialize, Serialize};

use crate::Schedule;

/// One of several equal parts of a schedule: every `of`th request from the `number`th on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
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
}
