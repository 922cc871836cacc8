//! Completion incidence by Aalen–Johansen, with refusals instead of invented quantiles.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::time::millis;

/// How one request's observation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Terminal {
    /// The event of interest.
    Completed,
    /// The competing event: it leaves the risk set for ever.
    Errored,
    /// No terminal event by then.
    Censored,
}

/// One request: time from its intended send to its terminal event or censoring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Observation {
    /// Observed time in nanoseconds.
    pub time_ns: i64,
    /// How it ended.
    pub terminal: Terminal,
}

/// A point of the curve, right-continuous: the value holds from this time on.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CurvePoint {
    /// Time from the intended send, in milliseconds.
    pub at_ms: f64,
    /// Cumulative incidence of completion.
    pub completed: f64,
    /// Cumulative incidence of errors.
    pub errored: f64,
}

/// Why a quantile is not reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum QuantileRefusal {
    /// It may be reached, but only after the horizon.
    GreaterThanHorizon,
    /// It cannot be reached, however long one waits.
    Unattainable,
    /// The window has no requests.
    NoSamples,
}

/// A quantile of the completion time over *all* scheduled requests, or its refusal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IncidenceQuantile {
    /// The quantile, 0 to 1.
    pub q: f64,
    /// Its value.
    pub value_ms: Option<f64>,
    /// Why there is none.
    pub refusal: Option<QuantileRefusal>,
    /// The sentence that goes with the refusal, with final incidence and ceiling.
    pub note: Option<String>,
}

/// The incidence curve of a window and what can be read from it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Incidence {
    /// Requests in the risk set at time 0.
    pub n: u64,
    /// Largest time up to which quantiles are read: the client timeout, in milliseconds.
    pub horizon_ms: f64,
    /// Final cumulative incidence of completion, at the horizon.
    pub final_incidence: f64,
    /// Final cumulative incidence of errors, at the horizon.
    pub final_error_incidence: f64,
    /// Event-free survival left at the horizon.
    pub remaining: f64,
    /// `final_incidence + remaining`: the most that completion could still reach.
    pub ceiling: f64,
    /// Whether errors and censored requests exceed 5 % of the window, so that the curve must be
    /// shown beside any percentile.
    pub curve_required: bool,
    /// Quantiles 0.5, 0.9, 0.95, 0.99.
    pub quantiles: Vec<IncidenceQuantile>,
    /// The curve, thinned to a bounded number of points; first and last are kept.
    pub curve: Vec<CurvePoint>,
}

/// Most points of a stored curve.
const MAX_CURVE_POINTS: usize = 512;

/// Slack with which a quantile counts as reached.
const QUANTILE_SLACK: f64 = 1e-9;

/// Share of errors and censored requests above which the curve must be shown.
const CURVE_REQUIRED_SHARE: f64 = 0.05;

/// The quantiles that are read from every curve.
const QUANTILES: [f64; 4] = [0.5, 0.9, 0.95, 0.99];

/// Aalen–Johansen estimate of the cumulative incidence of completion, with errors as the competing
/// event (Aalen & Johansen 1978; Andersen et al., *Statistical Models Based on Counting Processes*,
/// IV.4). At each distinct time with `n` at risk, `c` completions and `e` errors:
/// `CIF += S·c/n`, then `S *= 1 − (c+e)/n`; at equal times terminal events come before censorings.
///
/// A quantile `q` is reported where the curve reaches `q − 1e-9` at or before `horizon_ns`, else
/// refused: with `ceiling = final incidence + remaining survival`, `ceiling ≥ q` means greater than
/// the horizon, `ceiling < q` means unattainable.
///
/// Worked example: 50 errors at 0.5 s and 50 completions at 1 s give an incidence of 0.5 at 1 s (not
/// 1.0); p50 is 1 s, p90 is unattainable.
pub fn aalen_johansen(observations: &[Observation], horizon_ns: i64) -> Incidence {
    let mut sorted = observations.to_vec();
    sorted.sort_unstable_by_key(|o| o.time_ns);
    let n = sorted.len();
    let mut survival = 1.0_f64;
    let (mut completed, mut errored) = (0.0_f64, 0.0_f64);
    let mut lost = 0_u64;
    let mut reached: [Option<f64>; QUANTILES.len()] = [None; QUANTILES.len()];
    let mut curve = Vec::new();
    let mut i = 0;
    while i < n {
        let at = sorted[i].time_ns;
        let at_risk = (n - i) as f64;
        let (mut c, mut e) = (0_u64, 0_u64);
        while i < n && sorted[i].time_ns == at {
            match sorted[i].terminal {
                Terminal::Completed => c += 1,
                Terminal::Errored => e += 1,
                Terminal::Censored => {}
            }
            i += 1;
        }
        if c + e == 0 || at > horizon_ns {
            continue;
        }
        completed += survival * c as f64 / at_risk;
        errored += survival * e as f64 / at_risk;
        survival *= 1.0 - (c + e) as f64 / at_risk;
        let at_ms = millis(at.max(0));
        for (q, value) in QUANTILES.iter().zip(&mut reached) {
            if value.is_none() && completed >= q - QUANTILE_SLACK {
                *value = Some(at_ms);
            }
        }
        curve.push(CurvePoint {
            at_ms,
            completed,
            errored,
        });
    }
    for o in &sorted {
        lost += u64::from(o.terminal != Terminal::Completed);
    }
    let ceiling = completed + survival;
    let quantiles = QUANTILES
        .iter()
        .zip(reached)
        .map(|(q, value_ms)| quantile(*q, value_ms, n, completed, ceiling, millis(horizon_ns)))
        .collect();
    Incidence {
        n: n as u64,
        horizon_ms: millis(horizon_ns),
        final_incidence: completed,
        final_error_incidence: errored,
        remaining: survival,
        ceiling,
        curve_required: n > 0 && lost as f64 / n as f64 > CURVE_REQUIRED_SHARE,
        quantiles,
        curve: thin(&curve),
    }
}

fn quantile(
    q: f64,
    value_ms: Option<f64>,
    n: usize,
    incidence: f64,
    ceiling: f64,
    horizon_ms: f64,
) -> IncidenceQuantile {
    let (refusal, note) = if value_ms.is_some() {
        (None, None)
    } else if n == 0 {
        (
            Some(QuantileRefusal::NoSamples),
            Some("no request was scheduled in the window".to_owned()),
        )
    } else if ceiling >= q - QUANTILE_SLACK {
        (
            Some(QuantileRefusal::GreaterThanHorizon),
            Some(format!(
                "greater than the horizon of {horizon_ms} ms: incidence {incidence:.4}, ceiling {ceiling:.4}"
            )),
        )
    } else {
        (
            Some(QuantileRefusal::Unattainable),
            Some(format!(
                "unattainable: final incidence {incidence:.4}, ceiling {ceiling:.4}"
            )),
        )
    };
    IncidenceQuantile {
        q,
        value_ms,
        refusal,
        note,
    }
}

/// Keeps the first and the last point and evenly chosen ones between.
fn thin(curve: &[CurvePoint]) -> Vec<CurvePoint> {
    if curve.len() <= MAX_CURVE_POINTS {
        return curve.to_vec();
    }
    let last = curve.len() - 1;
    (0..MAX_CURVE_POINTS)
        .map(|k| curve[k * last / (MAX_CURVE_POINTS - 1)])
        .collect()
}

/// Kaplan–Meier survival (Kaplan & Meier 1958) of `(time, whether the event occurred)`: the points
/// `(time, S)` after each distinct event time; at equal times events come before censorings.
///
/// Worked example: events at 1 and 3, censored at 2 → S = 2/3 from 1 on, 0 from 3 on.
pub fn kaplan_meier(sample: &[(f64, bool)]) -> Vec<(f64, f64)> {
    let mut sorted = sample.to_vec();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut survival = 1.0;
    let mut points = Vec::new();
    let mut i = 0;
    while i < sorted.len() {
        let at = sorted[i].0;
        let at_risk = (sorted.len() - i) as f64;
        let mut events = 0_u64;
        while i < sorted.len() && sorted[i].0.total_cmp(&at).is_eq() {
            events += u64::from(sorted[i].1);
            i += 1;
        }
        if events > 0 {
            survival *= 1.0 - events as f64 / at_risk;
            points.push((at, survival));
        }
    }
    points
}

#[cfg(test)]
mod tests {
    use super::*;

    fn obs(ms: i64, terminal: Terminal) -> Observation {
        Observation {
            time_ns: ms * 1_000_000,
            terminal,
        }
    }

    #[test]
    fn errors_leave_the_risk_set_for_ever() {
        let mut sample = vec![obs(500, Terminal::Errored); 50];
        sample.extend(vec![obs(1000, Terminal::Completed); 50]);
        let curve = aalen_johansen(&sample, 30_000_000_000);
        assert!((curve.final_incidence - 0.5).abs() < 1e-12);
        assert!((curve.final_error_incidence - 0.5).abs() < 1e-12);
        assert_eq!(curve.quantiles[0].value_ms, Some(1000.0));
        assert_eq!(
            curve.quantiles[1].refusal,
            Some(QuantileRefusal::Unattainable)
        );
        assert!(curve.curve_required);
    }

    #[test]
    fn a_quantile_beyond_the_horizon_is_refused_with_its_ceiling() {
        let mut sample = vec![obs(100, Terminal::Completed); 40];
        sample.extend(vec![obs(30_000, Terminal::Censored); 60]);
        let curve = aalen_johansen(&sample, 30_000_000_000);
        assert_eq!(
            curve.quantiles[0].refusal,
            Some(QuantileRefusal::GreaterThanHorizon)
        );
        assert!((curve.ceiling - 1.0).abs() < 1e-12);
        assert!((curve.final_incidence - 0.4).abs() < 1e-12);
    }

    #[test]
    fn ties_put_terminal_events_before_censorings() {
        let sample = [
            obs(10, Terminal::Censored),
            obs(10, Terminal::Completed),
            obs(20, Terminal::Completed),
        ];
        let curve = aalen_johansen(&sample, 1_000_000_000);
        // 1/3 at 10 ms; then one of one at risk: everything that is left.
        assert!((curve.curve[0].completed - 1.0 / 3.0).abs() < 1e-12);
        assert!((curve.final_incidence - 1.0).abs() < 1e-12);
    }

    #[test]
    fn an_empty_window_has_no_quantiles() {
        let curve = aalen_johansen(&[], 1);
        assert_eq!(curve.quantiles[0].refusal, Some(QuantileRefusal::NoSamples));
        assert!(!curve.curve_required);
    }

    #[test]
    fn a_long_curve_is_thinned_but_keeps_its_ends() {
        let sample: Vec<Observation> = (1..=5000).map(|ms| obs(ms, Terminal::Completed)).collect();
        let curve = aalen_johansen(&sample, 30_000_000_000);
        assert_eq!(curve.curve.len(), MAX_CURVE_POINTS);
        assert_eq!(curve.curve[0].at_ms, 1.0);
        assert_eq!(curve.curve.last().unwrap().at_ms, 5000.0);
        assert_eq!(curve.quantiles[3].value_ms, Some(4950.0));
    }

    #[test]
    fn kaplan_meier_worked_example() {
        let points = kaplan_meier(&[(3.0, true), (1.0, true), (2.0, false)]);
        assert_eq!(points.len(), 2);
        assert!((points[0].1 - 2.0 / 3.0).abs() < 1e-12);
        assert_eq!(points[1], (3.0, 0.0));
    }
}
