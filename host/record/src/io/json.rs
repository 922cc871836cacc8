//! JSON documents and hashes.

use std::io::{BufWriter, Read, Write};
use std::path::Path;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};

use super::atomic::AtomicFile;
use super::plain::open_regular;
use crate::RecordError;

/// Largest JSON document that is read.
pub const MAX_JSON_BYTES: u64 = 256 << 20;

/// Block in which files are hashed.
const HASH_BLOCK_BYTES: usize = 64 << 10;

/// Writes a JSON document so that a reader sees the old file or the whole new one. Two-space
/// indentation and a final newline, since people read and diff these files.
///
/// # Errors
/// When the directory is missing, not writable or full.
pub fn write_json_atomic<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<(), RecordError> {
    let mut out = BufWriter::new(AtomicFile::create(path)?);
    serde_json::to_writer_pretty(&mut out, value)
        .map_err(std::io::Error::from)
        .and_then(|()| out.write_all(b"\n"))
        .map_err(|e| RecordError::io(path, "write it", e))?;
    out.into_inner()
        .map_err(|e| RecordError::io(path, "write it", e.into_error()))?
        .commit()
}

/// Reads a JSON document of at most [`MAX_JSON_BYTES`].
///
/// # Errors
/// When it cannot be read, is too large, or is not what is expected (with line and column).
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, RecordError> {
    let bytes = read_bounded(path, MAX_JSON_BYTES)?;
    serde_json::from_slice(&bytes).map_err(|e| RecordError::damaged(path, e.to_string()))
}

/// Reads a whole file of at most `limit` bytes.
///
/// # Errors
/// When it cannot be read, is no regular file, or is larger.
pub fn read_bounded(path: &Path, limit: u64) -> Result<Vec<u8>, RecordError> {
    let file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
    let mut bytes = Vec::new();
    file.take(limit + 1)
        .read_to_end(&mut bytes)
        .map_err(|e| RecordError::io(path, "read it", e))?;
    if bytes.len() as u64 > limit {
        return Err(RecordError::damaged(
            path,
            format!("larger than {limit} bytes"),
        ));
    }
    Ok(bytes)
}

/// SHA-256 of a file's bytes, in hexadecimal, and its size in bytes.
///
/// # Errors
/// When it cannot be read.
pub fn sha256_file(path: &Path) -> Result<(String, u64), RecordError> {
    let mut file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; HASH_BLOCK_BYTES];
    let mut bytes = 0;
    loop {
        let n = file
            .read(&mut block)
            .map_err(|e| RecordError::io(path, "read it", e))?;
        if n == 0 {
            return Ok((hex::encode(hash.finalize()), bytes));
        }
        hash.update(&block[..n]);
        bytes += n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_round_trips_and_leaves_no_part_behind() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        write_json_atomic(&path, &vec![1, 2]).unwrap();
        write_json_atomic(&path, &vec![3]).unwrap();
        assert_eq!(read_json::<Vec<i32>>(&path).unwrap(), vec![3]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn errors_name_the_file_and_the_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("x.json");
        let missing = read_json::<i32>(&path).unwrap_err().to_string();
        assert!(
            missing.contains("x.json") && missing.contains("check that"),
            "{missing}"
        );
        std::fs::write(&path, "[1,\n oops]").unwrap();
        let bad = read_json::<Vec<i32>>(&path).unwrap_err().to_string();
        assert!(bad.contains("line 2 column 2"), "{bad}");
    }

    #[test]
    fn hash_of_known_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        std::fs::write(&path, "abc").unwrap();
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_file(&path).unwrap(), (expected.to_owned(), 3));
    }
}
