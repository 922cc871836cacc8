//! Statistics of a small sample, and the sentence that publishes them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::{CensoredRun, kaplan_meier, precision, stats, t_multiplier};

/// Summary of a sample. Field names and texts as in the predecessor's published endpoints; what the
/// sample cannot carry is `None`, where the predecessor wrote 0.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Summary {
    /// Per-run values, verbatim, in run order.
    pub values: Option<Vec<f64>>,
    /// How many.
    pub n: u64,
    /// Median.
    pub median: Option<f64>,
    /// Mean.
    pub mean: Option<f64>,
    /// Smallest.
    pub min: Option<f64>,
    /// Largest.
    pub max: Option<f64>,
    /// Sample standard deviation (n − 1).
    pub sample_sd: Option<f64>,
    /// Standard error of the mean.
    pub sem: Option<f64>,
    /// Lower end of the 95 % t-interval.
    pub t_interval_lo: Option<f64>,
    /// Upper end.
    pub t_interval_hi: Option<f64>,
    /// Its multiplier, to three decimals.
    pub t_multiplier: Option<f64>,
    /// Degrees of freedom.
    pub df: Option<u64>,
    /// Whether `df` is the planned one.
    pub at_pinned_df: bool,
    /// Sample SD over mean.
    pub coefficient_of_variation: Option<f64>,
    /// Whether that is defined.
    pub cov_defined: bool,
    /// Whether the quantity is heavy-tailed: median and range lead.
    pub heavy_tailed: bool,
    /// The sentence to publish.
    pub headline: String,
}

/// Summary of per-run values. `planned_df` is the planned number of runs minus 1.
///
/// Mean, sample SD (n − 1), SEM = SD/√n, and mean ± t·SEM with the two-sided 95 % multiplier of its
/// own df to three decimals. Heavy-tailed values lead with median and range, others with the mean.
///
/// Worked example: 41, 41, 43, 41, 42 → median 41, mean 41.6, SD 0.894, interval [40.490, 42.710].
pub fn summarize(values: &[f64], heavy_tailed: bool, planned_df: u64) -> Summary {
    let n = values.len() as u64;
    let df = n.checked_sub(1);
    let mean = stats::mean(values);
    let median = stats::median(values);
    let sample_sd = stats::sample_sd(values);
    let sem = sample_sd.map(|sd| sd / (n as f64).sqrt());
    let t = df.and_then(t_multiplier);
    let reach = t.zip(sem).map(|(t, sem)| t * sem);
    let interval = mean.zip(reach).map(|(m, r)| (m - r, m + r));
    let cov = mean
        .zip(sample_sd)
        .filter(|(m, _)| *m != 0.0)
        .map(|(m, sd)| sd / m);
    let min = values.iter().copied().reduce(f64::min);
    let max = values.iter().copied().reduce(f64::max);
    let mut summary = Summary {
        values: (n > 0).then(|| values.to_vec()),
        n,
        median,
        mean,
        min,
        max,
        sample_sd,
        sem,
        t_interval_lo: interval.map(|i| i.0),
        t_interval_hi: interval.map(|i| i.1),
        t_multiplier: t,
        df: df.filter(|d| *d > 0),
        at_pinned_df: df.is_some_and(|d| d > 0 && d == planned_df),
        coefficient_of_variation: cov,
        cov_defined: cov.is_some(),
        heavy_tailed,
        headline: String::new(),
    };
    summary.headline = headline(&summary, None);
    summary
}

/// The sentence to publish. With the uncertainty of the values it has no more decimals than that
/// leaves, and names it.
pub(crate) fn headline(s: &Summary, uncertainty: Option<f64>) -> String {
    let d = precision::decimals(uncertainty);
    let plus_minus = uncertainty.and_then(precision::rounded_up);
    let each = plus_minus
        .as_ref()
        .map_or_else(String::new, |u| format!(", each ±{u}"));
    let n = s.n;
    let interval = s.t_interval_lo.zip(s.t_interval_hi).map(|(lo, hi)| {
        precision::ends(lo, hi, uncertainty).map_or_else(
            || {
                format!(
                    "narrower than ±{}",
                    plus_minus.as_deref().unwrap_or_default()
                )
            },
            |(lo, hi)| format!("[{lo}, {hi}]"),
        )
    });
    match (s.median, s.mean, s.min.zip(s.max), interval, s.t_multiplier) {
        (Some(median), _, Some((min, max)), Some(interval), _) if s.heavy_tailed => format!(
            "median {median:.d$} (range {min:.d$}–{max:.d$}, N={n}{each}); t-interval {interval} reported with normality caveat"
        ),
        (Some(median), Some(mean), _, Some(interval), Some(t)) => format!(
            "mean {mean:.d$} (95% t-interval {interval}, t={t:.3} df={}{each}), median {median:.d$}",
            n.saturating_sub(1)
        ),
        (Some(median), ..) => format!(
            "{median:.d$}{} (N=1): one run carries no interval",
            plus_minus.map_or_else(String::new, |u| format!(" ±{u}"))
        ),
        _ => String::new(),
    }
}

/// With right-censored runs, mean, spread and interval of the other values would be biased towards
/// short times: they are withdrawn, and the Kaplan–Meier median leads.
pub(crate) fn censored_summary(
    summary: &mut Summary,
    values: &[f64],
    censored: &[CensoredRun],
    uncertainty: Option<f64>,
) -> (Option<f64>, Option<String>) {
    let sample: Vec<(f64, bool)> = values
        .iter()
        .map(|v| (*v, true))
        .chain(censored.iter().map(|c| (c.at_least, false)))
        .collect();
    let median = kaplan_meier(&sample)
        .into_iter()
        .find(|(_, survival)| *survival <= 0.5 + 1e-12)
        .map(|(at, _)| at);
    summary.median = None;
    summary.mean = None;
    summary.max = None;
    summary.sample_sd = None;
    summary.sem = None;
    summary.t_interval_lo = None;
    summary.t_interval_hi = None;
    summary.t_multiplier = None;
    summary.df = None;
    summary.at_pinned_df = false;
    summary.coefficient_of_variation = None;
    summary.cov_defined = false;
    let (k, n) = (censored.len(), sample.len());
    let d = precision::decimals(uncertainty);
    summary.headline = match median {
        Some(m) => format!(
            "Kaplan–Meier median {m:.d$} (N={n}); {k} of {n} runs never got there and count as \"at least\""
        ),
        None => format!("median not reached: {k} of {n} runs never got there"),
    };
    let note = median
        .is_none()
        .then(|| format!("not reached: {k} of {n} runs are right-censored"));
    (median, note)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn worked_example() {
        let s = summarize(&[41.0, 41.0, 43.0, 41.0, 42.0], true, 4);
        assert_eq!(
            s.headline,
            "median 41.000 (range 41.000–43.000, N=5); t-interval [40.490, 42.710] reported with normality caveat"
        );
        assert!(s.at_pinned_df);
        assert_eq!(s.t_multiplier, Some(2.776));
        let s = summarize(&[39.0, 39.0, 40.0, 39.0, 41.0], false, 4);
        assert_eq!(
            s.headline,
            "mean 39.600 (95% t-interval [38.490, 40.710], t=2.776 df=4), median 39.000"
        );
    }

    #[test]
    fn one_run_carries_no_interval() {
        let s = summarize(&[3.0], true, 4);
        assert_eq!(
            (s.median, s.sample_sd, s.t_interval_lo),
            (Some(3.0), None, None)
        );
        assert!(s.headline.contains("no interval"));
        let none = summarize(&[], true, 4);
        assert_eq!((none.n, none.values, none.median), (0, None, None));
    }

    #[test]
    fn censored_runs_withdraw_the_mean() {
        let values = [10.0, 12.0, 11.0];
        let mut s = summarize(&values, true, 4);
        let never = |run| CensoredRun {
            run,
            at_least: 600.0,
        };
        let (median, note) = censored_summary(&mut s, &values, &[never(2), never(5)], None);
        assert_eq!((median, note), (Some(12.0), None));
        assert_eq!(s.mean, None);
        let (median, note) =
            censored_summary(&mut s, &[10.0], &[never(2), never(3), never(4)], None);
        assert_eq!(median, None);
        assert!(note.unwrap().contains("not reached"));
    }

    #[test]
    fn a_sentence_has_no_more_digits_than_its_figures() {
        let s = summarize(&[12.37, 12.31, 12.52], true, 4);
        assert_eq!(
            headline(&s, Some(0.130_02)),
            "median 12.37 (range 12.31–12.52, N=3, each ±0.13); t-interval [12.13, 12.67] reported with normality caveat"
        );
        // Runs that agree to less than each is known do not make their mean better known.
        let s = summarize(&[5.0, 5.0, 5.0], true, 4);
        assert_eq!(
            headline(&s, Some(1.0)),
            "median 5 (range 5–5, N=3, each ±1); t-interval narrower than ±1 reported with normality caveat"
        );
        let s = summarize(&[4.0, 5.0, 7.0], false, 4);
        assert_eq!(
            headline(&s, Some(1.0)),
            "mean 5 (95% t-interval [1, 10], t=4.303 df=2, each ±1), median 5"
        );
        let one = summarize(&[5.0], true, 4);
        assert_eq!(
            headline(&one, Some(1.000_02)),
            "5 ±1 (N=1): one run carries no interval"
        );
        // An uncertainty below the last digit is not one that a reader meets.
        assert_eq!(headline(&one, Some(0.000_02)), headline(&one, None));
    }
}
