//! How many digits a figure carries: no more than its uncertainty leaves.

/// Most decimals that a figure in seconds is shown with.
pub const MAX_DECIMALS: usize = 3;

/// Share of the last digit by which an uncertainty may be rounded down, so that 1.000 02 s is ±1 s
/// and not ±2 s.
const SLACK: f64 = 0.05;

/// Most by which an uncertainty may grow when it is rounded up to one digit; beyond it two are kept.
const MOST_GROWTH: f64 = 1.25;

/// Decimals that a figure known to ±`uncertainty` is shown with: the place of the uncertainty's
/// first digit, or of its second where one digit would blow it up by more than a quarter; at most
/// [`MAX_DECIMALS`]. Without an uncertainty all of them.
///
/// Worked example: ±1.000 02 → 0, ±1.08 → 1, ±0.13 → 2, ±0.17 → 1, ±0.000 02 → 3.
pub fn decimals(uncertainty: Option<f64>) -> usize {
    let Some(u) = uncertainty.filter(|u| u.is_finite() && *u > 0.0) else {
        return MAX_DECIMALS;
    };
    let first = (0..MAX_DECIMALS)
        .find(|d| u * scale(*d) >= 1.0 - SLACK)
        .unwrap_or(MAX_DECIMALS);
    if up(u, first) > u * MOST_GROWTH {
        (first + 1).min(MAX_DECIMALS)
    } else {
        first
    }
}

fn scale(decimals: usize) -> f64 {
    10_f64.powi(decimals as i32)
}

/// Rounded up to so many decimals, but for the slack.
fn up(value: f64, decimals: usize) -> f64 {
    (value * scale(decimals) - SLACK).ceil() / scale(decimals)
}

/// An uncertainty with its [`decimals`], rounded up. `None` where it is too small to show at that
/// place, and where it is not finite.
///
/// Worked example: 0.13 → "0.13", 1.000 02 → "1", 0.000 02 → `None`.
pub fn rounded_up(uncertainty: f64) -> Option<String> {
    if !uncertainty.is_finite() || uncertainty <= 0.0 {
        return None;
    }
    let decimals = decimals(Some(uncertainty));
    (uncertainty * scale(decimals) >= 1.0 - SLACK)
        .then(|| format!("{:.decimals$}", up(uncertainty, decimals)))
}

/// Above this a fixed notation has more digits than anyone reads.
const FIXED_LIMIT: f64 = 1e12;

/// A figure with so many decimals. A huge one is in powers of ten, and what rounds to 0 has no sign.
///
/// Worked example: −0.0004 with 3 decimals → "0.000" (−0.0006 → "-0.001"), 1e300 → "1.000e300".
pub fn plain(value: f64, decimals: usize) -> String {
    if value.abs() >= FIXED_LIMIT {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.decimals$}");
    match text.strip_prefix('-') {
        Some(zero) if !zero.bytes().any(|b| (b'1'..=b'9').contains(&b)) => zero.to_owned(),
        _ => text,
    }
}

/// The same with its sign, also where it is positive: for differences.
pub fn signed(value: f64, decimals: usize) -> String {
    let text = plain(value, decimals);
    if text.starts_with('-') {
        text
    } else {
        format!("+{text}")
    }
}

/// A figure in seconds with its uncertainty: "12.37 ± 0.13 s"; "12.370 s" where the uncertainty is
/// below the last digit shown, or not known.
pub fn seconds_text(value: f64, uncertainty: Option<f64>) -> String {
    let decimals = decimals(uncertainty);
    match uncertainty.and_then(rounded_up) {
        Some(u) => format!("{} ± {u} s", plain(value, decimals)),
        None => format!("{} s", plain(value, decimals)),
    }
}

/// Ends of an interval of figures known to ±`uncertainty`, rounded outward to its [`decimals`]: shown
/// wider than it is, never narrower. `None` where it reaches less far than the uncertainty itself: its
/// ends would look better known than the figures that they come from.
///
/// Worked example: 12.131 to 12.669 at ±0.13 → "12.13", "12.67"; 4.7 to 7.3 at ±1 → "4", "8";
/// 4.9 to 5.1 at ±1 → `None`.
pub fn ends(lo: f64, hi: f64, uncertainty: Option<f64>) -> Option<(String, String)> {
    /// Share of the last digit that an end may lie beyond it and still be it: what floating point adds.
    const NOISE: f64 = 1e-6;
    let decimals = decimals(uncertainty);
    let Some(u) = uncertainty.filter(|u| rounded_up(*u).is_some()) else {
        return Some((format!("{lo:.decimals$}"), format!("{hi:.decimals$}")));
    };
    let scale = scale(decimals);
    // No minus before a zero.
    let down = (lo * scale + NOISE).floor() / scale + 0.0;
    let up = (hi * scale - NOISE).ceil() / scale + 0.0;
    ((hi - lo) / 2.0 >= u).then(|| (format!("{down:.decimals$}"), format!("{up:.decimals$}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_figure_is_shown_with_hundreds_of_digits_or_as_minus_nothing() {
        assert_eq!(plain(1e300, 3), "1.000e300");
        assert_eq!(plain(-0.0004, 3), "0.000");
        assert_eq!(plain(-0.0006, 3), "-0.001");
        assert_eq!(plain(-0.0, 0), "0");
        assert_eq!(signed(0.0, 1), "+0.0");
        assert_eq!(signed(-1.25, 2), "-1.25");
        assert_eq!(seconds_text(-0.0001, None), "0.000 s");
    }

    #[test]
    fn worked_examples() {
        for (u, places, shown) in [
            (25.0, 0, Some("25")),
            (1.000_02, 0, Some("1")),
            (1.08, 1, Some("1.1")),
            (1.7, 0, Some("2")),
            (0.999, 0, Some("1")),
            (0.152, 2, Some("0.16")),
            (0.13, 2, Some("0.13")),
            (0.17, 1, Some("0.2")),
            (0.03, 2, Some("0.03")),
            (0.001, 3, Some("0.001")),
            (0.000_02, 3, None),
        ] {
            assert_eq!(decimals(Some(u)), places, "{u}");
            assert_eq!(rounded_up(u).as_deref(), shown, "{u}");
        }
        assert_eq!(decimals(None), 3);
        assert_eq!(rounded_up(f64::NAN), None);
        assert_eq!(seconds_text(12.37, Some(0.130_02)), "12.37 ± 0.13 s");
        assert_eq!(seconds_text(13.0, Some(1.000_02)), "13 ± 1 s");
        assert_eq!(seconds_text(0.5, Some(0.000_02)), "0.500 s");
        assert_eq!(seconds_text(0.5, None), "0.500 s");
    }

    #[test]
    fn intervals_are_never_shown_finer_than_their_figures() {
        let shown = |lo, hi, u| ends(lo, hi, u);
        let some = |lo: &str, hi: &str| Some((lo.to_owned(), hi.to_owned()));
        assert_eq!(shown(12.131, 12.669, Some(0.13)), some("12.13", "12.67"));
        assert_eq!(shown(4.7, 7.3, Some(1.0)), some("4", "8"));
        assert_eq!(shown(4.0, 8.0, Some(1.0)), some("4", "8"));
        assert_eq!(shown(-3.2, -0.4, Some(1.0)), some("-4", "0"));
        assert_eq!(shown(4.9, 5.1, Some(1.0)), None);
        assert_eq!(shown(5.0, 5.0, Some(1.0)), None);
        assert_eq!(shown(40.4897, 42.7103, None), some("40.490", "42.710"));
        assert_eq!(shown(5.0, 5.0, Some(0.000_02)), some("5.000", "5.000"));
    }
}
