//! Turns the journal of a run into the tables that others read, in constant memory.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use hdrhistogram::Histogram;

use super::gap_log::{GapLogWriter, merge};
use super::gaps_parquet::GapParquetWriter;
use super::journal::{JournalEntry, RequestJournalReader};
use super::requests_parquet::RequestParquetWriter;
use super::run_dir::RunFiles;
use crate::{RecordError, RequestRecord};

/// Buckets of gaps that are held open while the journal is read. A bucket that is met again after it
/// was written is written again; its lines add up.
const MAX_OPEN_BUCKETS: usize = 128;

/// What was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SealSummary {
    /// Rows of `requests.parquet`.
    pub requests: u64,
    /// Gaps of `gaps.hlog.zst`.
    pub gaps: u64,
    /// Rows of `gaps.parquet`; `None` where not every gap was kept.
    pub every_gap: Option<u64>,
    /// Bytes of the journal that its writer did not complete.
    pub torn_bytes: u64,
    /// Whether these are more than a last frame that was cut short.
    pub damaged: bool,
    /// Of the rows, those that the journal did not hold.
    pub added: u64,
}

/// Writes `requests.parquet`, `gaps.hlog.zst` and, where every gap was kept, `gaps.parquet` from
/// `requests.journal` and removes the journal.
/// May be called again after it was interrupted anywhere.
///
/// # Errors
/// When the journal is still being written or cannot be read, or the tables cannot be written; the
/// journal then stays.
pub fn seal_journal(dir: &Path) -> Result<SealSummary, RecordError> {
    seal_journal_with(dir, [])
}

/// As [`seal_journal`], with records of requests that the writer gave none behind the journal's own.
///
/// # Errors
/// As [`seal_journal`].
pub fn seal_journal_with(
    dir: &Path,
    more: impl IntoIterator<Item = RequestRecord>,
) -> Result<SealSummary, RecordError> {
    let files = RunFiles::new(dir);
    let mut journal = RequestJournalReader::open(&files.journal())?;
    journal.hold()?;
    let mut requests = RequestParquetWriter::create(&files.requests())?;
    let mut gaps = GapLogWriter::create(&files.gaps())?;
    let mut open: BTreeMap<i64, Histogram<u32>> = BTreeMap::new();
    let mut every_gap: Option<GapParquetWriter> = None;
    let mut summary = SealSummary {
        requests: 0,
        gaps: 0,
        every_gap: None,
        torn_bytes: 0,
        damaged: false,
        added: 0,
    };
    while let Some(entry) = journal.next_entry()? {
        match entry {
            JournalEntry::Request(record) => {
                requests.push(*record)?;
                summary.requests += 1;
            }
            JournalEntry::Gaps { bucket, histogram } => {
                summary.gaps += histogram.len();
                merge(&mut open, bucket, histogram);
                if open.len() > MAX_OPEN_BUCKETS
                    && let Some((bucket, histogram)) = open.pop_first()
                {
                    gaps.append(bucket, &histogram)?;
                }
            }
            JournalEntry::EveryGap(rows) => {
                let table = match &mut every_gap {
                    Some(table) => table,
                    None => every_gap.insert(GapParquetWriter::create(&files.every_gap())?),
                };
                *summary.every_gap.get_or_insert(0) += rows.len() as u64;
                table.extend(&rows)?;
            }
        }
    }
    for record in more {
        requests.push(record)?;
        summary.requests += 1;
        summary.added += 1;
    }
    for (bucket, histogram) in &open {
        gaps.append(*bucket, histogram)?;
    }
    gaps.finish()?;
    if let Some(table) = every_gap {
        table.finish()?;
    }
    requests.finish()?;
    summary.torn_bytes = journal.torn_bytes();
    summary.damaged = journal.is_damaged();
    fs::remove_file(files.journal())
        .map_err(|e| RecordError::io(&files.journal(), "remove it", e))?;
    Ok(summary)
}
