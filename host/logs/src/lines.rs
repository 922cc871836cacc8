//! Bytes to physical lines, bounded.

use std::borrow::Cow;
use std::io::{self, BufRead};

/// Longest line handed on whole. A longer one keeps its head and its tail: a progress bar's whole
/// history is one physical line, and the record that matters is glued to its end.
pub const LONGEST_LINE_BYTES: usize = 1 << 20;

/// A physical line, without its line feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PhysicalLine {
    /// Text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Whether bytes had to be replaced.
    pub lossy: bool,
    /// Whether the middle of the line was dropped.
    pub cut: bool,
}

/// Reads physical lines with bounded memory.
#[derive(Debug)]
pub struct LineSplitter<R> {
    input: R,
}

impl<R: BufRead> LineSplitter<R> {
    /// Splits this input.
    pub fn new(input: R) -> Self {
        Self { input }
    }

    /// The next line, or `None` at the end. A last line without a line feed counts.
    ///
    /// # Errors
    /// What reading the input says.
    pub fn next_line(&mut self) -> io::Result<Option<PhysicalLine>> {
        const HALF: usize = LONGEST_LINE_BYTES / 2;
        let mut head: Vec<u8> = Vec::new();
        let mut tail: Vec<u8> = Vec::new();
        let mut cut = false;
        let mut any = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            if chunk.is_empty() {
                break;
            }
            any = true;
            let end = memchr::memchr(b'\n', chunk);
            let part = &chunk[..end.unwrap_or(chunk.len())];
            let to_head = part.len().min(LONGEST_LINE_BYTES - head.len());
            head.extend_from_slice(&part[..to_head]);
            tail.extend_from_slice(&part[to_head..]);
            if tail.len() > 2 * HALF {
                cut = true;
                tail.drain(..tail.len() - HALF);
            }
            let used = end.map_or(chunk.len(), |i| i + 1);
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if !any {
            return Ok(None);
        }
        if !tail.is_empty() {
            cut = true;
            head.truncate(HALF);
            // A carriage return keeps the two halves apart, as a bar's own updates are.
            head.push(b'\r');
            head.extend_from_slice(&tail[tail.len().saturating_sub(HALF - 1)..]);
        }
        let text = String::from_utf8_lossy(&head);
        let lossy = matches!(text, Cow::Owned(_));
        Ok(Some(PhysicalLine {
            text: text.into_owned(),
            lossy,
            cut,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8], buffer: usize) -> Vec<PhysicalLine> {
        let mut splitter = LineSplitter::new(io::BufReader::with_capacity(buffer, bytes));
        std::iter::from_fn(|| splitter.next_line().unwrap()).collect()
    }

    #[test]
    fn carriage_returns_do_not_end_a_line() {
        let lines = all(b"a\rb\r\nc\n\nlast", 3);
        let texts: Vec<&str> = lines.iter().map(|l| l.text.as_str()).collect();
        assert_eq!(texts, ["a\rb\r", "c", "", "last"]);
    }

    #[test]
    fn a_huge_line_keeps_its_head_and_its_tail() {
        let mut bytes = b"HEAD".to_vec();
        bytes.resize(7 * LONGEST_LINE_BYTES, b'.');
        bytes.extend_from_slice(b"TAIL\nnext\n");
        let lines = all(&bytes, 8192);
        assert_eq!(lines.len(), 2);
        assert!(lines[0].cut && lines[0].text.len() <= LONGEST_LINE_BYTES);
        assert!(lines[0].text.starts_with("HEAD") && lines[0].text.ends_with("TAIL"));
        assert_eq!(lines[1].text, "next");
    }

    #[test]
    fn invalid_utf8_is_replaced_and_said() {
        let lines = all(b"ok \xff\xfe\n", 64);
        assert!(lines[0].lossy);
        assert_eq!(lines[0].text, "ok \u{fffd}\u{fffd}");
    }
}
