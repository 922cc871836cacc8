//! Small parsers over text: numbers, words and terminal escapes. None allocates
//! unless it has to change the text, and each is bounded by its input.

use std::borrow::Cow;

/// Longest parameter part of a terminal escape that is recognised.
const MAX_ESCAPE_BYTES: usize = 32;

/// Ways in which pastes spell the start of a terminal escape (`ESC [`) as text.
const WRITTEN_ESCAPES: [&str; 7] = [
    "^[[", "ESC[", "\\x1b[", "\\x1B[", "\\033[", "\\u001b[", "\\e[",
];

/// Removes terminal escapes, real and as text, and turns a written `^M` into the
/// carriage return it stands for. Borrows when there is nothing to remove.
pub fn clean(line: &str) -> Cow<'_, str> {
    let suspicious = line
        .bytes()
        .any(|byte| matches!(byte, 0x1B | b'^' | b'\\') || byte == b'E')
        && (line.contains('\x1B')
            || line.contains("^M")
            || WRITTEN_ESCAPES.iter().any(|escape| line.contains(escape)));
    if !suspicious {
        return Cow::Borrowed(line);
    }
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(['\x1B', '^', '\\', 'E']) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        if let Some(after) = rest.strip_prefix("^M") {
            out.push('\r');
            rest = after;
        } else if let Some(length) = escape_length(rest) {
            rest = &rest[length..];
        } else {
            // All four are one byte long.
            let (kept, after) = rest.split_at(1);
            if kept != "\x1B" {
                out.push_str(kept);
            }
            rest = after;
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Length of the terminal escape at the start of `text`, if one starts there.
fn escape_length(text: &str) -> Option<usize> {
    let (intro, written) = if text.starts_with("\x1B[") {
        (2, false)
    } else {
        let intro = WRITTEN_ESCAPES
            .iter()
            .find(|escape| text.starts_with(**escape))?;
        (intro.len(), true)
    };
    let bytes = text.as_bytes();
    let end = bytes[intro..]
        .iter()
        .take(MAX_ESCAPE_BYTES)
        .position(|byte| !matches!(byte, b'0'..=b'9' | b';' | b'?' | b':'))?;
    let last = bytes[intro + end];
    let ends = if written {
        // Text is only taken for an escape where it colours or erases.
        matches!(last, b'm' | b'K')
    } else {
        (0x40..=0x7E).contains(&last)
    };
    ends.then_some(intro + end + 1)
}

/// A cursor over the text behind a literal.
#[derive(Debug, Clone, Copy)]
pub struct Cursor<'a>(pub &'a str);

impl<'a> Cursor<'a> {
    /// Skips `literal` if it is next.
    pub fn skip(&mut self, literal: &str) -> bool {
        match self.0.strip_prefix(literal) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    /// Skips to just behind the next `literal`, at most `within` bytes away.
    pub fn skip_past(&mut self, literal: &str, within: usize) -> bool {
        let window = &self.0[..floor_char(self.0, within)];
        match window.find(literal) {
            Some(at) => {
                self.0 = &self.0[at + literal.len()..];
                true
            }
            None => false,
        }
    }

    /// Reads `1`, `0.52`, `2,097,152`. `None` where no digit is next.
    pub fn number(&mut self) -> Option<f64> {
        /// Longer runs of digits are not figures.
        const MAX_NUMBER_BYTES: usize = 40;
        let bytes = self.0.as_bytes();
        let digit = |index: usize| bytes.get(index).is_some_and(u8::is_ascii_digit);
        if !digit(0) {
            return None;
        }
        let mut end = 0;
        let mut seen_dot = false;
        while digit(end)
            || (digit(end + 1)
                && match bytes[end] {
                    b',' => !seen_dot,
                    b'.' => !std::mem::replace(&mut seen_dot, true),
                    _ => false,
                })
        {
            end += 1;
            if end > MAX_NUMBER_BYTES {
                return None;
            }
        }
        let (number, rest) = self.0.split_at(end);
        self.0 = rest;
        let number: String = number.chars().filter(|c| *c != ',').collect();
        number.parse().ok().filter(|value: &f64| value.is_finite())
    }

    /// Reads an integer with an optional sign, as text.
    pub fn integer_text(&mut self) -> Option<&'a str> {
        let sign = usize::from(self.0.starts_with(['-', '+']));
        let digits = self.0[sign..]
            .bytes()
            .take_while(u8::is_ascii_digit)
            .count();
        if digits == 0 || digits > 20 {
            return None;
        }
        let (text, rest) = self.0.split_at(sign + digits);
        self.0 = rest;
        Some(text)
    }

    /// A number followed by `s`, ` s`, ` sec…` or ` seconds`.
    pub fn seconds(&mut self) -> Option<f64> {
        let value = self.number()?;
        self.skip(" ");
        if !self.skip("s") {
            return None;
        }
        for tail in ["econds", "econd", "ecs", "ec"] {
            if self.skip(tail) {
                break;
            }
        }
        Some(value)
    }

    /// A number followed by `GiB` or `GB`. Where a release wrote `GB` it had divided
    /// by 2^30, so both are GiB.
    pub fn gib(&mut self) -> Option<f64> {
        let value = self.number()?;
        self.skip(" ");
        (self.skip("GiB") || self.skip("GB")).then_some(value)
    }

    /// The longest run of characters that `keep` accepts; `None` when empty.
    pub fn run(&mut self, keep: impl Fn(char) -> bool) -> Option<&'a str> {
        let end = self.0.find(|c| !keep(c)).unwrap_or(self.0.len());
        let (text, rest) = self.0.split_at(end);
        self.0 = rest;
        (!text.is_empty()).then_some(text)
    }

    /// A release (`0.29.0`, `0.10.1rc2.dev34+g1a2b.d20250819`, `dev`).
    pub fn version(&mut self) -> Option<&'a str> {
        self.run(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '+' | '_' | '-'))
            .map(|text| text.trim_end_matches('.'))
            .filter(|text| !text.is_empty())
    }

    /// Text up to white space.
    pub fn word(&mut self) -> Option<&'a str> {
        self.run(|c| !c.is_whitespace())
    }
}

/// The greatest index ≤ `at` that is a character boundary of `text`.
pub fn floor_char(text: &str, at: usize) -> usize {
    if at >= text.len() {
        return text.len();
    }
    (0..=at)
        .rev()
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(0)
}

/// The least index ≥ `at` that is a character boundary of `text`.
pub fn ceil_char(text: &str, at: usize) -> usize {
    (at..text.len())
        .find(|index| text.is_char_boundary(*index))
        .unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cleans_escapes_real_and_written() {
        assert_eq!(clean("\x1b[0;36m(A pid=1)\x1b[0;0m x"), "(A pid=1) x");
        assert_eq!(clean("^[[0;36m(A pid=1)^[[0;0m x^M"), "(A pid=1) x\r");
        assert_eq!(clean("ESC[32mINFOESC[0m"), "INFO");
        assert_eq!(clean("\\x1b[32mINFO\\033[0m"), "INFO");
        assert_eq!(clean("\x1b[2K\x1b[1Gbar"), "bar");
        assert_eq!(
            clean("lone \x1b and ^ and \\ and E"),
            "lone  and ^ and \\ and E"
        );
        assert!(matches!(clean("plain ERROR"), Cow::Borrowed(_)));
        assert_eq!(clean("\x1b["), "[");
    }

    #[test]
    fn reads_numbers() {
        let read = |text| Cursor(text).number();
        assert_eq!(read("2,097,152 tokens"), Some(2_097_152.0));
        assert_eq!(read("0.52 GiB"), Some(0.52));
        assert_eq!(read("5."), Some(5.0));
        assert_eq!(read("1.2.3"), Some(1.2));
        assert_eq!(read("1,2.5,6"), Some(12.5));
        assert_eq!(read("x"), None);
        assert_eq!(read(&"9".repeat(400)), None);
        assert_eq!(
            Cursor("4.823372 seconds40G [00:20").seconds(),
            Some(4.823372)
        );
        assert_eq!(Cursor("8.28 s (").seconds(), Some(8.28));
        assert_eq!(Cursor("5 secs.").seconds(), Some(5.0));
        assert_eq!(Cursor("5.1").seconds(), None);
        assert_eq!(Cursor("5.04GiB.").gib(), Some(5.04));
        assert_eq!(Cursor("12.5 GB").gib(), Some(12.5));
        assert_eq!(Cursor("12.5 G").gib(), None);
    }
}
