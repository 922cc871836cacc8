//! Goodput, the SLO sweep, and the modal distance from each threshold.

use blackstart_plan::Method;
use blackstart_record::{Outcome, RequestRecord};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::stats::sample_sd;
use crate::time::{NS_PER_MS, millis};

/// Goodput of a window.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SloFigures {
    /// Requests that completed within both thresholds.
    pub good: u64,
    /// good / scheduled; `None` when nothing was scheduled.
    pub goodput: Option<f64>,
    /// Good requests per second of the window.
    pub good_per_s: f64,
    /// Every pair of thresholds.
    pub sweep: Vec<SweepCell>,
    /// Distance of the window's modal latency from each threshold, in baseline standard
    /// deviations; empty for the baseline itself.
    pub modal_distances: Vec<ModalDistance>,
}

/// One pair of thresholds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SweepCell {
    /// TTFT threshold.
    pub ttft_ms: u32,
    /// End-to-end threshold.
    pub e2e_ms: u32,
    /// Requests that hold both.
    pub good: u64,
    /// good / scheduled.
    pub goodput: Option<f64>,
}

/// How far the modal latency lies from a threshold: `(mode − threshold) / baseline SD`.
/// Negative = inside the threshold.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ModalDistance {
    /// `ttft` or `e2e`.
    pub component: String,
    /// The threshold.
    pub threshold_ms: u32,
    /// Centre of the densest bin.
    pub mode_ms: Option<f64>,
    /// The baseline's sample standard deviation.
    pub baseline_sd_ms: Option<f64>,
    /// The distance; `None` when it is infinite or not estimable.
    pub distance_sd: Option<f64>,
    /// Sign of an infinite distance (no spread in the baseline): 1 or −1.
    pub infinite_sign: Option<i8>,
    /// Why the distance is absent.
    pub note: Option<String>,
}

/// Fewest samples for a modal latency.
const MIN_MODAL_SAMPLES: usize = 30;

/// Smallest bin of the mode, in nanoseconds.
const MIN_BIN_NS: i64 = NS_PER_MS;

/// Whether a request is good: completed, TTFT and end to end within the thresholds (inclusive),
/// both from the intended send time.
pub(crate) fn is_good(r: &RequestRecord, ttft_ms: u32, e2e_ms: u32) -> bool {
    holds_ttft(r, ttft_ms) && holds_e2e(r, e2e_ms)
}

/// Completed within the TTFT threshold.
pub(crate) fn holds_ttft(r: &RequestRecord, ttft_ms: u32) -> bool {
    r.outcome == Outcome::Completed
        && r.ttft_ns()
            .is_some_and(|t| t <= i64::from(ttft_ms) * NS_PER_MS)
}

/// Completed within the end-to-end threshold.
pub(crate) fn holds_e2e(r: &RequestRecord, e2e_ms: u32) -> bool {
    r.outcome == Outcome::Completed && r.observed_ns() <= i64::from(e2e_ms) * NS_PER_MS
}

/// Latencies of completed requests in nanoseconds, ascending.
#[derive(Debug, Clone, Default)]
pub(crate) struct Latencies {
    pub(crate) ttft_ns: Vec<i64>,
    pub(crate) e2e_ns: Vec<i64>,
}

impl Latencies {
    /// Of the completed ones among `requests`.
    pub(crate) fn of<'a>(requests: impl Iterator<Item = &'a RequestRecord>) -> Self {
        let mut all = Self::default();
        for r in requests.filter(|r| r.outcome == Outcome::Completed) {
            all.ttft_ns.extend(r.ttft_ns());
            all.e2e_ns.push(r.observed_ns());
        }
        all.ttft_ns.sort_unstable();
        all.e2e_ns.sort_unstable();
        all
    }
}

/// Goodput of `requests` over `duration_s`.
pub(crate) fn figures(
    method: &Method,
    requests: &[&RequestRecord],
    duration_s: f64,
    modal_distances: Vec<ModalDistance>,
) -> SloFigures {
    let count = |ttft_ms: u32, e2e_ms: u32| {
        requests
            .iter()
            .filter(|r| is_good(r, ttft_ms, e2e_ms))
            .count() as u64
    };
    let ratio = |good: u64| (!requests.is_empty()).then(|| good as f64 / requests.len() as f64);
    let good = count(method.slo.ttft_ms, method.slo.e2e_ms);
    let mut sweep = Vec::new();
    for ttft_ms in &method.slo_sweep.ttft_ms {
        for e2e_ms in &method.slo_sweep.e2e_ms {
            let good = count(*ttft_ms, *e2e_ms);
            sweep.push(SweepCell {
                ttft_ms: *ttft_ms,
                e2e_ms: *e2e_ms,
                good,
                goodput: ratio(good),
            });
        }
    }
    SloFigures {
        good,
        goodput: ratio(good),
        good_per_s: if duration_s > 0.0 {
            good as f64 / duration_s
        } else {
            0.0
        },
        sweep,
        modal_distances,
    }
}

/// The modal latency: centre of the densest bin, of width 1 % of the median and at least 1 ms, bins
/// counted from 0, the lowest of equally dense ones. In milliseconds; `None` below 30 samples.
pub(crate) fn modal_ms(sorted_ns: &[i64]) -> Option<f64> {
    if sorted_ns.len() < MIN_MODAL_SAMPLES {
        return None;
    }
    let width = (sorted_ns[sorted_ns.len() / 2] / 100).max(MIN_BIN_NS);
    let (mut best_bin, mut best_count) = (0, 0_usize);
    let mut i = 0;
    while i < sorted_ns.len() {
        let bin = sorted_ns[i].div_euclid(width);
        let start = i;
        while i < sorted_ns.len() && sorted_ns[i].div_euclid(width) == bin {
            i += 1;
        }
        if i - start > best_count {
            (best_bin, best_count) = (bin, i - start);
        }
    }
    Some((best_bin as f64 + 0.5) * width as f64 / 1e6)
}

/// Signed distances of the modal latency of `window` from every swept threshold, in standard
/// deviations of `baseline`.
pub(crate) fn modal_distances(
    method: &Method,
    window: &Latencies,
    baseline: &Latencies,
) -> Vec<ModalDistance> {
    let mut all = Vec::new();
    for (component, thresholds, here, before) in [
        (
            "ttft",
            &method.slo_sweep.ttft_ms,
            &window.ttft_ns,
            &baseline.ttft_ns,
        ),
        (
            "e2e",
            &method.slo_sweep.e2e_ms,
            &window.e2e_ns,
            &baseline.e2e_ns,
        ),
    ] {
        let mode_ms = modal_ms(here);
        let before_ms: Vec<f64> = before.iter().map(|ns| millis(*ns)).collect();
        let baseline_sd_ms = sample_sd(&before_ms);
        for threshold_ms in thresholds {
            all.push(distance(component, *threshold_ms, mode_ms, baseline_sd_ms));
        }
    }
    all
}

fn distance(
    component: &str,
    threshold_ms: u32,
    mode_ms: Option<f64>,
    baseline_sd_ms: Option<f64>,
) -> ModalDistance {
    let mut result = ModalDistance {
        component: component.to_owned(),
        threshold_ms,
        mode_ms,
        baseline_sd_ms,
        distance_sd: None,
        infinite_sign: None,
        note: None,
    };
    match (mode_ms, baseline_sd_ms) {
        (None, _) => {
            result.note = Some(format!(
                "too few samples: fewer than {MIN_MODAL_SAMPLES} completed requests in the window"
            ));
        }
        (_, None) => {
            result.note =
                Some("too few samples: fewer than 2 completed requests in the baseline".to_owned());
        }
        (Some(mode), Some(sd)) => {
            let difference = mode - f64::from(threshold_ms);
            if sd > 0.0 {
                result.distance_sd = Some(difference / sd);
            } else if difference == 0.0 {
                result.distance_sd = Some(0.0);
            } else {
                result.infinite_sign = Some(if difference > 0.0 { 1 } else { -1 });
                result.note =
                    Some("the baseline has no spread: the distance is infinite".to_owned());
            }
        }
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mode_is_the_centre_of_the_densest_bin() {
        // Median 150 ms → bins of 1.5 ms; 40 samples at the edge of the bin [150, 151.5).
        let mut ns: Vec<i64> = vec![150_000_000; 40];
        ns.extend((0..20).map(|i| 200_000_000 + i * 2_000_000));
        ns.sort_unstable();
        assert_eq!(modal_ms(&ns), Some(150.75));
        assert_eq!(modal_ms(&ns[..10]), None);
    }

    #[test]
    fn no_spread_gives_a_signed_infinity() {
        let d = distance("ttft", 1000, Some(150.0), Some(0.0));
        assert_eq!((d.distance_sd, d.infinite_sign), (None, Some(-1)));
        let d = distance("ttft", 1000, Some(1200.0), Some(100.0));
        assert_eq!(d.distance_sd, Some(2.0));
        assert!(distance("ttft", 1000, None, Some(1.0)).note.is_some());
    }
}
