//! A folder that one command alone fills.

use std::cell::Cell;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};

use blackstart_record::{PART_SUFFIX, RunFiles};

use super::{MANIFEST_FILE, SPEC_FILE, SUMMARY_FILE};
use crate::exit::{Exit, Failure};

/// A claimed folder. What is in it goes away again unless it is [kept](Self::keep), so that the same
/// command can be tried once more.
pub(in crate::commands) struct Claim {
    path: PathBuf,
    /// Whether the folder was made too.
    made: bool,
    kept: Cell<bool>,
}

impl Claim {
    /// Makes a folder for results, or takes an empty one. Of two commands at the same instant one
    /// alone gets it.
    ///
    /// # Errors
    /// When there is something in it, or it cannot be written.
    pub(in crate::commands) fn take(path: &Path) -> Result<Self, Failure> {
        let wrong = |what: String| {
            Failure::message(
                Exit::Configuration,
                format!("--out {}: {what}", path.display()),
            )
        };
        let taken = || {
            wrong("it holds something already".to_owned())
                .help("choose a new folder; results are never written over")
        };
        let made = !path.exists();
        fs::create_dir_all(path).map_err(|e| wrong(e.to_string()))?;
        let is_empty = || fs::read_dir(path).map(|mut entries| entries.next().is_none());
        if !is_empty().map_err(|e| wrong(e.to_string()))? {
            return Err(taken());
        }
        // Both may have found it empty; the file can be made only once.
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(path.join(SPEC_FILE))
            .map_err(|e| match e.kind() {
                std::io::ErrorKind::AlreadyExists => taken(),
                _ => wrong(e.to_string()),
            })?;
        Ok(Self {
            path: path.to_owned(),
            made,
            kept: Cell::new(false),
        })
    }

    /// The folder.
    pub(in crate::commands) fn path(&self) -> &Path {
        &self.path
    }

    /// Leaves the folder as it then is.
    pub(in crate::commands) fn keep(&self) {
        self.kept.set(true);
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if self.kept.get() {
            return;
        }
        let files = RunFiles::new(&self.path);
        let at = |name: &str| self.path.join(name);
        // By name: what someone else put there meanwhile is not ours to remove.
        for file in [
            files.journal(),
            files.requests(),
            files.gaps(),
            files.every_gap(),
            files.events(),
            at(SUMMARY_FILE),
            at(MANIFEST_FILE),
            at("canary.log"),
            at(SPEC_FILE),
        ] {
            let mut part = file.clone().into_os_string();
            part.push(PART_SUFFIX);
            // What cannot be removed is named by the next try.
            let _ = fs::remove_file(part);
            let _ = fs::remove_file(file);
        }
        if self.made {
            let _ = fs::remove_dir(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_claimed_once_and_given_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let first = Claim::take(&path).unwrap();
        assert_eq!(Claim::take(&path).err().unwrap().exit, Exit::Configuration);
        drop(first);
        assert!(!path.exists());
        Claim::take(&path).unwrap().keep();
        assert!(Claim::take(&path).is_err());
    }

    #[test]
    fn of_many_at_once_one_gets_the_folder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("out");
        let got: usize = std::thread::scope(|scope| {
            let take = || {
                Claim::take(&path).map_or(0, |claim| {
                    claim.keep();
                    1
                })
            };
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(take)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(got, 1);
    }
}
