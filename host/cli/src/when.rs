//! Instants and lengths of time for people and for JSON.

use jiff::Timestamp;

/// RFC 3339 in UTC, with the digits that the nanoseconds need.
pub fn rfc3339(unix_ns: i64) -> String {
    Timestamp::from_nanosecond(i128::from(unix_ns))
        .map_or_else(|_| "out of range".to_owned(), |t| t.to_string())
}

/// `20261130T031718Z`: an instant as part of a file name.
pub fn file_stamp(unix_ns: i64) -> String {
    let text = rfc3339(unix_ns);
    let seconds = text
        .split('.')
        .next()
        .unwrap_or_default()
        .trim_end_matches('Z');
    format!("{}Z", seconds.replace(['-', ':'], ""))
}

/// A length of time as people read it: `812 ms`, `4.21 s`, `3 min 20 s`.
pub fn length(ns: i64) -> String {
    let s = ns as f64 / 1e9;
    match s.abs() {
        a if a < 0.000_999_5 => format!("{:.0} µs", s * 1e6),
        a if a < 0.999_5 => format!("{:.0} ms", s * 1e3),
        a if a < 99.95 => format!("{s:.2} s"),
        _ => {
            let whole = s.round() as i64;
            format!("{} min {:02} s", whole / 60, (whole % 60).abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants() {
        assert_eq!(
            rfc3339(1_790_957_731_344_250_405),
            "2026-10-02T16:15:31.344250405Z"
        );
        assert_eq!(file_stamp(1_790_957_731_344_250_405), "20261002T161531Z");
    }

    #[test]
    fn lengths() {
        assert_eq!(length(812_000_000), "812 ms");
        assert_eq!(length(4_214_000_000), "4.21 s");
        assert_eq!(length(200_000_000_000), "3 min 20 s");
        assert_eq!(length(45_000), "45 µs");
    }
}
