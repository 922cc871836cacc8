//! Terminal escapes in a log's text: colours, titles, links. A person reads the text without them.

use std::borrow::Cow;

/// Longest escape that is recognised: that of a link holds an address.
const MAX_ESCAPE_BYTES: usize = 4096;

/// Ways in which pastes spell the start of a control sequence (`ESC [`) as text.
const WRITTEN: [&str; 7] = [
    "^[[", "ESC[", "\\x1b[", "\\x1B[", "\\033[", "\\u001b[", "\\e[",
];

/// The text without terminal escapes, whole ones: control sequences (`ESC [ … m`), operating system
/// commands (`ESC ] … BEL`) and their like, by their one-byte beginnings too; and colours that a paste
/// spells as text.
pub fn without_escapes(text: &str) -> Cow<'_, str> {
    let begins = |c: char| matches!(c, '\x1b' | '\u{80}'..='\u{9f}' | '^' | 'E' | '\\');
    if !text.contains(['\x1b', '\u{9b}', '\u{9d}', '\u{90}'])
        && !WRITTEN.iter().any(|written| text.contains(written))
    {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(begins) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        match escape_length(rest) {
            Some(length) => rest = &rest[length..],
            None => {
                let next = rest.chars().next().map_or(0, char::len_utf8);
                out.push_str(&rest[..next]);
                rest = &rest[next..];
            }
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Length of the escape at the start of a text, if one starts there.
fn escape_length(text: &str) -> Option<usize> {
    if let Some(written) = WRITTEN.iter().find(|written| text.starts_with(**written)) {
        let length = sequence_length(&text[written.len()..])?;
        // Text is only taken for an escape where it colours or erases.
        let whole = written.len() + length;
        return text[..whole].ends_with(['m', 'K']).then_some(whole);
    }
    let mut chars = text.chars();
    let (introducer, length) = match chars.next()? {
        '\x1b' => match chars.next() {
            Some(second) if second.is_ascii() => (second, 2),
            // Nothing follows that it could act on.
            _ => return Some(1),
        },
        '\u{9b}' => ('[', 2),
        '\u{9d}' => (']', 2),
        '\u{90}' => ('P', 2),
        _ => return None,
    };
    let rest = &text[length..];
    Some(match introducer {
        // One that is cut off goes as far as it can be told.
        '[' => length + sequence_length(rest).unwrap_or_else(|| parameters(rest)),
        ']' | 'P' | 'X' | '^' | '_' => length + string_length(rest),
        // `ESC ( B`: a character set.
        ' '..='/' => {
            let more = rest
                .bytes()
                .take_while(|b| (0x20..0x30).contains(b))
                .count();
            let last = rest
                .as_bytes()
                .get(more)
                .is_some_and(|b| (0x30..0x7f).contains(b));
            length + more + usize::from(last)
        }
        '0'..='~' => length,
        // A control character is one by itself.
        _ => 1,
    })
}

/// Parameters of a control sequence, as far as they go.
fn parameters(text: &str) -> usize {
    let bytes = text.bytes().take(MAX_ESCAPE_BYTES);
    bytes.take_while(|b| (0x20..0x40).contains(b)).count()
}

/// Parameters and the letter that ends them.
fn sequence_length(text: &str) -> Option<usize> {
    let end = parameters(text);
    let last = *text.as_bytes().get(end)?;
    (0x40..0x7f).contains(&last).then_some(end + 1)
}

/// A text up to its end, which is BEL or `ESC \`; one without an end goes to that of the line.
fn string_length(text: &str) -> usize {
    let end = text
        .char_indices()
        .take(MAX_ESCAPE_BYTES)
        .find_map(|(at, c)| match c {
            '\x07' | '\u{9c}' => Some(at + c.len_utf8()),
            '\x1b' if text[at + 1..].starts_with('\\') => Some(at + 2),
            '\n' | '\r' => Some(at),
            _ => None,
        });
    end.unwrap_or_else(|| {
        let bounded = text.char_indices().nth(MAX_ESCAPE_BYTES);
        bounded.map_or(text.len(), |(at, _)| at)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn whole_escapes_go_and_the_text_stays() {
        for (text, plain) in [
            ("\x1b[0;36m(A pid=1)\x1b[0;0m x", "(A pid=1) x"),
            ("\x1b[38:2::1:2:3mred\x1b[K\x1b[?25l", "red"),
            ("\x1b]0;a title\x07shown", "shown"),
            ("\x1b]8;;http://h/\x1b\\link\x1b]8;;\x1b\\ end", "link end"),
            ("\x1bP1$r0m\x1b\\x\x1b(By\x1b=z", "xyz"),
            ("\u{9b}31mred\u{9d}0;t\u{9c}!", "red!"),
            ("^[[0;36mA^[[0m ESC[32mB\\x1b[0m\\033[1mC", "A BC"),
            ("cut \x1b[0;3", "cut "),
            ("cut \x1b]0;title", "cut "),
            ("lone \x1b", "lone "),
            ("\x1b\x1b[1mx", "x"),
            ("a\x1béb", "aéb"),
            ("5^[[3] ESC[x] END \\e", "5^[[3] ESC[x] END \\e"),
        ] {
            assert_eq!(without_escapes(text), plain, "{text:?}");
        }
        assert!(matches!(without_escapes("plain ERROR"), Cow::Borrowed(_)));
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic_and_no_escape_stays(text in "[\x1b\u{9b}\u{9d}\\[\\]mK0;a-cé\x07\\\\^\r\n]{0,40}") {
            let plain = without_escapes(&text);
            prop_assert!(plain.len() <= text.len());
            prop_assert!(!plain.contains('\x1b'));
        }
    }
}
