//! Which characters a terminal can show. What is written for people may hold signs beyond ASCII; where
//! the locale is not one of UTF-8 they are spelt in ASCII, here and nowhere else. What is written for
//! machines (JSON, paths on standard output) never comes through here.

use std::borrow::Cow;
use std::io::{self, Write};
use std::sync::OnceLock;

/// Whether the locale is one of UTF-8.
pub fn unicode() -> bool {
    static UNICODE: OnceLock<bool> = OnceLock::new();
    *UNICODE.get_or_init(|| says_utf8(|name| std::env::var(name).ok()))
}

/// The first variable that is set decides, as in the C library.
fn says_utf8(variable: impl Fn(&str) -> Option<String>) -> bool {
    ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| variable(name).filter(|value| !value.is_empty()))
        .is_some_and(|locale| {
            let locale = locale.to_ascii_lowercase();
            locale.contains("utf-8") || locale.contains("utf8")
        })
}

/// The text as this locale can show it.
pub fn shown(text: &str) -> Cow<'_, str> {
    if unicode() {
        Cow::Borrowed(text)
    } else {
        ascii(text)
    }
}

/// The text with its signs spelt in ASCII. Letters stay: names and paths must be what they are.
fn ascii(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match spelt(c) {
            Some(sign) => out.push_str(sign),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// As wide as the sign where tables need that.
fn spelt(sign: char) -> Option<&'static str> {
    Some(match sign {
        'µ' | 'μ' => "u",
        '–' | '—' | '−' | '─' => "-",
        '·' | '│' => "|",
        '✓' => "+",
        '✗' | '×' => "x",
        '━' | '█' | '▉' | '▊' | '▋' | '▌' => "#",
        '▍' | '▎' | '▏' => ".",
        '╸' => ">",
        '…' => "...",
        '±' => "+/-",
        '≤' => "<=",
        '≥' => ">=",
        '→' => "->",
        '√' => "sqrt ",
        '²' => "^2",
        '§' => "section ",
        '‘' | '’' => "'",
        '“' | '”' => "\"",
        '\u{fffd}' => "?",
        _ => return None,
    })
}

/// Writes text for people.
pub struct Shown<W>(pub W);

impl<W: Write> Write for Shown<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match std::str::from_utf8(bytes) {
            Ok(text) => self.0.write_all(shown(text).as_bytes())?,
            Err(_) => self.0.write_all(bytes)?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_variable_that_is_set_decides() {
        let locale = |set: &[(&str, &str)]| {
            says_utf8(|name| {
                let found = set.iter().find(|(n, _)| *n == name);
                found.map(|(_, value)| (*value).to_owned())
            })
        };
        assert!(locale(&[("LANG", "en_US.UTF-8")]));
        assert!(locale(&[("LC_ALL", ""), ("LC_CTYPE", "C.utf8")]));
        assert!(!locale(&[("LC_ALL", "C"), ("LANG", "en_US.UTF-8")]));
        assert!(!locale(&[("LANG", "de_DE.ISO-8859-1")]));
        assert!(!locale(&[]));
    }

    #[test]
    fn signs_are_spelt_and_letters_stay() {
        assert_eq!(
            ascii("p50 5 µs · 3–4 ±1 … ✓ ━╸─"),
            "p50 5 us | 3-4 +/-1 ... + #>-"
        );
        assert_eq!(ascii("/home/jörg/é"), "/home/jörg/é");
        assert!(matches!(ascii("plain"), Cow::Borrowed(_)));
    }

    /// Signs of the program's own texts, so that none is forgotten.
    #[test]
    fn every_sign_that_is_printed_can_be_spelt() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let mut folders = vec![folder];
        let mut unknown = std::collections::BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                    continue;
                }
                let source = std::fs::read_to_string(&path).unwrap();
                // Tests stand at the end.
                let code = source.split("#[cfg(test)]").next().unwrap_or_default();
                let signs = code.chars().filter(|c| !c.is_ascii() && !c.is_alphabetic());
                unknown.extend(signs.filter(|c| spelt(*c).is_none()));
            }
        }
        assert!(unknown.is_empty(), "{unknown:?}");
    }
}
