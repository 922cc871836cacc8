//! `gaps.hlog.zst`: inter-chunk gaps as a histogram log, compressed by zstd.
//!
//! Decompressed it is the text format (1.3) of the public HdrHistogram tools: one line per bucket,
//! `Tag=b<index>,<start s>,<length s>,<largest, µs>,<base64 of a compressed V2 histogram>`. Values are
//! microseconds; the start is the bucket's start in run time. Lines of the same tag add up.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hdrhistogram::Histogram;

use super::atomic::AtomicFile;
use super::histogram_codec;
use super::plain::open_regular;
use crate::{GAP_BUCKET_NS, GapHistograms, RecordError};

/// Most lines of a gap log, comments and empty ones included.
const MAX_LINES: usize = 2 * MAX_GAP_BUCKETS;
/// Most buckets that one file may hold (55 hours).
pub const MAX_GAP_BUCKETS: usize = 200_000;

/// Longest line of the log.
const MAX_LINE_BYTES: u64 = 2 << 20;
/// Most memory that the histograms of one file may take.
const MAX_TOTAL_BYTES: usize = 2 << 30;
/// Largest zstd window that is accepted, as a power of two.
const MAX_WINDOW_LOG: u32 = 25;
/// Compression level: the content is deflated text in base64, so that a higher one gains nothing.
const ZSTD_LEVEL: i32 = 3;

/// Writes a gap log bucket by bucket, in constant memory.
pub struct GapLogWriter {
    out: zstd::Encoder<'static, BufWriter<AtomicFile>>,
    packed: Vec<u8>,
    text: String,
}

impl GapLogWriter {
    /// Starts a log that will replace `path` when it is finished.
    ///
    /// # Errors
    /// When the directory is missing, not writable or full.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let file = BufWriter::new(AtomicFile::create(path)?);
        let mut out = zstd::Encoder::new(file, ZSTD_LEVEL)
            .map_err(|e| RecordError::io(path, "start its compression", e))?;
        out.write_all(
            b"#[Inter-chunk gaps in microseconds, one histogram per second of intended send time]\n\
              #[Histogram log format version 1.3]\n\
              #[BaseTime: 0.000 (seconds since the run epoch)]\n\
              \"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\"\n",
        )
        .map_err(|e| RecordError::io(path, "write it", e))?;
        Ok(Self {
            out,
            packed: Vec::new(),
            text: String::new(),
        })
    }

    /// Appends one bucket. Empty histograms are left out.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(&mut self, bucket: i64, histogram: &Histogram<u32>) -> Result<(), RecordError> {
        if histogram.is_empty() {
            return Ok(());
        }
        self.packed.clear();
        self.text.clear();
        let path = self.out.get_ref().get_ref().target().to_owned();
        histogram_codec::encode_compressed(histogram, &mut self.packed)
            .map_err(|e| RecordError::damaged(&path, format!("unwritable histogram: {e}")))?;
        BASE64.encode_string(&self.packed, &mut self.text);
        // The public tools know no time before the epoch; the tag holds the true bucket.
        let start_s = bucket.max(0) as f64 * GAP_BUCKET_NS as f64 / 1e9;
        let length_s = GAP_BUCKET_NS as f64 / 1e9;
        writeln!(
            self.out,
            "Tag=b{bucket},{start_s:.3},{length_s:.3},{:.1},{}",
            histogram.max() as f64,
            self.text
        )
        .map_err(|e| RecordError::io(&path, "write it", e))
    }

    /// Completes the file and gives it its name.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn finish(self) -> Result<(), RecordError> {
        let path = self.out.get_ref().get_ref().target().to_owned();
        self.out
            .finish()
            .and_then(|buffered| {
                buffered
                    .into_inner()
                    .map_err(std::io::IntoInnerError::into_error)
            })
            .map_err(|e| RecordError::io(&path, "write it", e))?
            .commit()
    }
}

/// Writes all buckets.
///
/// # Errors
/// When the directory is missing, not writable or full.
pub fn write_gaps(path: &Path, gaps: &GapHistograms) -> Result<(), RecordError> {
    let mut writer = GapLogWriter::create(path)?;
    for (bucket, histogram) in &gaps.buckets {
        writer.append(*bucket, histogram)?;
    }
    writer.finish()
}

/// Reads a gap log.
///
/// # Errors
/// When it cannot be read, exceeds a bound, or a line is not what it should be (with its number).
pub fn read_gaps(path: &Path) -> Result<GapHistograms, RecordError> {
    let file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
    let mut decoder =
        zstd::Decoder::new(file).map_err(|e| RecordError::io(path, "decompress it", e))?;
    decoder
        .window_log_max(MAX_WINDOW_LOG)
        .map_err(|e| RecordError::io(path, "decompress it", e))?;
    let mut lines = BufReader::new(decoder);
    let mut gaps = GapHistograms::default();
    let mut total_bytes = 0;
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut lines)
            .take(MAX_LINE_BYTES)
            .read_until(b'\n', &mut line)
            .map_err(|e| RecordError::damaged(path, format!("line {number}: {e}")))?;
        if read == 0 {
            break;
        }
        if line.pop() != Some(b'\n') {
            return Err(RecordError::damaged(
                path,
                format!("line {number} is cut short or longer than {MAX_LINE_BYTES} bytes"),
            ));
        }
        if number as usize > MAX_LINES {
            return Err(RecordError::damaged(
                path,
                format!("more than {MAX_LINES} lines"),
            ));
        }
        if line.is_empty() || line[0] == b'#' || line[0] == b'"' {
            continue;
        }
        let (bucket, histogram) = parse_line(&line)
            .map_err(|what| RecordError::damaged(path, format!("line {number}: {what}")))?;
        total_bytes += histogram.distinct_values() * size_of::<u32>();
        merge(&mut gaps.buckets, bucket, histogram);
        if gaps.buckets.len() > MAX_GAP_BUCKETS || total_bytes > MAX_TOTAL_BYTES {
            return Err(RecordError::damaged(
                path,
                format!("more than {MAX_GAP_BUCKETS} buckets or {MAX_TOTAL_BYTES} bytes of them"),
            ));
        }
    }
    Ok(gaps)
}

/// Adds a histogram to a bucket.
pub(crate) fn merge(
    buckets: &mut BTreeMap<i64, Histogram<u32>>,
    bucket: i64,
    histogram: Histogram<u32>,
) {
    match buckets.entry(bucket) {
        std::collections::btree_map::Entry::Vacant(slot) => {
            slot.insert(histogram);
        }
        std::collections::btree_map::Entry::Occupied(mut slot) => slot
            .get_mut()
            .add(&histogram)
            .expect("a histogram that grows takes every value of another one"),
    }
}

fn parse_line(line: &[u8]) -> Result<(i64, Histogram<u32>), String> {
    let line = std::str::from_utf8(line).map_err(|e| e.to_string())?;
    let mut fields = line.trim_end_matches('\r').split(',');
    let bucket = fields
        .next()
        .and_then(|tag| tag.strip_prefix("Tag=b"))
        .and_then(|index| index.parse().ok())
        .ok_or("no tag `b<bucket>`")?;
    // Start, length and largest value serve other tools; the tag and the histogram say it all.
    let packed = fields.nth(3).ok_or("no histogram")?;
    let packed = BASE64.decode(packed).map_err(|e| e.to_string())?;
    Ok((bucket, histogram_codec::decode_compressed(&packed)?))
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    fn sample() -> GapHistograms {
        let mut gaps = GapHistograms::default();
        for i in 0..500_i64 {
            gaps.record(i * 10_000_000, 10_000_000 + i * 1_000_000);
        }
        gaps
    }

    #[test]
    fn a_log_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gaps.hlog.zst");
        write_gaps(&path, &sample()).unwrap();
        let back = read_gaps(&path).unwrap();
        assert_eq!(back.buckets, sample().buckets);
        write_gaps(&path, &GapHistograms::default()).unwrap();
        assert!(read_gaps(&path).unwrap().buckets.is_empty());
    }

    #[test]
    fn the_public_library_reads_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gaps.hlog.zst");
        write_gaps(&path, &sample()).unwrap();
        let text = zstd::decode_all(File::open(&path).unwrap()).unwrap();
        let intervals: Vec<_> = IntervalLogIterator::new(&text)
            .map(Result::unwrap)
            .filter_map(|entry| match entry {
                LogEntry::Interval(i) => Some((
                    i.tag().map(|t| t.as_str().to_owned()),
                    i.start_timestamp().as_secs(),
                )),
                _ => None,
            })
            .collect();
        let expected: Vec<_> = (0..5).map(|b| (Some(format!("b{b}")), b)).collect();
        assert_eq!(intervals, expected);
    }

    #[test]
    fn damage_is_an_error_that_names_the_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gaps.hlog.zst");
        for bad in ["Tag=b1,0,1,1,AAAA\n", "0,1,1,AAAA\n", "Tag=b1,0,1,1,AAAA"] {
            std::fs::write(&path, zstd::encode_all(bad.as_bytes(), 1).unwrap()).unwrap();
            let error = read_gaps(&path).unwrap_err().to_string();
            assert!(error.contains("line 1"), "{error}");
        }
        std::fs::write(&path, b"not zstd at all").unwrap();
        assert!(read_gaps(&path).is_err());
    }
}
