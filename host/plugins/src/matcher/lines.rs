//! Log lines on their way into a matcher: cut, joined, in batches.

use std::borrow::Cow;

use crate::text::cut;

/// Most lines of one batch; a part of the contract.
pub const MAX_BATCH_LINES: usize = 4096;
/// Most bytes of one batch, line ends included.
pub const MAX_BATCH_BYTES: usize = 256 << 10;
/// Longest line a matcher sees, in bytes; the rest of a longer one is cut off.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Lines waiting to be fed: within both bounds at every moment.
#[derive(Debug, Default)]
pub struct LineBatch {
    text: String,
    lines: usize,
}

impl LineBatch {
    /// An empty batch.
    pub fn new() -> LineBatch {
        LineBatch::default()
    }

    /// Adds a line, without its line end. `false` means that the batch is full: feed
    /// and [`LineBatch::clear`] it, then push the line again. An empty batch takes any
    /// line.
    #[must_use]
    pub fn push(&mut self, line: &str) -> bool {
        let line = cut(line, MAX_LINE_BYTES);
        let bytes = line.len() + usize::from(self.lines > 0);
        if self.lines == MAX_BATCH_LINES || self.text.len() + bytes > MAX_BATCH_BYTES {
            return false;
        }
        if self.lines > 0 {
            self.text.push('\n');
        }
        // A line end inside would shift the index of every line after it.
        if line.contains('\n') {
            self.text
                .extend(line.chars().map(|c| if c == '\n' { ' ' } else { c }));
        } else {
            self.text.push_str(line);
        }
        self.lines += 1;
        true
    }

    /// The lines joined by `\n`.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// How many lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// No lines.
    pub fn is_empty(&self) -> bool {
        self.lines == 0
    }

    /// Forgets the lines, keeps the memory.
    pub fn clear(&mut self) {
        self.text.clear();
        self.lines = 0;
    }
}

/// A line as read from a log: invalid UTF-8 replaced, a line end removed.
pub fn decode_line(bytes: &[u8]) -> Cow<'_, str> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    String::from_utf8_lossy(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_is_full_at_its_lines() {
        let mut batch = LineBatch::new();
        for _ in 0..MAX_BATCH_LINES {
            assert!(batch.push("x"));
        }
        assert!(!batch.push("x"));
        assert_eq!(batch.lines(), MAX_BATCH_LINES);
        assert_eq!(batch.text().matches('\n').count(), MAX_BATCH_LINES - 1);
        batch.clear();
        assert!(batch.is_empty() && batch.push("y"));
        assert_eq!(batch.text(), "y");
    }

    #[test]
    fn a_batch_is_full_at_its_bytes_and_long_lines_are_cut_between_characters() {
        let mut batch = LineBatch::new();
        let long = "µ".repeat(MAX_LINE_BYTES);
        assert!(batch.push("a"));
        while batch.push(&long) {}
        assert_eq!(batch.lines(), 4);
        assert!(batch.text().len() <= MAX_BATCH_BYTES);
        let odd = format!("a{long}");
        batch.clear();
        assert!(batch.push(&odd));
        assert_eq!(batch.text().len(), MAX_LINE_BYTES - 1);
    }

    #[test]
    fn empty_lines_count_and_line_ends_inside_do_not() {
        let mut batch = LineBatch::new();
        assert!(batch.push("") && batch.push("") && batch.push("a\nb\rc"));
        assert_eq!(batch.text(), "\n\na b\rc");
        assert_eq!(batch.lines(), 3);
    }

    #[test]
    fn lines_are_decoded() {
        assert_eq!(decode_line(b"a\xffb\r\n"), "a\u{fffd}b\r");
        assert_eq!(decode_line(b"\n"), "");
    }
}
