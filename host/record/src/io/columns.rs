//! Columns of a Parquet row group, written and read in the schema's order.

use parquet::basic::Compression;
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{
    BoolType, ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type,
};
use parquet::errors::{ParquetError, Result};
use parquet::file::properties::{WriterProperties, WriterPropertiesPtr};
use parquet::file::reader::RowGroupReader;
use parquet::file::writer::SerializedRowGroupWriter;
use std::io::Write;
use std::sync::Arc;

/// Rows of a row group; bounds the memory of writer and reader.
pub(crate) const ROW_GROUP_ROWS: usize = 16 << 10;
/// Most rows of a row group that is read (files of other writers may hold larger ones).
pub(crate) const MAX_ROW_GROUP_ROWS: i64 = 64 << 10;

/// How all tables are written: zstd, dictionaries where they pay.
pub(crate) fn properties() -> WriterPropertiesPtr {
    Arc::new(
        WriterProperties::builder()
            .set_compression(Compression::ZSTD(Default::default()))
            .set_created_by(concat!("blackstart ", env!("CARGO_PKG_VERSION")).to_owned())
            .build(),
    )
}

/// Writes the columns of one row group.
pub(crate) struct ColumnsOut<'a, 'b, W: Write + Send>(
    pub(crate) &'a mut SerializedRowGroupWriter<'b, W>,
);

impl<W: Write + Send> ColumnsOut<'_, '_, W> {
    fn write<T: DataType>(&mut self, values: &[T::T], levels: Option<&[i16]>) -> Result<()> {
        let mut column = self
            .0
            .next_column()?
            .ok_or_else(|| ParquetError::General("more columns than the schema has".to_owned()))?;
        column.typed::<T>().write_batch(values, levels, None)?;
        column.close()
    }

    fn write_optional<T: DataType>(
        &mut self,
        values: impl Iterator<Item = Option<T::T>>,
    ) -> Result<()> {
        let mut present = Vec::new();
        let levels: Vec<i16> = values
            .map(|value| {
                let level = i16::from(value.is_some());
                present.extend(value);
                level
            })
            .collect();
        self.write::<T>(&present, Some(&levels))
    }

    pub(crate) fn i64(&mut self, values: impl Iterator<Item = i64>) -> Result<()> {
        self.write::<Int64Type>(&values.collect::<Vec<_>>(), None)
    }

    pub(crate) fn optional_i64(&mut self, values: impl Iterator<Item = Option<i64>>) -> Result<()> {
        self.write_optional::<Int64Type>(values)
    }

    /// Unsigned columns hold the same 32 bits.
    pub(crate) fn u32(&mut self, values: impl Iterator<Item = u32>) -> Result<()> {
        let bits: Vec<i32> = values.map(u32::cast_signed).collect();
        self.write::<Int32Type>(&bits, None)
    }

    pub(crate) fn optional_u32(&mut self, values: impl Iterator<Item = Option<u32>>) -> Result<()> {
        self.write_optional::<Int32Type>(values.map(|v| v.map(u32::cast_signed)))
    }

    pub(crate) fn bool(&mut self, values: impl Iterator<Item = bool>) -> Result<()> {
        self.write::<BoolType>(&values.collect::<Vec<_>>(), None)
    }

    pub(crate) fn f64(&mut self, values: impl Iterator<Item = f64>) -> Result<()> {
        self.write::<DoubleType>(&values.collect::<Vec<_>>(), None)
    }

    pub(crate) fn text<'t>(&mut self, values: impl Iterator<Item = &'t str>) -> Result<()> {
        self.write::<ByteArrayType>(&values.map(ByteArray::from).collect::<Vec<_>>(), None)
    }

    pub(crate) fn optional_text<'t>(
        &mut self,
        values: impl Iterator<Item = Option<&'t str>>,
    ) -> Result<()> {
        self.write_optional::<ByteArrayType>(values.map(|v| v.map(ByteArray::from)))
    }
}

/// Reads the columns of one row group.
pub(crate) struct ColumnsIn<'a> {
    group: &'a dyn RowGroupReader,
    next: usize,
    rows: usize,
}

impl<'a> ColumnsIn<'a> {
    pub(crate) fn new(group: &'a dyn RowGroupReader) -> Result<Self> {
        let rows = group.metadata().num_rows();
        if !(0..=MAX_ROW_GROUP_ROWS).contains(&rows) {
            return Err(ParquetError::General(format!(
                "a row group of {rows} rows; at most {MAX_ROW_GROUP_ROWS} are read"
            )));
        }
        Ok(Self {
            group,
            next: 0,
            rows: rows as usize,
        })
    }

    fn read<T: DataType>(
        &mut self,
        open: impl FnOnce(ColumnReader) -> Option<ColumnReaderImpl<T>>,
        optional: bool,
    ) -> Result<(Vec<T::T>, Vec<i16>)> {
        let damaged = |what: &str| ParquetError::General(what.to_owned());
        let mut reader = open(self.group.get_column_reader(self.next)?)
            .ok_or_else(|| damaged("a column of another type than the schema says"))?;
        self.next += 1;
        let (mut values, mut levels) = (Vec::new(), Vec::new());
        let mut rows = 0;
        while rows < self.rows {
            let (records, _, _) = reader.read_records(
                self.rows - rows,
                optional.then_some(&mut levels),
                None,
                &mut values,
            )?;
            if records == 0 {
                return Err(damaged("a column shorter than its row group"));
            }
            rows += records;
        }
        let present = if optional {
            levels.iter().filter(|level| **level == 1).count()
        } else {
            self.rows
        };
        if values.len() != present || (optional && levels.len() != self.rows) {
            return Err(damaged("a column whose values and levels disagree"));
        }
        Ok((values, levels))
    }

    fn read_optional<T: DataType>(
        &mut self,
        open: impl FnOnce(ColumnReader) -> Option<ColumnReaderImpl<T>>,
    ) -> Result<Vec<Option<T::T>>> {
        let (values, levels) = self.read(open, true)?;
        let mut values = values.into_iter();
        Ok(levels
            .into_iter()
            .map(|level| if level == 1 { values.next() } else { None })
            .collect())
    }

    pub(crate) fn i64(&mut self) -> Result<Vec<i64>> {
        Ok(self.read::<Int64Type>(as_i64, false)?.0)
    }

    pub(crate) fn optional_i64(&mut self) -> Result<Vec<Option<i64>>> {
        self.read_optional::<Int64Type>(as_i64)
    }

    pub(crate) fn u32(&mut self) -> Result<Vec<u32>> {
        let bits = self.read::<Int32Type>(as_i32, false)?.0;
        Ok(bits.into_iter().map(i32::cast_unsigned).collect())
    }

    pub(crate) fn optional_u32(&mut self) -> Result<Vec<Option<u32>>> {
        let bits = self.read_optional::<Int32Type>(as_i32)?;
        Ok(bits
            .into_iter()
            .map(|v| v.map(i32::cast_unsigned))
            .collect())
    }

    pub(crate) fn bool(&mut self) -> Result<Vec<bool>> {
        let open = |reader| match reader {
            ColumnReader::BoolColumnReader(r) => Some(r),
            _ => None,
        };
        Ok(self.read::<BoolType>(open, false)?.0)
    }

    pub(crate) fn f64(&mut self) -> Result<Vec<f64>> {
        let open = |reader| match reader {
            ColumnReader::DoubleColumnReader(r) => Some(r),
            _ => None,
        };
        Ok(self.read::<DoubleType>(open, false)?.0)
    }

    pub(crate) fn text(&mut self) -> Result<Vec<String>> {
        let bytes = self.read::<ByteArrayType>(as_bytes, false)?.0;
        bytes.iter().map(utf8).collect()
    }

    pub(crate) fn optional_text(&mut self) -> Result<Vec<Option<String>>> {
        let bytes = self.read_optional::<ByteArrayType>(as_bytes)?;
        bytes
            .iter()
            .map(|v| v.as_ref().map(utf8).transpose())
            .collect()
    }
}

fn as_i64(reader: ColumnReader) -> Option<ColumnReaderImpl<Int64Type>> {
    match reader {
        ColumnReader::Int64ColumnReader(r) => Some(r),
        _ => None,
    }
}

fn as_i32(reader: ColumnReader) -> Option<ColumnReaderImpl<Int32Type>> {
    match reader {
        ColumnReader::Int32ColumnReader(r) => Some(r),
        _ => None,
    }
}

fn as_bytes(reader: ColumnReader) -> Option<ColumnReaderImpl<ByteArrayType>> {
    match reader {
        ColumnReader::ByteArrayColumnReader(r) => Some(r),
        _ => None,
    }
}

fn utf8(bytes: &ByteArray) -> Result<String> {
    bytes.as_utf8().map(str::to_owned)
}
