//! One error for every file of a results directory: which file, what is wrong, how to mend it.

use std::io;
use std::path::{Path, PathBuf};

/// Why a file of a results directory could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum RecordError {
    /// The operating system refused.
    #[error("{}: cannot {action}: {source}; {mend}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What was tried (`create it`, `read it`).
        action: &'static str,
        /// The system's reason.
        source: io::Error,
        /// How to mend it.
        mend: &'static str,
    },
    /// The file is not what its name says, or a bound is exceeded.
    #[error("{}: {what}; {mend}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
        /// How to mend it.
        mend: &'static str,
    },
    /// The journal is still being written, or sealed, by another process.
    #[error(
        "{}: the load is still running, or another command reads its records right now; stop it or wait",
        path.display()
    )]
    InUse {
        /// The journal.
        path: PathBuf,
    },
}

/// The usual remedy of a damaged artifact.
pub(crate) const RESTORE: &str =
    "restore the file from a copy, or repeat the run; `manifest.json` holds its hash";

impl RecordError {
    /// Wraps an I/O error with the remedy that its kind suggests.
    pub(crate) fn io(path: &Path, action: &'static str, source: io::Error) -> Self {
        let mend = match source.kind() {
            io::ErrorKind::NotFound => "check that the path names a results directory of a run",
            io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem => {
                "make it readable and writable for this user, or choose another directory with --out"
            }
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                "free space there, or choose another directory with --out"
            }
            io::ErrorKind::AlreadyExists => "choose a directory that does not hold a run yet",
            _ => "check the disk and the path",
        };
        Self::Io {
            path: path.to_owned(),
            action,
            source,
            mend,
        }
    }

    /// A damaged file with the usual remedy.
    pub(crate) fn damaged(path: &Path, what: impl Into<String>) -> Self {
        Self::Damaged {
            path: path.to_owned(),
            what: what.into(),
            mend: RESTORE,
        }
    }
}
