//! What fuzz targets share: files of a run as the instrument writes them, and edits of them. Bytes out
//! of nothing would hardly ever get past the first check of a format.

use std::path::{Path, PathBuf};

use blackstart_load::gaps::GapSink;
use blackstart_load::outcome::{BodyEnd, Expectation, Response};
use blackstart_record::{ErrorClass, Gap, GapHistograms, RequestRecord, RunFiles};

/// A file with some of its bytes changed. Each edit is a place (two bytes) and a value; of what is left
/// over, the first byte says how much is cut off.
pub fn edited(original: &[u8], edits: &[u8]) -> Vec<u8> {
    let mut bytes = original.to_vec();
    let edits = edits.chunks_exact(3);
    if let [cut, ..] = edits.remainder() {
        let left = bytes.len() * (256 - usize::from(*cut)) / 256;
        bytes.truncate(left);
    }
    for edit in edits {
        let at = usize::from(u16::from_le_bytes([edit[0], edit[1]]));
        if !bytes.is_empty() {
            let at = at % bytes.len();
            bytes[at] = edit[2];
        }
    }
    bytes
}

/// A folder in memory.
pub fn folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a folder in memory")
}

/// The bytes of a file that `write` makes.
pub fn made(file: fn(&RunFiles) -> PathBuf, write: impl FnOnce(&Path)) -> Vec<u8> {
    let dir = folder();
    let path = file(&RunFiles::new(dir.path()));
    write(&path);
    std::fs::read(path).expect("it was written")
}

/// A completed request, an errored one and a censored one.
pub fn records() -> Vec<RequestRecord> {
    let begun = |index: u64| {
        let mut response = Response::new(index, 1_000, Expectation::until(i64::MAX));
        response.dispatched(1_500);
        response.head(2_000, 200, Some("text/event-stream"), Some("a"));
        response
    };
    let mut completed = begun(0);
    let stream = b"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"},\
        \"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    completed.body(3_000, 1, stream, &mut GapSink::default());
    let mut errored = begun(1);
    let end = BodyEnd::Failed(ErrorClass::Reset, "reset by peer".to_owned());
    errored.end(4_000, end);
    [completed, errored, begun(2)]
        .map(Response::into_record)
        .into()
}

/// Gaps of several seconds.
pub fn gaps() -> GapHistograms {
    let mut gaps = GapHistograms::default();
    for gap_ns in [1_000, 10_000_000, 14_000_000_000] {
        gaps.record(gap_ns, gap_ns);
    }
    gaps
}

/// The gaps of one request.
pub fn every_gap() -> Vec<Gap> {
    (1..4)
        .map(|chunk| Gap {
            index: 0,
            chunk,
            choice: 0,
            at_ns: i64::from(chunk) * 1_000,
            gap_ns: 1_000,
        })
        .collect()
}
