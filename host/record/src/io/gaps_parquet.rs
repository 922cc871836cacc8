//! `gaps.parquet`: every gap between content events, one row each, where that was asked for.
//!
//! Readable by pandas, DuckDB and any other Parquet reader. The gaps of a request ascend; those of
//! requests that were under way together are mixed.

use std::path::{Path, PathBuf};

use parquet::errors::Result as ParquetResult;
use parquet::file::writer::SerializedFileWriter;

use super::atomic::AtomicFile;
use super::columns::{ColumnsIn, ColumnsOut, MAX_ROW_GROUP_ROWS, properties};
use super::requests_parquet::{cannot_write, for_each_group, schema};
use crate::{Gap, RecordError};

/// The columns. Names and units are stable; see [`Gap`] for their meaning.
pub const GAPS_SCHEMA: &str = "
message gap {
  required int64 index (INTEGER(64, false));
  required int32 chunk (INTEGER(32, false));
  required int32 choice (INTEGER(32, false));
  required int64 at_ns;
  required int64 gap_ns;
}
";

/// Rows of a row group: as many as are read, since each group costs memory until the end of the file.
const GROUP_ROWS: usize = MAX_ROW_GROUP_ROWS as usize;

/// Writes the table row group by row group, in constant memory.
pub struct GapParquetWriter {
    file: SerializedFileWriter<AtomicFile>,
    rows: Vec<Gap>,
    path: PathBuf,
}

impl GapParquetWriter {
    /// Starts a table that will replace `path` when it is finished.
    ///
    /// # Errors
    /// When the directory is missing, not writable or full.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let file = AtomicFile::create(path)?;
        let file = SerializedFileWriter::new(file, schema(GAPS_SCHEMA), properties())
            .map_err(|e| cannot_write(path, &e))?;
        Ok(Self {
            file,
            rows: Vec::with_capacity(GROUP_ROWS),
            path: path.to_owned(),
        })
    }

    /// Adds rows.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn extend(&mut self, gaps: &[Gap]) -> Result<(), RecordError> {
        for gap in gaps {
            self.rows.push(*gap);
            if self.rows.len() == GROUP_ROWS {
                self.flush_group()?;
            }
        }
        Ok(())
    }

    fn flush_group(&mut self) -> Result<(), RecordError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let rows = &self.rows;
        let mut write = || -> ParquetResult<()> {
            let mut group = self.file.next_row_group()?;
            let mut out = ColumnsOut(&mut group);
            out.i64(rows.iter().map(|g| g.index.cast_signed()))?;
            out.u32(rows.iter().map(|g| g.chunk))?;
            out.u32(rows.iter().map(|g| g.choice))?;
            out.i64(rows.iter().map(|g| g.at_ns))?;
            out.i64(rows.iter().map(|g| g.gap_ns))?;
            group.close()?;
            Ok(())
        };
        write().map_err(|e| cannot_write(&self.path, &e))?;
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

/// Shows the rows of a table in the file's order, one row group at a time.
///
/// # Errors
/// When it cannot be read, has other columns or is damaged. Rows before the damage were shown.
pub fn for_each_gap(path: &Path, mut show: impl FnMut(Vec<Gap>)) -> Result<(), RecordError> {
    // Memory is that of one row group, however many rows there are.
    for_each_group(path, GAPS_SCHEMA, usize::MAX, read_group, |rows, _| {
        show(rows)
    })
}

fn read_group(columns: &mut ColumnsIn<'_>) -> ParquetResult<Vec<Gap>> {
    let index = columns.i64()?;
    let chunk = columns.u32()?;
    let choice = columns.u32()?;
    let at_ns = columns.i64()?;
    let gap_ns = columns.i64()?;
    Ok((0..index.len())
        .map(|i| Gap {
            index: index[i].cast_unsigned(),
            chunk: chunk[i],
            choice: choice[i],
            at_ns: at_ns[i],
            gap_ns: gap_ns[i],
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::gap;

    #[test]
    fn rows_round_trip_over_several_row_groups() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gaps.parquet");
        let gaps: Vec<Gap> = (0..GROUP_ROWS as u64 + 100).map(gap).collect();
        let mut writer = GapParquetWriter::create(&path).unwrap();
        for part in gaps.chunks(1000) {
            writer.extend(part).unwrap();
        }
        writer.finish().unwrap();
        let mut back = Vec::new();
        for_each_gap(&path, |rows| back.extend(rows)).unwrap();
        assert!(back == gaps);
    }

    #[test]
    fn a_table_of_another_kind_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gaps.parquet");
        crate::write_requests_parquet(&path, &[]).unwrap();
        let error = for_each_gap(&path, |_| ()).unwrap_err().to_string();
        assert!(error.contains("another version of this table"), "{error}");
    }
}
