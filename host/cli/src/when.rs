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

/// A length of time that was asked for or follows from what was: three figures at least, all of its
/// whole seconds, and no zeros behind them.
pub fn seconds(ns: i64) -> String {
    let s = ns as f64 / 1e9;
    let decimals = match s.abs() {
        a if a >= 99.95 => 1,
        a if a >= 0.995 => 2,
        a if a >= 0.000_995 => 5,
        _ => 9,
    };
    let text = format!("{s:.decimals$}");
    format!("{} s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// How long ago something was, roughly.
pub fn ago(ns: i64) -> String {
    const HOUR_NS: i64 = 3_600_000_000_000;
    match ns {
        ..HOUR_NS => length(ns),
        ns if ns < 48 * HOUR_NS => format!("{:.1} h", ns as f64 / HOUR_NS as f64),
        ns => format!("{} days", ns / (24 * HOUR_NS)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn asked_lengths_are_short_and_keep_what_was_asked() {
        for (ns, text) in [
            (4_441_735_576, "4.44 s"),
            (30_000_000_000, "30 s"),
            (7_200_000_000_000, "7200 s"),
            (90_500_000_000, "90.5 s"),
            (100_261_000_000, "100.3 s"),
            (250_000_000, "0.25 s"),
            (1_234_567, "0.00123 s"),
            (1, "0.000000001 s"),
            (0, "0 s"),
        ] {
            assert_eq!(seconds(ns), text);
        }
    }

    #[test]
    fn what_is_past_is_told_roughly() {
        assert_eq!(ago(1_500_000_000), "1.50 s");
        assert_eq!(ago(7_200_000_000_000), "2.0 h");
        assert_eq!(ago(20_000 * 86_400_000_000_000), "20000 days");
    }

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
