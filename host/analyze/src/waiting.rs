//! The waiting queue over the baseline (gate G7).

use std::collections::BTreeMap;

use blackstart_plan::Plan;
use blackstart_record::{EventKind, RunRecords};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;
use crate::stats::mean;

/// One replica's waiting-queue gauge over the baseline.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WaitingAnalysis {
    /// Mean over the samples.
    pub mean: Option<f64>,
    /// Largest sample.
    pub max: Option<f64>,
    /// Samples.
    pub samples: u64,
    /// Samples that the scrape interval promises.
    pub expected: u64,
    /// Failed scrapes within the baseline.
    pub scrape_errors: u64,
    /// Why the mean is absent.
    pub note: Option<String>,
}

/// Waiting queues by replica.
pub(crate) fn analyze(
    plan: &Plan,
    records: &RunRecords,
    baseline: Span,
) -> BTreeMap<String, WaitingAnalysis> {
    let interval = plan.observe.metrics_interval_ns.max(1);
    let expected = u64::try_from((baseline.end_ns - baseline.start_ns) / interval).unwrap_or(0);
    let mut all = BTreeMap::new();
    for replica in &plan.target.replicas {
        let samples: Vec<f64> = records
            .metrics
            .summed(&replica.id, &plan.observe.waiting_metric)
            .into_iter()
            .filter(|(at, value)| baseline.holds_at(*at) && value.is_finite())
            .map(|(_, value)| value)
            .collect();
        let scrape_errors = records
            .events
            .iter()
            .filter(|e| baseline.holds_at(e.at_ns))
            .filter(
                |e| matches!(&e.kind, EventKind::ScrapeError { replica: r, .. } if *r == replica.id),
            )
            .count() as u64;
        let note = if !samples.is_empty() {
            None
        } else if plan.observe.metrics_path.is_none() {
            Some("the plan scrapes no metrics".to_owned())
        } else {
            Some(format!(
                "{} has no sample of {} in the baseline ({scrape_errors} scrape errors)",
                replica.id, plan.observe.waiting_metric
            ))
        };
        all.insert(
            replica.id.clone(),
            WaitingAnalysis {
                mean: mean(&samples),
                max: samples.iter().copied().reduce(f64::max),
                samples: samples.len() as u64,
                expected,
                scrape_errors,
                note,
            },
        );
    }
    all
}
