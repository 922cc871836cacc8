//! `requests.parquet`: one row per scheduled request, in the order in which they ended.
//!
//! Readable by pandas, DuckDB and any other Parquet reader. Times are nanoseconds of run time (0 = the
//! run epoch); a null means "did not happen" or "was not said", never zero.

use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

use blackstart_plan::MAX_SCHEDULED_REQUESTS;
use parquet::errors::{ParquetError, Result as ParquetResult};
use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::Type;

use super::atomic::AtomicFile;
use super::columns::{ColumnsIn, ColumnsOut, MAX_ROW_GROUP_ROWS, ROW_GROUP_ROWS, properties};
use super::plain::open_regular;
use crate::{CensorKind, ErrorClass, FinishReason, Outcome, RecordError, RequestRecord};

/// The columns. Names and units are stable; see [`RequestRecord`] for their meaning.
pub const REQUESTS_SCHEMA: &str = "
message request {
  required int64 index (INTEGER(64, false));
  required int64 intended_ns;
  optional int64 admitted_ns;
  optional int64 connect_started_ns;
  optional int64 dispatched_ns;
  optional int64 headers_ns;
  optional int64 first_event_ns;
  optional int64 first_token_ns;
  optional int64 last_token_ns;
  required int64 ended_ns;
  required binary outcome (STRING);
  optional binary error_class (STRING);
  optional binary censor_kind (STRING);
  optional int32 http_status (INTEGER(32, false));
  optional int64 error_code;
  optional binary error_text (STRING);
  optional binary finish_reason (STRING);
  required boolean done_marker;
  required int32 content_events (INTEGER(32, false));
  optional int32 completion_tokens (INTEGER(32, false));
  optional int32 prompt_tokens (INTEGER(32, false));
  required int64 body_bytes (INTEGER(64, false));
  required int32 coalesced_reads (INTEGER(32, false));
  optional int64 gap_max_ns;
  required boolean connection_reused;
  optional binary replica (STRING);
  optional int64 first_token_kernel_ns;
  optional int64 ended_kernel_ns;
  optional int64 read_lag_max_ns;
  optional int32 conversation (INTEGER(32, false));
  optional int32 turn (INTEGER(32, false));
}
";

/// Parses a schema of this crate.
pub(crate) fn schema(text: &str) -> Arc<Type> {
    Arc::new(parse_message_type(text).expect("the schema is a constant that a test parses"))
}

/// Writes the table row group by row group, in constant memory.
pub struct RequestParquetWriter {
    file: SerializedFileWriter<AtomicFile>,
    rows: Vec<RequestRecord>,
    path: std::path::PathBuf,
}

impl RequestParquetWriter {
    /// Starts a table that will replace `path` when it is finished.
    ///
    /// # Errors
    /// When the directory is missing, not writable or full.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let file = AtomicFile::create(path)?;
        let file = SerializedFileWriter::new(file, schema(REQUESTS_SCHEMA), properties())
            .map_err(|e| cannot_write(path, &e))?;
        Ok(Self {
            file,
            rows: Vec::with_capacity(ROW_GROUP_ROWS),
            path: path.to_owned(),
        })
    }

    /// Adds a row.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn push(&mut self, record: RequestRecord) -> Result<(), RecordError> {
        self.rows.push(record);
        if self.rows.len() == ROW_GROUP_ROWS {
            self.flush_group()?;
        }
        Ok(())
    }

    fn flush_group(&mut self) -> Result<(), RecordError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        write_group(&mut self.file, &self.rows).map_err(|e| cannot_write(&self.path, &e))?;
        self.rows.clear();
        Ok(())
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(mut self) -> Result<(), RecordError> {
        self.flush_group()?;
        self.file
            .into_inner()
            .map_err(|e| cannot_write(&self.path, &e))?
            .commit()
    }
}

/// An I/O error keeps its kind, so that the remedy fits.
pub(crate) fn cannot_write(path: &Path, error: &ParquetError) -> RecordError {
    let source = match error {
        ParquetError::External(inner) => inner
            .downcast_ref::<std::io::Error>()
            .map(|e| std::io::Error::new(e.kind(), e.to_string())),
        _ => None,
    };
    let source = source.unwrap_or_else(|| std::io::Error::other(error.to_string()));
    RecordError::io(path, "write it", source)
}

fn write_group<W: Write + Send>(
    file: &mut SerializedFileWriter<W>,
    rows: &[RequestRecord],
) -> ParquetResult<()> {
    let mut group = file.next_row_group()?;
    let mut out = ColumnsOut(&mut group);
    let rows = || rows.iter();
    out.i64(rows().map(|r| r.index.cast_signed()))?;
    out.i64(rows().map(|r| r.intended_ns))?;
    out.optional_i64(rows().map(|r| r.admitted_ns))?;
    out.optional_i64(rows().map(|r| r.connect_started_ns))?;
    out.optional_i64(rows().map(|r| r.dispatched_ns))?;
    out.optional_i64(rows().map(|r| r.headers_ns))?;
    out.optional_i64(rows().map(|r| r.first_event_ns))?;
    out.optional_i64(rows().map(|r| r.first_token_ns))?;
    out.optional_i64(rows().map(|r| r.last_token_ns))?;
    out.i64(rows().map(|r| r.ended_ns))?;
    out.text(rows().map(|r| r.outcome.name()))?;
    out.optional_text(rows().map(|r| r.error_class.map(ErrorClass::name)))?;
    out.optional_text(rows().map(|r| r.censor_kind.map(CensorKind::name)))?;
    out.optional_u32(rows().map(|r| r.http_status.map(u32::from)))?;
    out.optional_i64(rows().map(|r| r.error_code))?;
    out.optional_text(rows().map(|r| r.error_text.as_deref()))?;
    out.optional_text(rows().map(|r| r.finish_reason.as_ref().map(FinishReason::name)))?;
    out.bool(rows().map(|r| r.done_marker))?;
    out.u32(rows().map(|r| r.content_events))?;
    out.optional_u32(rows().map(|r| r.completion_tokens))?;
    out.optional_u32(rows().map(|r| r.prompt_tokens))?;
    out.i64(rows().map(|r| r.body_bytes.cast_signed()))?;
    out.u32(rows().map(|r| r.coalesced_reads))?;
    out.optional_i64(rows().map(|r| r.gap_max_ns))?;
    out.bool(rows().map(|r| r.connection_reused))?;
    out.optional_text(rows().map(|r| r.replica.as_deref()))?;
    out.optional_i64(rows().map(|r| r.first_token_kernel_ns))?;
    out.optional_i64(rows().map(|r| r.ended_kernel_ns))?;
    out.optional_i64(rows().map(|r| r.read_lag_max_ns))?;
    out.optional_u32(rows().map(|r| r.conversation))?;
    out.optional_u32(rows().map(|r| r.turn))?;
    group.close()?;
    Ok(())
}

/// Writes a whole table.
///
/// # Errors
/// When the directory is missing, not writable or full.
pub fn write_requests_parquet(path: &Path, records: &[RequestRecord]) -> Result<(), RecordError> {
    let mut writer = RequestParquetWriter::create(path)?;
    for record in records {
        writer.push(record.clone())?;
    }
    writer.finish()
}

/// Reads a table, ascending by index.
///
/// # Errors
/// When it cannot be read, has other columns, exceeds a bound or is damaged.
pub fn read_requests_parquet(path: &Path) -> Result<Vec<RequestRecord>, RecordError> {
    let mut records = read_table(path, REQUESTS_SCHEMA, MAX_SCHEDULED_REQUESTS, read_group)?;
    if !records.is_sorted_by_key(|r| r.index) {
        records.sort_by_key(|r| r.index);
    }
    if let Some(pair) = records.windows(2).find(|w| w[0].index == w[1].index) {
        return Err(RecordError::damaged(
            path,
            format!("request {} is there twice", pair[0].index),
        ));
    }
    Ok(records)
}

/// Shows each row of a table, in the file's order, holding one row group at a time.
///
/// # Errors
/// When it cannot be read, has other columns, exceeds a bound or is damaged. Rows before the damage
/// were shown.
pub fn for_each_request(
    path: &Path,
    mut show: impl FnMut(&RequestRecord),
) -> Result<(), RecordError> {
    for_each_group(
        path,
        REQUESTS_SCHEMA,
        MAX_SCHEDULED_REQUESTS,
        read_group,
        |rows, _| rows.iter().for_each(&mut show),
    )
}

/// Reads all row groups of a table with exactly these columns.
pub(crate) fn read_table<T>(
    path: &Path,
    expected: &str,
    max_rows: usize,
    read_group: fn(&mut ColumnsIn<'_>) -> ParquetResult<Vec<T>>,
) -> Result<Vec<T>, RecordError> {
    let mut all = Vec::new();
    for_each_group(path, expected, max_rows, read_group, |rows, still| {
        // At once for the whole table: a vector that grows holds everything twice while it moves.
        if all.is_empty() {
            // What a file says of its length may be more than there is memory; then it grows.
            let _ = all.try_reserve_exact(still);
        }
        all.extend(rows);
    })?;
    Ok(all)
}

/// Whether a table is one of this version.
enum Columns {
    Expected,
    Other,
}

/// Shows the row groups of a table with exactly these columns, one after the other, each with how many
/// rows the file says that it and those behind it hold, within the bound.
pub(crate) fn for_each_group<T>(
    path: &Path,
    expected: &str,
    max_rows: usize,
    read_group: fn(&mut ColumnsIn<'_>) -> ParquetResult<Vec<T>>,
    mut show: impl FnMut(Vec<T>, usize),
) -> Result<(), RecordError> {
    let file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
    // The library promises an error for damaged files but its decoders index by what a file says; a
    // panic in them is damage too.
    let read = catch_unwind(AssertUnwindSafe(|| -> ParquetResult<Columns> {
        let reader = SerializedFileReader::new(file)?;
        let metadata = reader.metadata().file_metadata();
        if *metadata.schema() != *schema(expected) {
            return Ok(Columns::Other);
        }
        // Of every group, as it says itself: none is larger than is read.
        let said = (0..reader.num_row_groups())
            .map(|group| reader.metadata().row_group(group).num_rows())
            .map(|rows| usize::try_from(rows.clamp(0, MAX_ROW_GROUP_ROWS)).unwrap_or(0))
            .sum::<usize>();
        let mut shown = 0;
        for group in 0..reader.num_row_groups() {
            let group = reader.get_row_group(group)?;
            let rows = read_group(&mut ColumnsIn::new(group.as_ref())?)?;
            let still = said.min(max_rows).saturating_sub(shown);
            shown += rows.len();
            if shown > max_rows {
                return Err(ParquetError::General(format!("more than {max_rows} rows")));
            }
            show(rows, still);
        }
        Ok(Columns::Expected)
    }));
    match read {
        Ok(Ok(Columns::Expected)) => Ok(()),
        Ok(Ok(Columns::Other)) => Err(RecordError::Damaged {
            path: path.to_owned(),
            what: "columns of another version of this table".to_owned(),
            mend: "read it with the version of the instrument that wrote it: the file names it as its \
                   creator",
        }),
        Ok(Err(e)) => Err(RecordError::damaged(path, e.to_string())),
        Err(_) => Err(RecordError::damaged(path, "its encoding is damaged")),
    }
}

fn read_group(columns: &mut ColumnsIn<'_>) -> ParquetResult<Vec<RequestRecord>> {
    let index = columns.i64()?;
    let intended_ns = columns.i64()?;
    let admitted_ns = columns.optional_i64()?;
    let connect_started_ns = columns.optional_i64()?;
    let dispatched_ns = columns.optional_i64()?;
    let headers_ns = columns.optional_i64()?;
    let first_event_ns = columns.optional_i64()?;
    let first_token_ns = columns.optional_i64()?;
    let last_token_ns = columns.optional_i64()?;
    let ended_ns = columns.i64()?;
    let outcome = columns.text()?;
    let error_class = columns.optional_text()?;
    let censor_kind = columns.optional_text()?;
    let http_status = columns.optional_u32()?;
    let error_code = columns.optional_i64()?;
    let mut error_text = columns.optional_text()?;
    let mut finish_reason = columns.optional_text()?;
    let done_marker = columns.bool()?;
    let content_events = columns.u32()?;
    let completion_tokens = columns.optional_u32()?;
    let prompt_tokens = columns.optional_u32()?;
    let body_bytes = columns.i64()?;
    let coalesced_reads = columns.u32()?;
    let gap_max_ns = columns.optional_i64()?;
    let connection_reused = columns.bool()?;
    let mut replica = columns.optional_text()?;
    let first_token_kernel_ns = columns.optional_i64()?;
    let ended_kernel_ns = columns.optional_i64()?;
    let read_lag_max_ns = columns.optional_i64()?;
    let conversation = columns.optional_u32()?;
    let turn = columns.optional_u32()?;
    (0..index.len())
        .map(|i| {
            Ok(RequestRecord {
                index: index[i].cast_unsigned(),
                intended_ns: intended_ns[i],
                admitted_ns: admitted_ns[i],
                connect_started_ns: connect_started_ns[i],
                dispatched_ns: dispatched_ns[i],
                headers_ns: headers_ns[i],
                first_event_ns: first_event_ns[i],
                first_token_ns: first_token_ns[i],
                last_token_ns: last_token_ns[i],
                ended_ns: ended_ns[i],
                outcome: named("outcome", Some(&outcome[i]), Outcome::from_name)?
                    .ok_or_else(|| ParquetError::General("an outcome is missing".to_owned()))?,
                error_class: named(
                    "error_class",
                    error_class[i].as_deref(),
                    ErrorClass::from_name,
                )?,
                censor_kind: named(
                    "censor_kind",
                    censor_kind[i].as_deref(),
                    CensorKind::from_name,
                )?,
                http_status: http_status[i]
                    .map(|s| {
                        u16::try_from(s)
                            .map_err(|_| ParquetError::General(format!("HTTP status {s}")))
                    })
                    .transpose()?,
                error_code: error_code[i],
                error_text: error_text[i].take(),
                finish_reason: finish_reason[i].take().map(FinishReason::from_name),
                done_marker: done_marker[i],
                content_events: content_events[i],
                completion_tokens: completion_tokens[i],
                prompt_tokens: prompt_tokens[i],
                body_bytes: body_bytes[i].cast_unsigned(),
                coalesced_reads: coalesced_reads[i],
                gap_max_ns: gap_max_ns[i],
                connection_reused: connection_reused[i],
                replica: replica[i].take(),
                first_token_kernel_ns: first_token_kernel_ns[i],
                ended_kernel_ns: ended_kernel_ns[i],
                read_lag_max_ns: read_lag_max_ns[i],
                conversation: conversation[i],
                turn: turn[i],
            })
        })
        .collect()
}

fn named<T>(
    column: &str,
    name: Option<&str>,
    parse: fn(&str) -> Option<T>,
) -> ParquetResult<Option<T>> {
    name.map(|name| {
        parse(name).ok_or_else(|| {
            ParquetError::General(format!("`{}` is no {column}", name.escape_debug()))
        })
    })
    .transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::record;
    use proptest::prelude::*;

    #[test]
    fn rows_round_trip_over_several_row_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.parquet");
        let records: Vec<_> = (0..ROW_GROUP_ROWS as u64 + 100).map(record).collect();
        let mut shuffled = records.clone();
        shuffled.reverse();
        write_requests_parquet(&path, &shuffled).unwrap();
        assert!(read_requests_parquet(&path).unwrap() == records);
        write_requests_parquet(&path, &[]).unwrap();
        assert_eq!(read_requests_parquet(&path).unwrap(), vec![]);
    }

    #[test]
    fn a_request_that_is_there_twice_is_damage() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.parquet");
        write_requests_parquet(&path, &[record(4), record(4)]).unwrap();
        let error = read_requests_parquet(&path).unwrap_err().to_string();
        assert!(error.contains("request 4 is there twice"), "{error}");
    }

    #[test]
    fn a_file_of_another_kind_is_refused_by_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.parquet");
        std::fs::write(&path, b"PAR1 this is not a table PAR1").unwrap();
        let error = read_requests_parquet(&path).unwrap_err().to_string();
        assert!(error.contains("requests.parquet"), "{error}");
        crate::write_metrics_parquet(&path, &crate::MetricTable::default()).unwrap();
        let error = read_requests_parquet(&path).unwrap_err().to_string();
        assert!(
            error.contains("another version of this table") && error.contains("that wrote it"),
            "{error}"
        );
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]
        #[test]
        fn damaged_bytes_never_panic(at in 0usize..100_000, value: u8) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("requests.parquet");
            write_requests_parquet(&path, &(0..40).map(record).collect::<Vec<_>>()).unwrap();
            let mut bytes = std::fs::read(&path).unwrap();
            let at = at % bytes.len();
            bytes[at] = value;
            std::fs::write(&path, &bytes).unwrap();
            let _ = read_requests_parquet(&path);
        }
    }
}
