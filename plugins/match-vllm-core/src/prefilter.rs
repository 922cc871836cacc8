//! Finds which lines can matter at all: a multi-literal scanner.
//!
//! Almost every line of a server log is unmatched, so what is done per unmatched
//! byte is what a session costs. The scanner is the Wu–Manber algorithm: it looks at
//! three bytes and, when no literal contains them near its end, jumps ahead by up
//! to [`WINDOW`] − 2 bytes. It is scalar code without tables larger than the first
//! cache level, so that it runs at nearly the same speed inside WebAssembly, where
//! the vectorised searchers of the usual crates are not available.

/// Bytes of each literal that the scanner looks for; every literal is at least this long.
pub const WINDOW: usize = 10;
/// Bytes hashed at a time.
const BLOCK: usize = 3;
/// Shift when no literal contains the block.
const MAX_SHIFT: u8 = (WINDOW - BLOCK + 1) as u8;
const TABLE_BITS: u32 = 14;

/// One occurrence of a literal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hit {
    /// Byte offset of the literal's first byte.
    pub at: usize,
    /// Index of the literal in the list given to [`Prefilter::new`].
    pub literal: usize,
}

/// A compiled set of literals.
#[derive(Debug)]
pub struct Prefilter {
    literals: Vec<&'static [u8]>,
    /// Distance that is safe to jump, by hash of the block.
    shifts: Vec<u8>,
    /// (hash of the window's last block, literal), sorted by hash.
    ends: Vec<(u32, usize)>,
}

fn hash(a: u8, b: u8, c: u8) -> u32 {
    u32::from_le_bytes([a, b, c, 0]).wrapping_mul(0x9E37_79B1) >> (32 - TABLE_BITS)
}

impl Prefilter {
    /// Compiles the literals. Those shorter than [`WINDOW`] would never be found, so
    /// the rule table's test forbids them.
    pub fn new(literals: impl IntoIterator<Item = &'static str>) -> Self {
        let literals: Vec<&'static [u8]> = literals.into_iter().map(str::as_bytes).collect();
        let mut shifts = vec![MAX_SHIFT; 1 << TABLE_BITS];
        let mut ends = Vec::with_capacity(literals.len());
        for (index, literal) in literals.iter().enumerate() {
            let Some(window) = literal.get(..WINDOW) else {
                continue;
            };
            for (offset, block) in window.windows(BLOCK).enumerate() {
                let slot = hash(block[0], block[1], block[2]);
                let shift = (WINDOW - BLOCK - offset) as u8;
                let entry = &mut shifts[slot as usize];
                *entry = (*entry).min(shift);
                if shift == 0 {
                    ends.push((slot, index));
                }
            }
        }
        ends.sort_unstable();
        Self {
            literals,
            shifts,
            ends,
        }
    }

    /// First occurrence of any literal that starts at or after `from`. Of several
    /// that start at the same byte, the one listed first.
    pub fn find(&self, text: &[u8], from: usize) -> Option<Hit> {
        // Index of the block's first byte; the window ends with the block.
        let mut at = from.checked_add(WINDOW - BLOCK)?;
        loop {
            let block = text.get(at..at + BLOCK)?;
            let slot = hash(block[0], block[1], block[2]);
            let shift = self.shifts[slot as usize];
            if shift != 0 {
                at += usize::from(shift);
                continue;
            }
            let start = at + BLOCK - WINDOW;
            let first = self.ends.partition_point(|entry| entry.0 < slot);
            for &(_, literal) in self.ends[first..].iter().take_while(|e| e.0 == slot) {
                if text[start..].starts_with(self.literals[literal]) {
                    return Some(Hit { at: start, literal });
                }
            }
            at += 1;
        }
    }

    /// Every literal that starts at `at`, in list order.
    pub fn all_at<'a>(&'a self, text: &'a [u8], at: usize) -> impl Iterator<Item = usize> + 'a {
        let slot = text
            .get(at + WINDOW - BLOCK..at + WINDOW)
            .map(|b| hash(b[0], b[1], b[2]));
        let first = slot.map_or(self.ends.len(), |slot| {
            self.ends.partition_point(|entry| entry.0 < slot)
        });
        self.ends[first..]
            .iter()
            .take_while(move |entry| Some(entry.0) == slot)
            .map(|entry| entry.1)
            .filter(move |&literal| text[at..].starts_with(self.literals[literal]))
    }
}

/// Counts line ends, eight bytes at a time and without vector instructions.
pub fn count_newlines(text: &[u8]) -> u64 {
    const LOW: u64 = 0x7F7F_7F7F_7F7F_7F7F;
    const NEWLINES: u64 = 0x0A0A_0A0A_0A0A_0A0A;
    let (chunks, rest) = text.as_chunks::<8>();
    let mut count = 0_u64;
    for chunk in chunks {
        let word = u64::from_le_bytes(*chunk) ^ NEWLINES;
        // High bit clear exactly in the bytes of `word` that are zero.
        let nonzero = ((word & LOW) + LOW) | word;
        count += u64::from((!nonzero & !LOW).count_ones());
    }
    count + rest.iter().filter(|byte| **byte == b'\n').count() as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LITERALS: [&str; 5] = [
        "abcabcabca",
        "bcabcabcabca",
        "Loading weights took ",
        "Loading model weights took ",
        "abcabcabcaX",
    ];

    fn naive(text: &[u8], from: usize) -> Option<Hit> {
        (from..text.len()).find_map(|at| {
            LITERALS
                .iter()
                .position(|literal| text[at..].starts_with(literal.as_bytes()))
                .map(|literal| Hit { at, literal })
        })
    }

    proptest! {
        #[test]
        fn finds_what_a_naive_search_finds(
            text in proptest::collection::vec(
                prop_oneof![
                    Just("abc".to_owned()), Just("a".to_owned()), Just("X".to_owned()),
                    Just("Loading weights took ".to_owned()), Just("Loading model ".to_owned()),
                    Just("weights took ".to_owned()), ".{0,3}",
                ], 0..20),
            from in 0_usize..40,
        ) {
            let text = text.concat();
            let prefilter = Prefilter::new(LITERALS);
            let found = prefilter.find(text.as_bytes(), from);
            prop_assert_eq!(found, naive(text.as_bytes(), from));
            if let Some(hit) = found {
                let all: Vec<_> = prefilter.all_at(text.as_bytes(), hit.at).collect();
                let expected: Vec<_> = (0..LITERALS.len())
                    .filter(|i| text.as_bytes()[hit.at..].starts_with(LITERALS[*i].as_bytes()))
                    .collect();
                prop_assert_eq!(all, expected);
            }
        }

        #[test]
        fn counts_newlines(text in proptest::collection::vec(
            prop_oneof![Just(b'\n'), Just(0x0B), Just(0x8A), Just(0), any::<u8>()], 0..100)) {
            let expected = text.iter().filter(|byte| **byte == b'\n').count() as u64;
            prop_assert_eq!(count_newlines(&text), expected);
        }
    }
}
