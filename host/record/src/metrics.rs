//! Scraped metrics, in long form.

use serde::{Deserialize, Serialize};

/// One sample of one series.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MetricSample {
    /// Run time of the scrape (middle of the request).
    pub at_ns: i64,
    /// Index into [`MetricTable::series`].
    pub series: u32,
    /// Value as exported.
    pub value: f64,
}

/// All samples of a run. Series are `(replica, name with labels)`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricTable {
    /// The series.
    pub series: Vec<(String, String)>,
    /// The samples, ascending by time within a series.
    pub samples: Vec<MetricSample>,
}

impl MetricTable {
    /// Samples of all series of `replica` whose metric name (without labels) is `name`, summed over
    /// label sets for each scrape.
    pub fn summed(&self, replica: &str, name: &str) -> Vec<(i64, f64)> {
        let wanted: Vec<bool> = self
            .series
            .iter()
            .map(|(r, full)| r == replica && full.split('{').next() == Some(name))
            .collect();
        let mut by_time = std::collections::BTreeMap::<i64, f64>::new();
        for sample in &self.samples {
            if wanted.get(sample.series as usize).copied().unwrap_or(false) {
                *by_time.entry(sample.at_ns).or_default() += sample.value;
            }
        }
        by_time.into_iter().collect()
    }
}
