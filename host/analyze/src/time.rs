//! Units of time and wall-clock texts.

use jiff::Timestamp;

/// Nanoseconds in a second.
pub(crate) const NS_PER_S: i64 = 1_000_000_000;
/// Nanoseconds in a millisecond.
pub(crate) const NS_PER_MS: i64 = 1_000_000;

/// Nanoseconds as seconds.
pub(crate) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// Nanoseconds as milliseconds.
pub(crate) fn millis(ns: i64) -> f64 {
    ns as f64 / 1e6
}

/// Nanoseconds as microseconds.
pub(crate) fn micros(ns: i64) -> f64 {
    ns as f64 / 1e3
}

/// RFC 3339 in UTC, with as many fractional digits as needed (at most nine).
pub(crate) fn rfc3339(unix_ns: i64) -> Option<String> {
    Timestamp::from_nanosecond(i128::from(unix_ns))
        .ok()
        .map(|t| t.to_string())
}

/// Nanoseconds since the Unix epoch of an RFC 3339 text that names its zone.
pub(crate) fn parse_rfc3339(text: &str) -> Option<i64> {
    let stamp: Timestamp = text.parse().ok()?;
    i64::try_from(stamp.as_nanosecond()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_survive_the_round_trip() {
        for text in [
            "2026-10-02T16:15:31.344250405Z",
            "2026-10-02T16:15:43.853033Z",
            "1970-01-01T00:00:00Z",
        ] {
            let ns = parse_rfc3339(text).expect(text);
            assert_eq!(rfc3339(ns).as_deref(), Some(text));
        }
        assert_eq!(
            parse_rfc3339("2026-10-02T16:15:31"),
            None,
            "a zone is required"
        );
        assert_eq!(parse_rfc3339("yesterday"), None);
    }
}
