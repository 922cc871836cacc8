//! `metrics.parquet`: scraped metrics in long form, one row per sample.

use std::collections::HashMap;
use std::path::Path;

use parquet::errors::Result as ParquetResult;
use parquet::file::writer::SerializedFileWriter;

use super::atomic::AtomicFile;
use super::columns::{ColumnsIn, ColumnsOut, ROW_GROUP_ROWS, properties};
use super::requests_parquet::{cannot_write, read_table, schema};
use crate::{MetricSample, MetricTable, RecordError};

/// Most samples that one file may hold.
pub const MAX_METRIC_ROWS: usize = 50_000_000;

const SCHEMA: &str = "
message metric {
  required int64 at_ns;
  required binary replica (STRING);
  required binary series (STRING);
  required double value;
}
";

/// Writes a table; rows stay in the order of its samples. A series without samples leaves no trace.
///
/// # Errors
/// When the disk refuses, or a sample names a series that the table does not have.
pub fn write_metrics_parquet(path: &Path, table: &MetricTable) -> Result<(), RecordError> {
    let known = table.series.len();
    if let Some(stray) = table.samples.iter().find(|s| s.series as usize >= known) {
        return Err(RecordError::damaged(
            path,
            format!("a sample of series {}, of {known}", stray.series),
        ));
    }
    let write = |file: &mut SerializedFileWriter<AtomicFile>| -> ParquetResult<()> {
        for rows in table.samples.chunks(ROW_GROUP_ROWS) {
            let mut group = file.next_row_group()?;
            let mut out = ColumnsOut(&mut group);
            let series = |s: &MetricSample| &table.series[s.series as usize];
            out.i64(rows.iter().map(|s| s.at_ns))?;
            out.text(rows.iter().map(|s| series(s).0.as_str()))?;
            out.text(rows.iter().map(|s| series(s).1.as_str()))?;
            out.f64(rows.iter().map(|s| s.value))?;
            group.close()?;
        }
        Ok(())
    };
    let file = AtomicFile::create(path)?;
    let mut file = SerializedFileWriter::new(file, schema(SCHEMA), properties())
        .map_err(|e| cannot_write(path, &e))?;
    write(&mut file).map_err(|e| cannot_write(path, &e))?;
    file.into_inner()
        .map_err(|e| cannot_write(path, &e))?
        .commit()
}

/// Reads a table. Series are numbered in the order in which they first appear.
///
/// # Errors
/// When it cannot be read, has other columns, exceeds a bound or is damaged.
pub fn read_metrics_parquet(path: &Path) -> Result<MetricTable, RecordError> {
    let rows = read_table(path, SCHEMA, MAX_METRIC_ROWS, read_group)?;
    let mut table = MetricTable::default();
    let mut numbers: HashMap<(String, String), u32> = HashMap::new();
    table.samples.reserve_exact(rows.len());
    for (at_ns, key, value) in rows {
        let series = match numbers.get(&key) {
            Some(number) => *number,
            None => {
                // At most one series per row, and rows are bounded far below `u32::MAX`.
                let number = table.series.len() as u32;
                table.series.push(key.clone());
                numbers.insert(key, number);
                number
            }
        };
        table.samples.push(MetricSample {
            at_ns,
            series,
            value,
        });
    }
    Ok(table)
}

type Row = (i64, (String, String), f64);

fn read_group(columns: &mut ColumnsIn<'_>) -> ParquetResult<Vec<Row>> {
    let at_ns = columns.i64()?;
    let replica = columns.text()?;
    let series = columns.text()?;
    let value = columns.f64()?;
    Ok(at_ns
        .into_iter()
        .zip(replica.into_iter().zip(series))
        .zip(value)
        .map(|((at_ns, key), value)| (at_ns, key, value))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.parquet");
        let series = |r: &str, s: &str| (r.to_owned(), s.to_owned());
        let mut table = MetricTable {
            series: vec![
                series("r0", "vllm:num_requests_waiting{engine=\"0\"}"),
                series("r1", "vllm:num_requests_waiting{engine=\"0\"}"),
            ],
            samples: Vec::new(),
        };
        for i in 0..ROW_GROUP_ROWS as i64 {
            for series in 0..2 {
                table.samples.push(MetricSample {
                    at_ns: i * 1_000_000_000,
                    series,
                    value: i as f64 / 3.0,
                });
            }
        }
        write_metrics_parquet(&path, &table).unwrap();
        assert!(read_metrics_parquet(&path).unwrap() == table);
    }

    #[test]
    fn a_stray_sample_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("metrics.parquet");
        let table = MetricTable {
            series: Vec::new(),
            samples: vec![MetricSample {
                at_ns: 0,
                series: 3,
                value: 0.0,
            }],
        };
        let error = write_metrics_parquet(&path, &table)
            .unwrap_err()
            .to_string();
        assert!(error.contains("series 3"), "{error}");
    }
}
