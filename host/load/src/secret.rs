//! A value that never shows itself.

use std::fmt;

/// What is printed instead of a secret.
const REDACTED: &str = "[redacted]";

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

    /// The text without the secret.
    pub fn redact(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        text.replace(&self.0, REDACTED)
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
    }
}
