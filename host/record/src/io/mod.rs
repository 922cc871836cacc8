//! The files of a run: writers that survive a kill, readers that survive any bytes.
//!
//! While a run is under way only append-only files exist (`requests.journal`, `events.jsonl`). When
//! it ends the journal is sealed into `requests.parquet` and `gaps.hlog.zst` (and `gaps.parquet`, where
//! every gap was kept), each written beside
//! its name and renamed, and only then removed: at every instant the records are whole in one place
//! or the other.

mod atomic;
mod columns;
mod events;
mod gap_log;
mod gaps_parquet;
mod histogram_codec;
mod journal;
mod json;
mod manifest_files;
mod metrics_parquet;
mod plain;
mod requests_parquet;
mod run_dir;
mod seal;

pub use atomic::{PART_SUFFIX, replace_files, write_atomic};
pub use events::{EventLog, EventWriter, MAX_EVENT_LINE_BYTES, MAX_EVENTS, read_events};
pub(crate) use gap_log::merge;
pub use gap_log::{GapLogWriter, MAX_GAP_BUCKETS, read_gaps, write_gaps};
pub use gaps_parquet::{GAPS_SCHEMA, GapParquetWriter, for_each_gap};
pub use journal::{
    JournalEntry, MAX_FRAME_BYTES, MAX_FRAME_GAPS, RequestJournalReader, RequestJournalWriter,
    journal_in_use, unlocked_because,
};
pub use json::{MAX_JSON_BYTES, read_bounded, read_json, sha256_file, write_json_atomic};
pub use manifest_files::{ArtifactMismatch, MAX_ARTIFACTS, ManifestHead};
pub use metrics_parquet::{MAX_METRIC_ROWS, read_metrics_parquet, write_metrics_parquet};
pub use plain::open_regular;
pub use requests_parquet::{
    REQUESTS_SCHEMA, RequestParquetWriter, for_each_request, read_requests_parquet,
    write_requests_parquet,
};
pub use run_dir::{RunFiles, read_recorded, read_run, read_run_noting};
pub use seal::{SealSummary, seal_journal, seal_journal_with};
