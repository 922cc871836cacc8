//! `requests.journal`: what a run appends while it goes on.
//!
//! The file starts with eight bytes that name the format. Then frames follow: length (`u32`, little
//! endian), CRC-32 of the payload (`u32`, little endian), payload. A payload is one byte of kind and
//! its content: 0 = a [`RequestRecord`] in postcard, 1 = a bucket index (`i64`, little endian) and
//! an HdrHistogram V2 of gaps that *adds* to that bucket, 2 = a list of single [`Gap`]s in postcard, only
//! where every gap is kept. Whatever ends the writer, every frame that
//! reached the kernel stays readable: a frame that is cut short or does not match its checksum ends
//! the file for the reader, which says how many bytes it left unread.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use hdrhistogram::Histogram;

use super::histogram_codec;
use super::plain::open_regular;
use crate::{Gap, RecordError, RequestRecord};

/// Names the format and its version.
const MAGIC: &[u8; 8] = b"BSTJRNL4";

/// Largest payload of a frame.
pub const MAX_FRAME_BYTES: usize = 1 << 20;

/// Bytes held back before a write to the kernel, at most; [`RequestJournalWriter::flush`] writes
/// them at once.
const BUFFER_BYTES: usize = 64 << 10;

const KIND_REQUEST: u8 = 0;
const KIND_GAPS: u8 = 1;
const KIND_EVERY_GAP: u8 = 2;

/// Most gaps of one frame; at their largest they take 36 bytes each.
pub const MAX_FRAME_GAPS: usize = 16 << 10;

/// Takes the exclusive lock of a journal, which the kernel releases with the file's last descriptor,
/// however its process ends. A file system that knows no locks is no reason to record nothing
/// ([`unlocked_because`] says so).
fn hold(file: &File, path: &Path) -> Result<(), RecordError> {
    match lock(file) {
        Err(TryLockError::WouldBlock) => Err(RecordError::InUse {
            path: path.to_owned(),
        }),
        _ => Ok(()),
    }
}

fn lock(file: &File) -> Result<(), TryLockError> {
    match file.try_lock() {
        // Network file systems lock a file that is only read no further than shared, which meets a
        // writer's lock all the same.
        Err(TryLockError::Error(_)) => file.try_lock_shared(),
        locked => locked,
    }
}

/// Whether a journal is there that some process writes or seals now.
///
/// # Errors
/// When it is there and cannot be opened.
pub fn journal_in_use(path: &Path) -> Result<bool, RecordError> {
    match open_regular(path) {
        Ok(file) => Ok(hold(&file, path).is_err()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(RecordError::io(path, "open it", e)),
    }
}

/// Why a journal that is there cannot be locked, so that nothing keeps others away from it; `None`
/// where locks work.
pub fn unlocked_because(path: &Path) -> Option<String> {
    refusal(&open_regular(path).ok()?)
}

fn refusal(file: &File) -> Option<String> {
    match lock(file) {
        // Held by its writer, or free: the lock goes with the file.
        Ok(()) | Err(TryLockError::WouldBlock) => None,
        Err(TryLockError::Error(e)) => Some(e.to_string()),
    }
}

/// Appends to a journal, which it holds locked for its life. A frame is safe from a kill of this process once
/// [`flush`](Self::flush) returned; the load path flushes at least each second.
#[derive(Debug)]
pub struct RequestJournalWriter {
    path: PathBuf,
    out: BufWriter<File>,
    payload: Vec<u8>,
}

impl RequestJournalWriter {
    /// Starts a journal. A journal that is there already belongs to another run and is not touched.
    ///
    /// # Errors
    /// When the file exists or cannot be created.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path)
            .map_err(|e| RecordError::io(path, "create it", e))?;
        hold(&file, path)?;
        let mut writer = Self {
            path: path.to_owned(),
            out: BufWriter::with_capacity(BUFFER_BYTES, file),
            payload: Vec::new(),
        };
        writer.write_all(MAGIC)?;
        writer.flush()?;
        Ok(writer)
    }

    /// Appends one record.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append(&mut self, record: &RequestRecord) -> Result<(), RecordError> {
        self.append_as(KIND_REQUEST, record)
    }

    /// Appends single gaps. A journal to which this was ever called, if only without gaps, is sealed
    /// into a table of all of them too.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append_every_gap(&mut self, gaps: &[Gap]) -> Result<(), RecordError> {
        if gaps.is_empty() {
            return self.append_as(KIND_EVERY_GAP, gaps);
        }
        gaps.chunks(MAX_FRAME_GAPS)
            .try_for_each(|frame| self.append_as(KIND_EVERY_GAP, frame))
    }

    fn append_as(
        &mut self,
        kind: u8,
        content: &(impl serde::Serialize + ?Sized),
    ) -> Result<(), RecordError> {
        self.payload.clear();
        self.payload.push(kind);
        let buffer = std::mem::take(&mut self.payload);
        self.payload = postcard::to_extend(content, buffer)
            .map_err(|e| RecordError::damaged(&self.path, format!("unwritable record: {e}")))?;
        self.frame()
    }

    /// Appends gaps that add to those of a bucket.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn append_gaps(
        &mut self,
        bucket: i64,
        histogram: &Histogram<u32>,
    ) -> Result<(), RecordError> {
        self.payload.clear();
        self.payload.push(KIND_GAPS);
        self.payload.extend_from_slice(&bucket.to_le_bytes());
        histogram_codec::encode(histogram, &mut self.payload)
            .map_err(|e| RecordError::damaged(&self.path, format!("unwritable gaps: {e}")))?;
        self.frame()
    }

    /// Hands everything to the kernel.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn flush(&mut self) -> Result<(), RecordError> {
        self.out
            .flush()
            .map_err(|e| RecordError::io(&self.path, "append to it", e))
    }

    fn frame(&mut self) -> Result<(), RecordError> {
        let length = u32::try_from(self.payload.len()).unwrap_or(u32::MAX);
        if length as usize > MAX_FRAME_BYTES {
            return Err(RecordError::damaged(
                &self.path,
                format!("a frame of {length} bytes is over the bound"),
            ));
        }
        let checksum = crc32fast::hash(&self.payload);
        let payload = std::mem::take(&mut self.payload);
        self.write_all(&length.to_le_bytes())?;
        self.write_all(&checksum.to_le_bytes())?;
        self.write_all(&payload)?;
        self.payload = payload;
        Ok(())
    }

    fn write_all(&mut self, bytes: &[u8]) -> Result<(), RecordError> {
        self.out
            .write_all(bytes)
            .map_err(|e| RecordError::io(&self.path, "append to it", e))
    }
}

/// One frame.
#[derive(Debug, Clone, PartialEq)]
pub enum JournalEntry {
    /// A record.
    Request(Box<RequestRecord>),
    /// Gaps that add to those of a bucket.
    Gaps {
        /// Index of the bucket ([`crate::GAP_BUCKET_NS`]).
        bucket: i64,
        /// The gaps, in microseconds.
        histogram: Histogram<u32>,
    },
    /// Single gaps.
    EveryGap(Vec<Gap>),
}

/// Reads a journal, also one whose writer was killed.
#[derive(Debug)]
pub struct RequestJournalReader {
    path: PathBuf,
    file: BufReader<File>,
    total: u64,
    good: u64,
    ended: bool,
    /// Whether more is wrong than that the last frame is cut short.
    damaged: bool,
}

impl RequestJournalReader {
    /// Opens a journal.
    ///
    /// # Errors
    /// When it cannot be read or is not a journal. A file that ends inside its first eight bytes is
    /// an empty journal.
    pub fn open(path: &Path) -> Result<Self, RecordError> {
        let file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
        let total = file
            .metadata()
            .map_err(|e| RecordError::io(path, "read it", e))?
            .len();
        let mut reader = Self {
            path: path.to_owned(),
            file: BufReader::with_capacity(BUFFER_BYTES, file),
            total,
            good: 0,
            ended: false,
            damaged: false,
        };
        let mut magic = [0; MAGIC.len()];
        let n = reader.fill(&mut magic)?;
        if magic[..n] != MAGIC[..n] {
            // The last byte is the version of the format.
            if n == MAGIC.len() && magic[..n - 1] == MAGIC[..n - 1] && magic[n - 1].is_ascii_digit()
            {
                return Err(RecordError::Damaged {
                    path: path.to_owned(),
                    what: format!(
                        "a request journal of format {}; this version reads format {}",
                        char::from(magic[n - 1]),
                        char::from(MAGIC[n - 1])
                    ),
                    mend: "use the version of the instrument that wrote it: `plan.json` names it",
                });
            }
            return Err(RecordError::damaged(path, "not a request journal"));
        }
        reader.good = n as u64;
        reader.ended = n < MAGIC.len();
        Ok(reader)
    }

    /// The next frame, or `None` at the end or before a torn one.
    ///
    /// # Errors
    /// When the disk fails. Damage is no error: it ends the journal.
    pub fn next_entry(&mut self) -> Result<Option<JournalEntry>, RecordError> {
        if self.ended {
            return Ok(None);
        }
        let mut head = [0; 8];
        let n = self.fill(&mut head)?;
        let length = u32::from_le_bytes([head[0], head[1], head[2], head[3]]) as usize;
        let checksum = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        if n < head.len() || length == 0 || length > MAX_FRAME_BYTES {
            self.ended = true;
            self.damaged = n == head.len();
            return Ok(None);
        }
        let mut payload = vec![0; length];
        let complete = self.fill(&mut payload)? == length;
        let whole = complete && crc32fast::hash(&payload) == checksum;
        match whole.then(|| decode(&payload)).flatten() {
            Some(entry) => {
                self.good += (head.len() + length) as u64;
                Ok(Some(entry))
            }
            None => {
                self.ended = true;
                self.damaged = complete;
                Ok(None)
            }
        }
    }

    /// Bytes behind the last good frame, meaningful once [`next_entry`](Self::next_entry) returned
    /// `None`. 0 = the journal was whole.
    pub fn torn_bytes(&self) -> u64 {
        self.total.saturating_sub(self.good)
    }

    /// Whether what [`torn_bytes`](Self::torn_bytes) counts is more than a last frame that was cut
    /// short: something damaged the file, and whole frames may lie behind the damage.
    pub fn is_damaged(&self) -> bool {
        self.damaged
    }

    /// Keeps writers and other readers that hold it away for this reader's life.
    ///
    /// # Errors
    /// When it is being written, or held by another.
    pub fn hold(&self) -> Result<(), RecordError> {
        hold(self.file.get_ref(), &self.path)
    }

    fn fill(&mut self, buffer: &mut [u8]) -> Result<usize, RecordError> {
        let mut n = 0;
        while n < buffer.len() {
            match self.file.read(&mut buffer[n..]) {
                Ok(0) => break,
                Ok(got) => n += got,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                Err(e) => return Err(RecordError::io(&self.path, "read it", e)),
            }
        }
        Ok(n)
    }
}

fn decode(payload: &[u8]) -> Option<JournalEntry> {
    let (kind, content) = payload.split_first()?;
    match *kind {
        KIND_REQUEST => {
            let (record, rest) = postcard::take_from_bytes(content).ok()?;
            rest.is_empty()
                .then(|| JournalEntry::Request(Box::new(record)))
        }
        KIND_GAPS => {
            let (bucket, bytes) = content.split_first_chunk::<8>()?;
            Some(JournalEntry::Gaps {
                bucket: i64::from_le_bytes(*bucket),
                histogram: histogram_codec::decode(bytes).ok()?,
            })
        }
        KIND_EVERY_GAP => {
            let (gaps, rest) = postcard::take_from_bytes(content).ok()?;
            rest.is_empty().then_some(JournalEntry::EveryGap(gaps))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{gap, record};
    use proptest::prelude::*;
    use std::os::unix::fs::OpenOptionsExt;

    fn written(dir: &Path) -> PathBuf {
        let path = dir.join("requests.journal");
        let mut writer = RequestJournalWriter::create(&path).unwrap();
        for index in 0..20 {
            writer.append(&record(index)).unwrap();
        }
        let mut h = Histogram::new(3).unwrap();
        h.record(12_345).unwrap();
        writer.append_gaps(7, &h).unwrap();
        writer.append(&record(20)).unwrap();
        writer.append_every_gap(&[]).unwrap();
        let gaps: Vec<Gap> = (0..3).map(gap).collect();
        writer.append_every_gap(&gaps).unwrap();
        writer.flush().unwrap();
        path
    }

    fn read_all(path: &Path) -> (Vec<JournalEntry>, u64) {
        let mut reader = RequestJournalReader::open(path).unwrap();
        let mut entries = Vec::new();
        while let Some(entry) = reader.next_entry().unwrap() {
            entries.push(entry);
        }
        (entries, reader.torn_bytes())
    }

    #[test]
    fn every_frame_comes_back() {
        let dir = tempfile::tempdir().unwrap();
        let (entries, torn) = read_all(&written(dir.path()));
        assert_eq!((entries.len(), torn), (24, 0));
        assert_eq!(entries[3], JournalEntry::Request(Box::new(record(3))));
        let JournalEntry::Gaps { bucket, histogram } = &entries[20] else {
            panic!("{:?}", entries[20]);
        };
        assert_eq!((*bucket, histogram.len()), (7, 1));
        assert_eq!(entries[22], JournalEntry::EveryGap(Vec::new()));
        let gaps = (0..3).map(gap).collect();
        assert_eq!(entries[23], JournalEntry::EveryGap(gaps));
    }

    #[test]
    fn as_many_gaps_as_a_frame_may_hold_fit_into_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.journal");
        let mut writer = RequestJournalWriter::create(&path).unwrap();
        let largest = Gap {
            index: u64::MAX,
            chunk: u32::MAX,
            choice: u32::MAX,
            at_ns: i64::MIN,
            gap_ns: i64::MIN,
        };
        let gaps = vec![largest; MAX_FRAME_GAPS + 1];
        writer.append_every_gap(&gaps).unwrap();
        writer.flush().unwrap();
        let (entries, torn) = read_all(&path);
        let found: usize = entries
            .iter()
            .map(|e| match e {
                JournalEntry::EveryGap(gaps) => gaps.len(),
                other => panic!("{other:?}"),
            })
            .sum();
        assert_eq!((entries.len(), found, torn), (2, gaps.len(), 0));
    }

    #[test]
    fn a_journal_cut_anywhere_gives_every_whole_frame_before_the_cut() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let bytes = std::fs::read(&path).unwrap();
        let (whole, _) = read_all(&path);
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let (entries, torn) = read_all(&path);
            assert_eq!(entries[..], whole[..entries.len()]);
            assert!(torn <= cut as u64);
            assert!(entries.len() < whole.len());
        }
    }

    #[test]
    fn a_journal_of_another_format_says_which() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.journal");
        std::fs::write(&path, b"BSTJRNL3 and what followed then").unwrap();
        let error = RequestJournalReader::open(&path).unwrap_err().to_string();
        assert!(
            error.contains("format 3; this version reads format 4") && error.contains("plan.json"),
            "{error}"
        );
        std::fs::write(&path, b"something else").unwrap();
        let error = RequestJournalReader::open(&path).unwrap_err().to_string();
        assert!(error.contains("not a request journal"), "{error}");
    }

    #[test]
    fn a_second_journal_never_overwrites_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let error = RequestJournalWriter::create(&path).unwrap_err().to_string();
        assert!(error.contains("does not hold a run yet"), "{error}");
    }

    #[test]
    fn a_journal_is_in_use_as_long_as_its_writer_lives() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.journal");
        assert!(!journal_in_use(&path).unwrap());
        let mut writer = RequestJournalWriter::create(&path).unwrap();
        writer.append(&record(0)).unwrap();
        writer.flush().unwrap();
        assert!(journal_in_use(&path).unwrap());
        let error = crate::seal_journal(dir.path()).unwrap_err();
        assert!(matches!(error, RecordError::InUse { .. }), "{error}");
        assert!(path.exists());
        drop(writer);
        assert!(!journal_in_use(&path).unwrap());
        assert_eq!(crate::seal_journal(dir.path()).unwrap().requests, 1);
    }

    #[test]
    fn a_file_that_cannot_be_locked_says_why() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("requests.journal");
        assert_eq!(unlocked_because(&path), None);
        let mut writer = RequestJournalWriter::create(&path).unwrap();
        writer.append(&record(0)).unwrap();
        assert_eq!(unlocked_because(&path), None);
        assert!(journal_in_use(&path).unwrap());
        drop(writer);
        assert_eq!(unlocked_because(&path), None);
        // The kernel locks no descriptor that is only a path: the refusal of a file system that knows no
        // locks, without one.
        const O_PATH: i32 = 0o10_000_000;
        let bare = OpenOptions::new()
            .read(true)
            .custom_flags(O_PATH)
            .open(&path)
            .unwrap();
        assert!(refusal(&bare).is_some());
        hold(&bare, &path).unwrap();
    }

    #[test]
    fn damage_is_told_from_a_torn_end() {
        let dir = tempfile::tempdir().unwrap();
        let path = written(dir.path());
        let bytes = std::fs::read(&path).unwrap();
        let damaged = |bytes: &[u8]| {
            std::fs::write(&path, bytes).unwrap();
            let mut reader = RequestJournalReader::open(&path).unwrap();
            while reader.next_entry().unwrap().is_some() {}
            reader.is_damaged()
        };
        assert!(!damaged(&bytes));
        assert!(!damaged(&bytes[..bytes.len() - 5]));
        let mut flipped = bytes.clone();
        flipped[bytes.len() / 2] ^= 0x10;
        assert!(damaged(&flipped));
    }

    #[test]
    fn what_the_writer_did_not_write_is_sealed_with_the_rest() {
        let dir = tempfile::tempdir().unwrap();
        written(dir.path());
        let summary = crate::seal_journal_with(dir.path(), (21..25).map(record)).unwrap();
        assert_eq!((summary.requests, summary.added), (25, 4));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300), keep: bool) {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("requests.journal");
            let mut all = if keep { MAGIC.to_vec() } else { Vec::new() };
            all.extend_from_slice(&bytes);
            std::fs::write(&path, &all).unwrap();
            if let Ok(mut reader) = RequestJournalReader::open(&path) {
                while reader.next_entry().unwrap().is_some() {}
            }
        }

        #[test]
        fn a_damaged_payload_is_never_taken_for_a_record(at in 0usize..100_000, bit in 0u8..8) {
            let dir = tempfile::tempdir().unwrap();
            let path = written(dir.path());
            let (whole, _) = read_all(&path);
            let mut bytes = std::fs::read(&path).unwrap();
            let at = MAGIC.len() + at % (bytes.len() - MAGIC.len());
            bytes[at] ^= 1 << bit;
            std::fs::write(&path, &bytes).unwrap();
            let (entries, torn) = read_all(&path);
            prop_assert!(torn > 0);
            prop_assert_eq!(&entries[..], &whole[..entries.len()]);
        }
    }
}
