//! Which boundaries of a log are kept: all of them, or of an endless log the first and the last.

use std::collections::VecDeque;

use blackstart_record::Boundary;

use crate::stamp::OwnStamp;

/// Memory that the first boundaries of a log may take, and again as much for the last ones. A start
/// of a server has about twenty boundaries and takes 10 KiB.
const KEPT_BYTES: usize = 24 << 20;

/// Boundaries that were found and not kept: those in the middle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dropped {
    /// How many.
    pub boundaries: u64,
    /// Physical line of the first of them, from 1.
    pub first_line: u64,
    /// Physical line of the last of them.
    pub last_line: u64,
}

/// A boundary with the line's own stamp, which is placed in time at the end.
pub(crate) struct Kept {
    pub boundary: Boundary,
    pub own: Option<OwnStamp>,
}

/// Keeps the first and the last boundaries within a fixed memory.
pub(crate) struct Keeper {
    limit_bytes: usize,
    head: Vec<Kept>,
    head_bytes: usize,
    /// Once something did not fit, the head is closed: what follows goes to the tail.
    tail: VecDeque<Kept>,
    tail_bytes: usize,
    dropped: Option<Dropped>,
}

impl Default for Keeper {
    fn default() -> Self {
        Self::within(KEPT_BYTES)
    }
}

impl Keeper {
    fn within(limit_bytes: usize) -> Self {
        Self {
            limit_bytes,
            head: Vec::new(),
            head_bytes: 0,
            tail: VecDeque::new(),
            tail_bytes: 0,
            dropped: None,
        }
    }

    pub(crate) fn push(&mut self, kept: Kept) {
        let bytes = size(&kept.boundary);
        if self.tail.is_empty() && self.head_bytes + bytes <= self.limit_bytes {
            self.head_bytes += bytes;
            self.head.push(kept);
            return;
        }
        self.tail_bytes += bytes;
        self.tail.push_back(kept);
        while self.tail_bytes > self.limit_bytes && self.tail.len() > 1 {
            let Some(old) = self.tail.pop_front() else {
                return;
            };
            self.tail_bytes -= size(&old.boundary);
            let line = old.boundary.line;
            let dropped = self.dropped.get_or_insert(Dropped {
                boundaries: 0,
                first_line: line,
                last_line: line,
            });
            dropped.boundaries += 1;
            dropped.last_line = line;
        }
    }

    /// The kept boundaries in file order, and what lies between the first and the last ones.
    pub(crate) fn finish(mut self) -> (Vec<Kept>, Option<Dropped>) {
        self.head.extend(self.tail);
        (self.head, self.dropped)
    }
}

/// Memory of a boundary, in bytes.
fn size(b: &Boundary) -> usize {
    let measures: usize = b.measures.iter().map(|m| m.name.len() + m.unit.len()).sum();
    let fields: usize = b.fields.iter().map(|(k, v)| k.len() + v.len()).sum();
    size_of::<Kept>()
        + size_of_val(b.measures.as_slice())
        + size_of_val(b.fields.as_slice())
        + measures
        + fields
        + b.key.len()
        + b.process.as_ref().map_or(0, String::len)
        + b.text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_record::StampSource;

    fn kept(line: u64) -> Kept {
        Kept {
            boundary: Boundary {
                line,
                life: 1,
                key: "banner".to_owned(),
                process: None,
                at_unix_ns: None,
                stamp: StampSource::None,
                resolution_ns: None,
                measures: Vec::new(),
                fields: Vec::new(),
                text: "x".repeat(100),
            },
            own: None,
        }
    }

    #[test]
    fn the_first_and_the_last_are_kept_and_the_rest_is_named() {
        let ten = 10 * size(&kept(1).boundary);
        let mut keeper = Keeper::within(ten);
        (1..=100).for_each(|line| keeper.push(kept(line)));
        let (all, dropped) = keeper.finish();
        let lines: Vec<u64> = all.iter().map(|k| k.boundary.line).collect();
        assert_eq!(lines, (1..=10).chain(91..=100).collect::<Vec<_>>());
        let expected = Dropped {
            boundaries: 80,
            first_line: 11,
            last_line: 90,
        };
        assert_eq!(dropped, Some(expected));
    }

    #[test]
    fn what_fits_is_kept_whole() {
        let mut keeper = Keeper::within(10 * size(&kept(1).boundary));
        (1..=20).for_each(|line| keeper.push(kept(line)));
        let (all, dropped) = keeper.finish();
        assert_eq!((all.len(), dropped), (20, None));
    }
}
