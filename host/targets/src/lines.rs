//! Log lines as a container runtime shows them: `2026-01-02T03:04:05.000000006Z text`.
//!
//! The stamp of a line is the clock read directly after the `read` that *completed* it (brought
//! its line end, its end of file, or the byte at which it was split). A server that writes a line
//! in one piece, as servers do, has it stamped microseconds after the write.

use std::sync::Arc;

use blackstart_clock::{NS_PER_S, RunClock};

/// Longest line; a longer one is split and marked with [`SPLIT_MARK`].
pub const MAX_LINE_BYTES: usize = 1 << 20;
/// Put at the end of each piece of a line that goes on.
pub const SPLIT_MARK: &[u8] = b" [blackstart: line split, goes on in the next one]";

/// Splits one stream into stamped lines.
#[derive(Default)]
pub struct LineSplitter {
    partial: Vec<u8>,
    /// Kept out of every line; empty = nothing.
    mask: Arc<[u8]>,
}

/// What stands in a line for a text that is kept out of it.
const MASKED: &[u8] = b"[redacted]";

impl std::fmt::Debug for LineSplitter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Neither of the two is to be shown.
        f.debug_struct("LineSplitter").finish_non_exhaustive()
    }
}

impl LineSplitter {
    /// A splitter that keeps a text out of its lines. (A server may print the API key that it was
    /// started with.)
    pub fn masking(mask: Arc<[u8]>) -> Self {
        Self {
            partial: Vec::new(),
            mask,
        }
    }

    fn push_masked(&self, out: &mut Vec<u8>) {
        let mut from = 0;
        if !self.mask.is_empty() {
            for at in memchr::memmem::find_iter(&self.partial, &*self.mask) {
                out.extend_from_slice(&self.partial[from..at]);
                out.extend_from_slice(MASKED);
                from = at + self.mask.len();
            }
        }
        out.extend_from_slice(&self.partial[from..]);
    }

    /// Takes the bytes of one read, appends complete lines to `out`.
    pub fn feed(&mut self, mut bytes: &[u8], unix_ns: i64, out: &mut Vec<u8>) {
        while let Some(end) = bytes.iter().position(|&b| b == b'\n') {
            let (line, rest) = bytes.split_at(end);
            self.take(line, unix_ns, out);
            self.emit(unix_ns, b"", out);
            bytes = &rest[1..];
        }
        self.take(bytes, unix_ns, out);
    }

    /// The stream ended, or its writer did: a last line without an end is kept.
    pub fn finish(&mut self, unix_ns: i64, out: &mut Vec<u8>) {
        if !self.partial.is_empty() {
            self.emit(unix_ns, b"", out);
        }
    }

    fn take(&mut self, mut bytes: &[u8], unix_ns: i64, out: &mut Vec<u8>) {
        while self.partial.len() + bytes.len() > MAX_LINE_BYTES {
            let (piece, rest) = bytes.split_at(MAX_LINE_BYTES - self.partial.len());
            self.partial.extend_from_slice(piece);
            self.emit(unix_ns, SPLIT_MARK, out);
            bytes = rest;
        }
        self.partial.extend_from_slice(bytes);
    }

    fn emit(&mut self, unix_ns: i64, mark: &[u8], out: &mut Vec<u8>) {
        push_stamp(unix_ns, out);
        out.push(b' ');
        self.push_masked(out);
        out.extend_from_slice(mark);
        out.push(b'\n');
        self.partial.clear();
        // One huge line must not keep its memory for the rest of the run.
        self.partial.shrink_to(64 * 1024);
    }
}

/// Wall-clock time now, through the clock's one bracketed pair.
pub(crate) fn unix_now(clock: &RunClock) -> i64 {
    clock.to_unix(clock.now())
}

/// Appends RFC 3339 with nanoseconds, UTC: `2026-01-02T03:04:05.000000006Z`.
pub fn push_stamp(unix_ns: i64, out: &mut Vec<u8>) {
    use std::io::Write;
    let seconds = unix_ns.div_euclid(NS_PER_S);
    let nanos = unix_ns.rem_euclid(NS_PER_S);
    let (year, month, day) = civil(seconds.div_euclid(86_400));
    let of_day = seconds.rem_euclid(86_400);
    // A write to a Vec cannot fail.
    let _ = write!(
        out,
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{nanos:09}Z",
        of_day / 3600,
        of_day / 60 % 60,
        of_day % 60
    );
}

/// Gregorian date of a day number counted from 1970-01-01, by whole 400-year eras that begin on
/// 1 March, so that the leap day is the last day of a year.
fn civil(days: i64) -> (i64, i64, i64) {
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamp(unix_ns: i64) -> String {
        let mut out = Vec::new();
        push_stamp(unix_ns, &mut out);
        String::from_utf8(out).expect("ascii")
    }

    #[test]
    fn a_masked_text_is_in_no_line() {
        let mut splitter = LineSplitter::masking(Arc::from(&b"sk-1"[..]));
        let mut out = Vec::new();
        splitter.feed(b"api_key: ['sk-1'] sk-1sk-1\nsk", 0, &mut out);
        splitter.feed(b"-1 and sk-2", 0, &mut out);
        splitter.finish(0, &mut out);
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains("sk-1"), "{text}");
        assert!(
            text.contains("api_key: ['[redacted]'] [redacted][redacted]\n"),
            "{text}"
        );
        assert!(text.ends_with("[redacted] and sk-2\n"), "{text}");
    }

    #[test]
    fn stamps_are_those_of_the_calendar() {
        // Values of `date -u -d @N`.
        assert_eq!(stamp(0), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(stamp(-1), "1969-12-31T23:59:59.999999999Z");
        assert_eq!(
            stamp(951_782_400 * NS_PER_S + 6),
            "2000-02-29T00:00:00.000000006Z"
        );
        assert_eq!(
            stamp(1_767_225_599 * NS_PER_S),
            "2025-12-31T23:59:59.000000000Z"
        );
        assert_eq!(
            stamp(4_107_542_400 * NS_PER_S),
            "2100-03-01T00:00:00.000000000Z"
        );
    }

    /// Text of each line without its stamp.
    fn texts(out: &[u8]) -> Vec<Vec<u8>> {
        out.split(|&b| b == b'\n')
            .filter(|l| !l.is_empty())
            .map(|l| l[31..].to_vec())
            .collect()
    }

    #[test]
    fn the_split_of_the_reads_does_not_change_the_lines() {
        let text = b"one\r\n\ntwo \xff bytes\nlast without end";
        let mut whole = Vec::new();
        let mut splitter = LineSplitter::default();
        splitter.feed(text, 5, &mut whole);
        splitter.finish(5, &mut whole);
        for cut in 0..text.len() {
            let mut out = Vec::new();
            let mut splitter = LineSplitter::default();
            splitter.feed(&text[..cut], 5, &mut out);
            splitter.feed(&text[cut..], 5, &mut out);
            splitter.finish(5, &mut out);
            assert_eq!(out, whole, "cut at {cut}");
        }
        assert_eq!(
            texts(&whole),
            [&b"one\r"[..], b"", b"two \xff bytes", b"last without end"]
        );
    }

    #[test]
    fn a_line_is_stamped_by_the_read_that_completes_it() {
        let mut out = Vec::new();
        let mut splitter = LineSplitter::default();
        splitter.feed(b"begun ", 1, &mut out);
        assert!(out.is_empty());
        splitter.feed(b"ended\n", 2, &mut out);
        assert_eq!(out, b"1970-01-01T00:00:00.000000002Z begun ended\n");
    }

    #[test]
    fn an_over_long_line_is_split_marked_and_loses_nothing() {
        let long = vec![b'x'; 2 * MAX_LINE_BYTES + 10];
        let mut out = Vec::new();
        let mut splitter = LineSplitter::default();
        for chunk in long.chunks(60_001) {
            splitter.feed(chunk, 0, &mut out);
        }
        splitter.feed(b"\n", 0, &mut out);
        let lines = texts(&out);
        assert_eq!(lines.len(), 3);
        for line in &lines[..2] {
            assert_eq!(line.len(), MAX_LINE_BYTES + SPLIT_MARK.len());
            assert!(line.ends_with(SPLIT_MARK));
        }
        assert_eq!(lines[2], vec![b'x'; 10]);
    }
}
