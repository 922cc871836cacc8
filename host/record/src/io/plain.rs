//! Opening files that may be anything: only a regular file is read.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Without it, opening a pipe waits for its writer; on a regular file it does nothing. The value is
/// Linux's on every architecture that Rust's first tiers have; a library for one number would bring
/// system calls into crates that must have none.
const O_NONBLOCK: i32 = 0o4000;

/// Opens a regular file for reading. A pipe or a device would block, or never end; it is refused
/// without waiting for it.
///
/// # Errors
/// What the system says, or that the path names no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(O_NONBLOCK)
        .open(path)?;
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "not a regular file",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pipes_devices_and_folders_are_refused_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let pipe = dir.path().join("pipe");
        let status = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(status.unwrap().success());
        for path in [pipe.as_path(), dir.path(), Path::new("/dev/zero")] {
            let error = open_regular(path).unwrap_err();
            assert!(error.to_string().contains("not a regular file"), "{error}");
        }
        let plain = dir.path().join("plain");
        std::fs::write(&plain, "x").unwrap();
        open_regular(&plain).unwrap();
    }
}
