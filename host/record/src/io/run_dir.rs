//! The directory of one run.

use std::path::{Path, PathBuf};

use super::events::read_events;
use super::gap_log::{merge, read_gaps};
use super::journal::{JournalEntry, RequestJournalReader};
use super::json::read_json;
use super::metrics_parquet::read_metrics_parquet;
use super::requests_parquet::read_requests_parquet;
use crate::{RecordError, RunRecords};

/// Names of the files of a run.
#[derive(Debug, Clone)]
pub struct RunFiles {
    dir: PathBuf,
}

impl RunFiles {
    /// The files of a directory.
    pub fn new(dir: &Path) -> Self {
        Self {
            dir: dir.to_owned(),
        }
    }

    /// `requests.journal`, only while the run is under way or after it was killed.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("requests.journal")
    }

    /// `requests.parquet`
    pub fn requests(&self) -> PathBuf {
        self.dir.join("requests.parquet")
    }

    /// `gaps.hlog.zst`
    pub fn gaps(&self) -> PathBuf {
        self.dir.join("gaps.hlog.zst")
    }

    /// `gaps.parquet`: every gap, where that was asked for.
    pub fn every_gap(&self) -> PathBuf {
        self.dir.join("gaps.parquet")
    }

    /// `events.jsonl`
    pub fn events(&self) -> PathBuf {
        self.dir.join("events.jsonl")
    }

    /// `metrics.parquet`
    pub fn metrics(&self) -> PathBuf {
        self.dir.join("metrics.parquet")
    }

    /// `boundaries.json`: what the matcher found, as a list of [`crate::Boundaries`].
    pub fn boundaries(&self) -> PathBuf {
        self.dir.join("boundaries.json")
    }

    /// The captured log of a replica.
    pub fn server_log(&self, replica: &str) -> PathBuf {
        self.dir.join(format!("server-{replica}.log"))
    }
}

/// Reads everything that a run recorded. See [`read_run_noting`].
///
/// # Errors
/// When a file that is there cannot be read, or there are no requests at all.
pub fn read_run(dir: &Path) -> Result<RunRecords, RecordError> {
    read_run_noting(dir).map(|(records, _)| records)
}

/// Reads everything that a run recorded and what a matcher found in its logs, with a caveat for each
/// file that was recovered or is missing.
///
/// # Errors
/// As [`read_recorded`], and when the boundaries are there and cannot be read.
pub fn read_run_noting(dir: &Path) -> Result<(RunRecords, Vec<String>), RecordError> {
    let (mut records, notes) = read_recorded(dir)?;
    let boundaries = RunFiles::new(dir).boundaries();
    if boundaries.exists() {
        records.boundaries = read_json(&boundaries)?;
    }
    Ok((records, notes))
}

/// Reads what a run recorded itself, without what was made of it later (boundaries stay empty): an
/// analysis that makes it anew does not depend on the old one. With a caveat as above. A run whose instrument was killed has a journal instead of its tables: its records are
/// taken from there. Metrics, events and gaps that are not there stay empty.
///
/// # Errors
/// When a file that is there cannot be read, or there are neither requests nor a journal.
pub fn read_recorded(dir: &Path) -> Result<(RunRecords, Vec<String>), RecordError> {
    let files = RunFiles::new(dir);
    let mut notes = Vec::new();
    let mut records = RunRecords::default();

    let sealed = files.requests().exists();
    let gaps_sealed = files.gaps().exists();
    if sealed {
        records.requests = read_requests_parquet(&files.requests())?;
    }
    if gaps_sealed {
        records.gaps = read_gaps(&files.gaps())?;
    }
    if !sealed || (!gaps_sealed && files.journal().exists()) {
        let mut journal = RequestJournalReader::open(&files.journal())?;
        while let Some(entry) = journal.next_entry()? {
            match entry {
                JournalEntry::Request(record) if !sealed => records.requests.push(*record),
                JournalEntry::Gaps { bucket, histogram } if !gaps_sealed => {
                    merge(&mut records.gaps.buckets, bucket, histogram);
                }
                _ => {}
            }
        }
        // The writer never appends an index twice; a copied file might.
        records.requests.sort_by_key(|r| r.index);
        records.requests.dedup_by_key(|r| r.index);
        notes.push(format!(
            "the instrument ended before it sealed its records: {} requests recovered from the \
             journal, {} bytes of it unreadable",
            records.requests.len(),
            journal.torn_bytes()
        ));
    } else if !gaps_sealed {
        notes.push("gaps.hlog.zst is missing: inter-chunk gaps are not measured".to_owned());
    }

    if files.events().exists() {
        let log = read_events(&files.events())?;
        records.events = log.events;
        records.events.sort_by_key(|e| e.at_ns);
        if log.torn_bytes > 0 {
            notes.push(format!(
                "the last event was cut short: {} bytes ignored",
                log.torn_bytes
            ));
        }
    } else {
        notes.push("events.jsonl is missing: no event is known".to_owned());
    }
    if files.metrics().exists() {
        records.metrics = read_metrics_parquet(&files.metrics())?;
    }
    Ok((records, notes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gap, record};
    use crate::{Event, EventKind, EventWriter, RequestJournalWriter, for_each_gap, seal_journal};
    use hdrhistogram::Histogram;

    fn journalled(dir: &Path) {
        let files = RunFiles::new(dir);
        let mut journal = RequestJournalWriter::create(&files.journal()).unwrap();
        for index in [2, 0, 1] {
            journal.append(&record(index)).unwrap();
        }
        for bucket in (0..300).chain(0..300) {
            let mut h = Histogram::new(3).unwrap();
            h.record(10_000).unwrap();
            journal.append_gaps(bucket, &h).unwrap();
        }
        let gaps: Vec<_> = (0..500).map(gap).collect();
        for part in gaps.chunks(100) {
            journal.append_every_gap(part).unwrap();
        }
        journal.flush().unwrap();
        let mut events = EventWriter::create(&files.events()).unwrap();
        for at_ns in [5, -5] {
            let text = "x".to_owned();
            let kind = EventKind::Note { text };
            events.append(&Event { at_ns, kind }).unwrap();
        }
    }

    #[test]
    fn a_killed_run_and_the_sealed_one_read_alike() {
        let dir = tempfile::tempdir().unwrap();
        journalled(dir.path());
        let (killed, notes) = read_run_noting(dir.path()).unwrap();
        assert!(notes[0].contains("3 requests recovered"), "{notes:?}");
        let summary = seal_journal(dir.path()).unwrap();
        assert_eq!((summary.requests, summary.gaps), (3, 600));
        assert_eq!(summary.every_gap, Some(500));
        let mut gaps = Vec::new();
        for_each_gap(&RunFiles::new(dir.path()).every_gap(), |rows| {
            gaps.extend(rows);
        })
        .unwrap();
        assert!(gaps == (0..500).map(gap).collect::<Vec<_>>());
        assert!(!RunFiles::new(dir.path()).journal().exists());
        let (sealed, notes) = read_run_noting(dir.path()).unwrap();
        assert_eq!(notes, Vec::<String>::new());
        assert_eq!(killed.requests, sealed.requests);
        assert_eq!(killed.gaps.buckets, sealed.gaps.buckets);
        assert_eq!(sealed.gaps.buckets.len(), 300);
        assert_eq!(sealed.events[0].at_ns, -5);
        let indices: Vec<_> = sealed.requests.iter().map(|r| r.index).collect();
        assert_eq!(indices, [0, 1, 2]);
    }

    #[test]
    fn sealing_that_was_interrupted_between_its_files_loses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let copy = tempfile::tempdir().unwrap();
        journalled(dir.path());
        std::fs::copy(
            RunFiles::new(dir.path()).journal(),
            RunFiles::new(copy.path()).journal(),
        )
        .unwrap();
        seal_journal(dir.path()).unwrap();
        std::fs::copy(
            RunFiles::new(dir.path()).requests(),
            RunFiles::new(copy.path()).requests(),
        )
        .unwrap();
        let half = read_run(copy.path()).unwrap();
        assert_eq!(half.requests.len(), 3);
        assert_eq!(half.gaps.buckets.len(), 300);
    }

    #[test]
    fn an_empty_directory_is_no_run() {
        let dir = tempfile::tempdir().unwrap();
        let error = read_run(dir.path()).unwrap_err().to_string();
        assert!(error.contains("results directory of a run"), "{error}");
    }
}
