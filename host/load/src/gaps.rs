//! Where the gaps between content events go: into histograms, and each into a list where that is
//! asked for.

use blackstart_record::{Gap, GapHistograms};

/// Gaps that are handed over at once. Bounds what is held of them.
pub const GAPS_AT_ONCE: usize = 4096;

/// Takes the gaps of a load thread.
#[derive(Default)]
pub struct GapSink {
    /// All gaps, by second of their request's intended time.
    pub histograms: GapHistograms,
    /// `None` costs a gap one branch and no memory.
    every: Option<EveryGap>,
}

struct EveryGap {
    held: Vec<Gap>,
    hand_over: Box<dyn FnMut(Vec<Gap>)>,
}

impl GapSink {
    /// A sink that also hands over every gap, [`GAPS_AT_ONCE`] at a time at most.
    pub fn keeping_every_gap(hand_over: impl FnMut(Vec<Gap>) + 'static) -> Self {
        Self {
            histograms: GapHistograms::default(),
            every: Some(EveryGap {
                held: Vec::new(),
                hand_over: Box::new(hand_over),
            }),
        }
    }

    pub(crate) fn record(&mut self, intended_ns: i64, gap: Gap) {
        self.histograms.record(intended_ns, gap.gap_ns);
        if let Some(every) = &mut self.every {
            every.held.push(gap);
            if every.held.len() >= GAPS_AT_ONCE {
                self.hand_over();
            }
        }
    }

    /// Hands over what is held.
    pub fn hand_over(&mut self) {
        if let Some(every) = &mut self.every
            && !every.held.is_empty()
        {
            // As much will come again.
            let room = Vec::with_capacity(every.held.len());
            (every.hand_over)(std::mem::replace(&mut every.held, room));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::rc::Rc;

    #[test]
    fn no_more_is_held_than_is_handed_over_at_once_and_none_is_lost() {
        let seen = Rc::new(RefCell::new(Vec::new()));
        let into = Rc::clone(&seen);
        let mut sink = GapSink::keeping_every_gap(move |gaps| into.borrow_mut().push(gaps));
        let all = GAPS_AT_ONCE as u64 + 3;
        for index in 0..all {
            sink.record(
                0,
                Gap {
                    index,
                    chunk: 1,
                    choice: 0,
                    at_ns: 5,
                    gap_ns: 2_000,
                },
            );
        }
        assert_eq!(seen.borrow().len(), 1);
        sink.hand_over();
        sink.hand_over();
        let parts = seen.borrow();
        let sizes: Vec<usize> = parts.iter().map(Vec::len).collect();
        assert_eq!(sizes, [GAPS_AT_ONCE, 3]);
        let indices = parts.iter().flatten().map(|g| g.index);
        assert!(indices.eq(0..all));
        assert_eq!(sink.histograms.buckets[&0].len(), all);
    }
}
