//! Text that came out of a guest and will be shown to people: made safe for a
//! terminal, and cut to a bound.

use std::borrow::Cow;

/// True for characters that may move the cursor, colour the terminal, or reorder
/// what a reader sees.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{200e}' | '\u{200f}' | '\u{061c}' | '\u{2028}' | '\u{2029}'
            | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// Replaces control and text-direction characters by their Rust escapes
/// (`\n`, `\u{1b}`), so that the text stays on its line and cannot drive a terminal.
pub fn escape(text: &str) -> Cow<'_, str> {
    if !text.chars().any(is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        if is_unsafe(c) {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// The longest prefix of `text` that is at most `max` bytes and ends between two
/// characters.
pub fn cut(text: &str, max: usize) -> &str {
    if text.len() <= max {
        return text;
    }
    let mut end = max;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// [`escape`] after [`cut`], with an ellipsis where something was cut off.
pub fn shown(text: &str, max: usize) -> String {
    let kept = cut(text, max);
    let mut out = escape(kept).into_owned();
    if kept.len() < text.len() {
        out.push('…');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terminal_sequences_are_defused() {
        assert_eq!(
            escape("\u{1b}[2Jgone\r\nx\t\u{7}"),
            "\\u{1b}[2Jgone\\r\\nx\\t\\u{7}"
        );
        assert_eq!(escape("a\u{202e}b\u{9b}31m"), "a\\u{202e}b\\u{9b}31m");
        assert!(matches!(escape("plain µs → ok"), Cow::Borrowed(_)));
    }

    #[test]
    fn cutting_respects_characters() {
        assert_eq!(cut("aµb", 2), "a");
        assert_eq!(cut("aµb", 3), "aµ");
        assert_eq!(cut("aµb", 9), "aµb");
        assert_eq!(cut("µ", 0), "");
        assert_eq!(shown("abcdef", 3), "abc…");
        assert_eq!(shown("abc", 3), "abc");
    }
}
