//! Numbers for people. A number that is not finite shows as a dash.

use blackstart_analyze::precision;

/// Above this a fixed notation has more digits than anyone reads.
const FIXED_LIMIT: f64 = 1e12;

/// Thin space, which does not break.
const THIN: char = '\u{202f}';

/// Fixed decimals, digits in groups of three.
pub(super) fn fixed(value: f64, decimals: usize) -> String {
    if !value.is_finite() {
        return "–".to_owned();
    }
    if value.abs() >= FIXED_LIMIT {
        return format!("{value:.3e}");
    }
    let text = format!("{:.decimals$}", value.abs());
    let (whole, rest) = text.split_at(text.find('.').unwrap_or(text.len()));
    let negative = value < 0.0 && text.bytes().any(|b| (b'1'..=b'9').contains(&b));
    let sign = if negative { "−" } else { "" };
    format!("{sign}{}{rest}", grouped(whole))
}

/// A count.
pub(super) fn count(value: u64) -> String {
    grouped(&value.to_string())
}

fn grouped(digits: &str) -> String {
    // Four digits read well without a gap.
    if digits.len() < 5 {
        return digits.to_owned();
    }
    let mut out = String::with_capacity(digits.len() + digits.len() / 3 * THIN.len_utf8());
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(THIN);
        }
        out.push(c);
    }
    out
}

/// A duration given in seconds, in the unit that fits it.
pub(super) fn secs(value: f64) -> String {
    let size = value.abs();
    if !size.is_finite() {
        "–".to_owned()
    } else if size == 0.0 {
        "0 s".to_owned()
    } else if size < 0.001 {
        format!("{}\u{a0}µs", fixed(value * 1e6, 0))
    } else if size < 1.0 {
        let decimals = if size < 0.1 { 1 } else { 0 };
        format!("{}\u{a0}ms", fixed(value * 1e3, decimals))
    } else {
        let decimals = if size < 100.0 { 2 } else { 1 };
        format!("{}\u{a0}s", fixed(value, decimals))
    }
}

/// A duration in seconds with no more digits than its uncertainty leaves.
pub(super) fn secs_at(value: f64, uncertainty: Option<f64>) -> String {
    match uncertainty.filter(|u| precision::rounded_up(*u).is_some()) {
        Some(u) => format!("{}\u{a0}s", fixed(value, precision::decimals(Some(u)))),
        None => secs(value),
    }
}

/// A duration in seconds with its uncertainty: "12.37 ± 0.13 s". An uncertainty under a millisecond is
/// below what anyone reads here; it stands in the table of segments.
pub(super) fn secs_pm(value: f64, uncertainty: Option<f64>) -> String {
    match uncertainty.and_then(precision::rounded_up) {
        Some(u) => format!(
            "{}\u{a0}±\u{a0}{u}\u{a0}s",
            fixed(value, precision::decimals(uncertainty))
        ),
        None => secs(value),
    }
}

/// "±0.2 s", where an uncertainty is large enough to be shown.
pub(super) fn plus_minus(uncertainty: Option<f64>) -> Option<String> {
    Some(format!(
        "±{}\u{a0}s",
        uncertainty.and_then(precision::rounded_up)?
    ))
}

/// Seconds in a table column, with no more digits than the uncertainty leaves, and named where it
/// shows: "12.37 ±0.13".
pub(super) fn secs_column(value: f64, uncertainty: Option<f64>) -> String {
    let number = fixed(value, precision::decimals(uncertainty));
    match uncertainty.and_then(precision::rounded_up) {
        Some(u) => format!("{number}\u{a0}<small>±{u}</small>"),
        None => number,
    }
}

/// A range of durations, with the unit once where both ends share it.
pub(super) fn range(lo: &str, hi: &str) -> String {
    match (lo.split_once('\u{a0}'), hi.split_once('\u{a0}')) {
        (Some((a, unit)), Some((_, other))) if unit == other => format!("{a}–{hi}"),
        _ => format!("{lo} – {hi}"),
    }
}

/// Milliseconds in a table column.
pub(super) fn ms(value: f64) -> String {
    let decimals = match value.abs() {
        v if v < 10.0 => 2,
        v if v < 1_000.0 => 1,
        _ => 0,
    };
    fixed(value, decimals)
}

/// Microseconds in a table column.
pub(super) fn us(value: f64) -> String {
    fixed(value, if value.abs() < 10.0 { 1 } else { 0 })
}

/// A fraction as a percentage.
pub(super) fn percent_of(fraction: f64) -> String {
    percent(fraction * 100.0)
}

/// Distance from 100 below which a percentage is 100.
const HUNDRED_SLACK: f64 = 1e-9;

/// A percentage; only an exact hundred shows as 100 %.
pub(super) fn percent(value: f64) -> String {
    let size = value.abs();
    // Sums of floating-point steps end a hair beside the hundred that they mean.
    let decimals = if size == 0.0 || (size - 100.0).abs() < HUNDRED_SLACK {
        0
    } else if size < 99.95 {
        1
    } else {
        2
    };
    format!("{}\u{a0}%", fixed(value, decimals))
}

/// A value in its UCUM unit.
pub(super) fn in_unit(value: f64, unit: &str) -> String {
    match unit {
        "s" => secs(value),
        "ms" => format!("{}\u{a0}ms", ms(value)),
        "us" => format!("{}\u{a0}µs", us(value)),
        "%" => percent(value),
        "1" if value.fract() == 0.0 => fixed(value, 0),
        "1" => fixed(value, 3),
        other => format!("{}\u{a0}{other}", fixed(value, 3)),
    }
}

/// A run time in seconds. Through `f64`, since a damaged report may hold any `i64`.
pub(super) fn seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(secs(6.2149), "6.21\u{a0}s");
        assert_eq!(secs(0.0421), "42.1\u{a0}ms");
        assert_eq!(secs(0.000_020), "20\u{a0}µs");
        assert_eq!(secs(412.04), "412.0\u{a0}s");
        assert_eq!(secs(f64::NAN), "–");
        assert_eq!(range(&secs(6.18), &secs(6.25)), "6.18–6.25\u{a0}s");
        assert_eq!(range(&secs(0.9), &secs(1.25)), "900\u{a0}ms – 1.25\u{a0}s");
        assert_eq!(secs_at(6.2149, Some(0.17)), "6.2\u{a0}s");
        assert_eq!(secs_at(6.2149, Some(0.000_02)), "6.21\u{a0}s");
        assert_eq!(secs_pm(6.2149, Some(0.17)), "6.2\u{a0}±\u{a0}0.2\u{a0}s");
        assert_eq!(secs_pm(6.2149, None), "6.21\u{a0}s");
        assert_eq!(plus_minus(Some(1.000_02)).as_deref(), Some("±1\u{a0}s"));
        assert_eq!(plus_minus(Some(0.000_02)), None);
        assert_eq!(secs_column(5.0, Some(1.0)), "5\u{a0}<small>±1</small>");
        assert_eq!(secs_column(0.5, None), "0.500");
        assert_eq!(fixed(-0.0001, 2), "0.00");
        assert_eq!(fixed(-1234567.5, 1), "−1\u{202f}234\u{202f}567.5");
        assert_eq!(fixed(1e300, 2), "1.000e300");
        assert_eq!(count(100_000), "100\u{202f}000");
        assert_eq!(percent_of(1.0), "100\u{a0}%");
        assert_eq!(percent_of(0.9997), "99.97\u{a0}%");
        assert_eq!(percent_of(0.42), "42.0\u{a0}%");
        assert_eq!(in_unit(0.5, "1"), "0.500");
        assert_eq!(in_unit(38.0, "1"), "38");
    }
}
