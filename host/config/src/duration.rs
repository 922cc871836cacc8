//! Durations with units: `30s`, `5m`, `250ms`; a bare number is seconds.

use std::fmt;

use serde::{Deserialize, Deserializer, de};

/// A length of time, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Duration {
    /// Nanoseconds, never negative.
    pub ns: i64,
}

/// Why a text is no duration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{text}` is not a duration: write a number and a unit, such as 250ms, 30s, 5m or 1h")]
pub struct DurationError {
    text: String,
}

/// Longest duration accepted: a year keeps every sum of phases far inside `i64`.
const MAX_SECONDS: f64 = 366.0 * 86_400.0;

impl Duration {
    /// From whole milliseconds.
    pub const fn from_ms(ms: i64) -> Self {
        Self { ns: ms * 1_000_000 }
    }

    /// From whole seconds.
    pub const fn from_s(s: i64) -> Self {
        Self {
            ns: s * 1_000_000_000,
        }
    }

    /// Reads `30s`, `1.5m`, `250ms`, `100us`, `2h`, or a bare number of seconds.
    ///
    /// # Errors
    /// [`DurationError`] names the text.
    pub fn parse(text: &str) -> Result<Self, DurationError> {
        let error = || DurationError {
            text: text.chars().take(40).collect(),
        };
        let trimmed = text.trim();
        let digits = trimmed
            .find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_'))
            .unwrap_or(trimmed.len());
        let (number, unit) = trimmed.split_at(digits);
        let number: f64 = number.replace('_', "").parse().map_err(|_| error())?;
        let seconds = match unit.trim() {
            "" | "s" => number,
            "ns" => number / 1e9,
            "us" | "µs" => number / 1e6,
            "ms" => number / 1e3,
            "m" | "min" => number * 60.0,
            "h" => number * 3600.0,
            _ => return Err(error()),
        };
        Self::from_seconds(seconds).ok_or_else(error)
    }

    fn from_seconds(seconds: f64) -> Option<Self> {
        (seconds.is_finite() && (0.0..=MAX_SECONDS).contains(&seconds)).then(|| Self {
            ns: (seconds * 1e9).round() as i64,
        })
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ns {
            ns if ns % 60_000_000_000 == 0 && ns != 0 => write!(f, "{}m", ns / 60_000_000_000),
            ns if ns % 1_000_000_000 == 0 => write!(f, "{}s", ns / 1_000_000_000),
            ns if ns % 1_000_000 == 0 => write!(f, "{}ms", ns / 1_000_000),
            ns => write!(f, "{}us", ns as f64 / 1e3),
        }
    }
}

impl<'de> Deserialize<'de> for Duration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Duration;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a duration such as \"250ms\", \"30s\" or \"5m\" (a bare number is seconds)",
                )
            }
            fn visit_str<E: de::Error>(self, v: &str) -> Result<Duration, E> {
                Duration::parse(v).map_err(E::custom)
            }
            fn visit_i64<E: de::Error>(self, v: i64) -> Result<Duration, E> {
                self.visit_f64(v as f64)
            }
            fn visit_u64<E: de::Error>(self, v: u64) -> Result<Duration, E> {
                self.visit_f64(v as f64)
            }
            fn visit_f64<E: de::Error>(self, v: f64) -> Result<Duration, E> {
                Duration::from_seconds(v)
                    .ok_or_else(|| E::custom(format!("{v} s is not a length of time")))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        for (text, ns) in [
            ("250ms", 250_000_000),
            ("30s", 30_000_000_000),
            ("30", 30_000_000_000),
            ("1.5m", 90_000_000_000),
            ("2h", 7_200_000_000_000),
            ("100us", 100_000),
            ("1_000 ms", 1_000_000_000),
        ] {
            assert_eq!(Duration::parse(text).unwrap().ns, ns, "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in [
            "",
            "s",
            "-1s",
            "1e3s",
            "5 parsecs",
            "1.2.3s",
            "99999999h",
            "NaN",
        ] {
            assert!(Duration::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn printing_reads_back() {
        for ns in [0, 1_000, 250_000_000, 90_000_000_000, 60_000_000_000] {
            let d = Duration { ns };
            assert_eq!(Duration::parse(&d.to_string()).unwrap(), d);
        }
    }
}
