//! A file that appears under its name only when it is whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::RecordError;

/// Suffix of a file that is being written.
pub const PART_SUFFIX: &str = ".part";

/// Written beside its final name, renamed on [`commit`](Self::commit), removed when dropped before.
pub(crate) struct AtomicFile {
    target: PathBuf,
    part: PathBuf,
    file: File,
    committed: bool,
}

impl AtomicFile {
    /// Starts a file that will replace `target`.
    ///
    /// # Errors
    /// When it cannot be made, or `target` is there and neither a file nor a link: a rename would put a
    /// file in the place of a device (`/dev/null`) or a pipe, for everyone on the host.
    pub(crate) fn create(target: &Path) -> Result<Self, RecordError> {
        if let Ok(there) = fs::symlink_metadata(target)
            && !there.is_file()
            && !there.is_symlink()
        {
            let e = io::Error::other("it is there and is no regular file");
            return Err(RecordError::io(target, "replace it", e));
        }
        let mut part = target.as_os_str().to_owned();
        part.push(PART_SUFFIX);
        let part = PathBuf::from(part);
        // A part that a killed writer left, or a link that somebody put there to be written through.
        if let Err(e) = fs::remove_file(&part)
            && e.kind() != io::ErrorKind::NotFound
        {
            return Err(RecordError::io(&part, "remove the one left there", e));
        }
        let file = File::create_new(&part).map_err(|e| RecordError::io(&part, "create it", e))?;
        Ok(Self {
            target: target.to_owned(),
            part,
            file,
            committed: false,
        })
    }

    /// The final name.
    pub(crate) fn target(&self) -> &Path {
        &self.target
    }

    /// Makes the file durable and gives it its name.
    pub(crate) fn commit(mut self) -> Result<(), RecordError> {
        self.file
            .sync_all()
            .map_err(|e| RecordError::io(&self.part, "write it to the disk", e))?;
        fs::rename(&self.part, &self.target)
            .map_err(|e| RecordError::io(&self.target, "rename it into place", e))?;
        self.committed = true;
        Ok(())
    }
}

/// Writes a file whole: it appears under its name only when it is complete. A symbolic link of that
/// name is replaced, never written through.
///
/// # Errors
/// When it cannot be written.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<(), RecordError> {
    let mut file = AtomicFile::create(path)?;
    file.write_all(bytes)
        .map_err(|e| RecordError::io(path, "write it", e))?;
    file.commit()
}

/// Replaces several files: all new contents are durable on the disk before the first file changes
/// its name, so that a full disk, or an error in making one of them, leaves every old file as it was.
///
/// # Errors
/// When a file cannot be written; then none was replaced. A rename that fails (a folder was taken
/// away meanwhile) may leave some replaced.
pub fn replace_files<'a>(
    files: impl IntoIterator<Item = (&'a Path, &'a [u8])>,
) -> Result<(), RecordError> {
    let mut parts = Vec::new();
    for (path, bytes) in files {
        let mut part = AtomicFile::create(path)?;
        part.write_all(bytes)
            .map_err(|e| RecordError::io(path, "write it", e))?;
        part.file
            .sync_all()
            .map_err(|e| RecordError::io(path, "write it to the disk", e))?;
        parts.push(part);
    }
    parts.into_iter().try_for_each(AtomicFile::commit)
}

impl Write for AtomicFile {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.file.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for AtomicFile {
    fn drop(&mut self) {
        if !self.committed {
            // Best effort: a stray part is never read.
            let _ = fs::remove_file(&self.part);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only root can replace a device; anyone can a socket.
    #[test]
    fn what_is_no_file_is_not_replaced_by_one() {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("socket");
        let _listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
        let refused = write_atomic(&socket, b"page").unwrap_err().to_string();
        assert!(refused.contains("no regular file"), "{refused}");
        assert!(!fs::symlink_metadata(&socket).unwrap().is_file());
        assert!(!dir.path().join("socket.part").exists());
    }

    #[test]
    fn several_files_are_replaced_together_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        fs::write(&a, "old").unwrap();
        replace_files([(a.as_path(), &b"new"[..]), (b.as_path(), b"new")]).unwrap();
        assert_eq!(fs::read(&a).unwrap(), b"new");
        // The second cannot be written: the first stays what it was, and no part is left behind.
        let lost = dir.path().join("no-such-folder/c");
        replace_files([(a.as_path(), &b"newer"[..]), (lost.as_path(), b"x")]).unwrap_err();
        assert_eq!(fs::read(&a).unwrap(), b"new");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 2);
    }
}
