//! A value that never shows itself.

use std::fmt;

/// What is printed instead of a secret.
const REDACTED: &str = "[redacted]";

/// How often escapes within escapes are looked through.
const MAX_ESCAPINGS: usize = 3;

/// The text with the escapes of JSON replaced by what they stand for; what is none stays.
fn unescaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(c) = rest.next() {
        if c != '\\' {
            out.push(c);
            continue;
        }
        let mut after = rest.clone();
        let stands_for = match after.next() {
            Some('u') => {
                let digits: String = after.by_ref().take(4).collect();
                u32::from_str_radix(&digits, 16)
                    .ok()
                    .and_then(char::from_u32)
            }
            Some('n') => Some('\n'),
            Some('t') => Some('\t'),
            Some('r') => Some('\r'),
            Some(other @ ('"' | '\\' | '/')) => Some(other),
            _ => None,
        };
        match stands_for {
            Some(stands_for) => {
                out.push(stands_for);
                rest = after;
            }
            None => out.push(c),
        }
    }
    out
}

/// An API key. `Debug` and `Display` do not show it, and [`redact`](Self::redact) removes it from
/// texts that a server echoes.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a secret.
    pub fn new(value: impl Into<String>) -> Self {
        Self(value.into())
    }

    /// The secret itself, for the request header only.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Shows the secret to a function that sends it; it must not keep or print it.
    pub fn with<T>(&self, send: impl FnOnce(&str) -> T) -> T {
        send(&self.0)
    }

    /// The text without the secret. A text that holds it with escapes, as JSON may write it, is given
    /// up as a whole.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let plain = text.replace(&self.0, REDACTED);
        if plain.contains('\\') {
            // Escapes may be escaped again, where one error text quotes another.
            let mut bare = plain.clone();
            for _ in 0..MAX_ESCAPINGS {
                bare = unescaped(&bare);
                if bare.contains(&self.0) {
                    return REDACTED.to_owned();
                }
            }
        }
        plain
    }

    /// Takes the beginning of the secret from the end of a text that was cut there.
    pub(crate) fn cut_beginning(&self, text: &mut String) {
        let begins = |n: &usize| self.0.is_char_boundary(*n) && text.ends_with(&self.0[..*n]);
        if let Some(n) = (1..self.0.len()).rev().find(begins) {
            text.truncate(text.len() - n);
        }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_never_shows_itself() {
        let key = Secret::new("sk-very-secret");
        assert_eq!(format!("{key:?} {key}"), "[redacted] [redacted]");
        assert_eq!(key.redact("bad key sk-very-secret."), "bad key [redacted].");
        assert_eq!(Secret::new("").redact("ab"), "ab");
        // As JSON may write it, once or twice.
        let odd = Secret::new("sk-\"o\\dd\t/é");
        let json = serde_json::to_string(odd.expose()).unwrap();
        let twice = serde_json::to_string(&json).unwrap();
        for text in [json, twice, r#"\u0073k-\"o\\dd\t\/\u00e9"#.to_owned()] {
            assert_eq!(odd.redact(&text), REDACTED, "{text}");
        }
        assert_eq!(odd.redact(r"C:\new \u12"), r"C:\new \u12");
        let mut cut = "the key sk-very".to_owned();
        key.cut_beginning(&mut cut);
        assert_eq!(cut, "the key ");
    }
}
