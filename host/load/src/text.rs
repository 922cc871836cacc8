//! Texts from outside, made short and harmless before they are kept.

/// Longest reason that is kept.
pub(crate) const MAX_REASON_CHARS: usize = 200;

/// At most `limit` characters, control characters escaped, an ellipsis where it was cut.
pub(crate) fn bounded(text: &str, limit: usize) -> String {
    let mut out = String::new();
    for (n, c) in text.chars().enumerate() {
        if n == limit {
            out.push('…');
            break;
        }
        if c.is_control()
            || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
        {
            out.extend(c.escape_default());
        } else {
            out.push(c);
        }
    }
    out
}

/// [`bounded`] by [`MAX_REASON_CHARS`].
pub(crate) fn bounded_reason(text: &str) -> String {
    bounded(text, MAX_REASON_CHARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_escaped_and_length_is_bounded() {
        assert_eq!(bounded("a\x1b[31m\nä", 100), "a\\u{1b}[31m\\nä");
        assert_eq!(bounded("ääää", 2), "ää…");
        assert_eq!(bounded("ää", 2), "ää");
    }
}
