//! Collects the samples of one replica within bounds.

use std::collections::HashMap;

use blackstart_clock::RunNs;
use blackstart_record::{MetricSample, MetricTable};

use crate::prometheus::PromSample;

/// Most series kept of one replica.
pub(crate) const MAX_SERIES: usize = 20_000;
/// Most samples kept of one replica in a run: some hours at 650 series a second apart, 96 MB.
/// Beyond it only the gauge that a gate needs is kept.
pub(crate) const MAX_SAMPLES: usize = 4_000_000;

/// What became of a sample.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// It is in the table.
    Yes,
    /// The replica has too many series.
    TooManySeries,
    /// The run has too many samples.
    TooManySamples,
    /// The series is in this scrape already.
    Duplicate,
}

/// The samples of one replica.
#[derive(Debug)]
pub(crate) struct TableBuilder {
    /// Kept whatever the number of samples.
    needed: String,
    ids: HashMap<String, u32>,
    /// For each series, the scrape that it was last seen in.
    last_scrape: Vec<u64>,
    samples: Vec<MetricSample>,
    scrape: u64,
    max_series: usize,
    max_samples: usize,
}

impl TableBuilder {
    /// An empty table; the metric named `needed` is never dropped for the number of samples.
    pub(crate) fn new(needed: &str) -> Self {
        Self::with_bounds(needed, MAX_SERIES, MAX_SAMPLES)
    }

    fn with_bounds(needed: &str, max_series: usize, max_samples: usize) -> Self {
        Self {
            needed: needed.to_owned(),
            ids: HashMap::new(),
            last_scrape: Vec::new(),
            samples: Vec::new(),
            scrape: 0,
            max_series,
            max_samples,
        }
    }

    /// Begins the next scrape.
    pub(crate) fn next_scrape(&mut self) {
        self.scrape += 1;
    }

    /// Adds a sample of this scrape.
    pub(crate) fn push(&mut self, at_ns: RunNs, sample: PromSample) -> Kept {
        if self.samples.len() >= self.max_samples && sample.name() != self.needed {
            return Kept::TooManySamples;
        }
        let series = match self.ids.get(&sample.series) {
            Some(id) => *id,
            None if self.ids.len() >= self.max_series && sample.name() != self.needed => {
                return Kept::TooManySeries;
            }
            None => {
                let Ok(id) = u32::try_from(self.ids.len()) else {
                    return Kept::TooManySeries;
                };
                self.ids.insert(sample.series, id);
                self.last_scrape.push(0);
                id
            }
        };
        // In bounds: ids and last_scrape grow together.
        let last = &mut self.last_scrape[series as usize];
        if *last == self.scrape {
            return Kept::Duplicate;
        }
        *last = self.scrape;
        self.samples.push(MetricSample {
            at_ns,
            series,
            value: sample.value,
        });
        Kept::Yes
    }

    /// Number of series.
    pub(crate) fn series(&self) -> usize {
        self.ids.len()
    }

    /// Appends everything to the run's table.
    pub(crate) fn finish(self, replica: &str, table: &mut MetricTable) {
        let base = u32::try_from(table.series.len()).unwrap_or(u32::MAX);
        let mut names: Vec<(u32, String)> = self.ids.into_iter().map(|(n, id)| (id, n)).collect();
        names.sort_unstable();
        table
            .series
            .extend(names.into_iter().map(|(_, n)| (replica.to_owned(), n)));
        table
            .samples
            .extend(self.samples.into_iter().map(|s| MetricSample {
                series: base + s.series,
                ..s
            }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(series: &str, value: f64) -> PromSample {
        PromSample {
            series: series.to_owned(),
            value,
        }
    }

    #[test]
    fn bounds_hold_and_the_needed_gauge_survives_them() {
        let mut b = TableBuilder::with_bounds("w", 2, 3);
        b.next_scrape();
        assert_eq!(b.push(1, sample("a", 1.0)), Kept::Yes);
        assert_eq!(b.push(1, sample("a", 2.0)), Kept::Duplicate);
        assert_eq!(b.push(1, sample("b", 1.0)), Kept::Yes);
        assert_eq!(b.push(1, sample("c", 1.0)), Kept::TooManySeries);
        assert_eq!(b.push(1, sample("w{x=\"1\"}", 5.0)), Kept::Yes);
        b.next_scrape();
        assert_eq!(b.push(2, sample("a", 3.0)), Kept::TooManySamples);
        assert_eq!(b.push(2, sample("w{x=\"1\"}", 6.0)), Kept::Yes);
        assert_eq!(b.series(), 3);
        let mut table = MetricTable {
            series: vec![("r0".into(), "z".into())],
            samples: vec![],
        };
        b.finish("r1", &mut table);
        assert_eq!(table.series[3], ("r1".into(), "w{x=\"1\"}".into()));
        assert_eq!(table.summed("r1", "w"), [(1, 5.0), (2, 6.0)]);
        assert_eq!(table.summed("r1", "a"), [(1, 1.0)]);
        assert!(table.summed("r0", "w").is_empty());
    }
}
