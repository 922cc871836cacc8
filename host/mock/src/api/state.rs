//! What outlives a server: the number of starts and a factor for the next one.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

#[derive(Debug, Default, Serialize, Deserialize)]
struct Contents {
    starts: u64,
    #[serde(default)]
    next_factor: Option<f64>,
}

/// The state file of one server across its lives.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    /// Number of this start, from 1.
    pub start: u64,
    /// Factor left by the life before.
    pub factor: Option<f64>,
}

impl StateFile {
    /// Counts a start.
    ///
    /// # Errors
    /// The file cannot be read, is not ours, or cannot be written.
    pub fn begin(path: &Path) -> io::Result<Self> {
        let old: Contents = match std::fs::read(path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| {
                io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!(
                        "{} is not a state file of the mock ({e}); remove it or name another",
                        path.display()
                    ),
                )
            })?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => Contents::default(),
            Err(e) => return Err(e),
        };
        let state = StateFile {
            path: path.to_owned(),
            start: old.starts + 1,
            factor: old.next_factor,
        };
        state.store(None)?;
        Ok(state)
    }

    /// Leaves a factor for the next start.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn set_next_factor(&self, factor: Option<f64>) -> io::Result<()> {
        self.store(factor)
    }

    fn store(&self, next_factor: Option<f64>) -> io::Result<()> {
        let contents = Contents {
            starts: self.start,
            next_factor,
        };
        let mut temporary = self.path.clone().into_os_string();
        temporary.push(".new");
        std::fs::write(&temporary, serde_json::to_vec(&contents)?)?;
        std::fs::rename(&temporary, &self.path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_and_factors_used_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("state.json");
        let first = StateFile::begin(&path).unwrap();
        assert_eq!((first.start, first.factor), (1, None));
        first.set_next_factor(Some(4.0)).unwrap();
        let second = StateFile::begin(&path).unwrap();
        assert_eq!((second.start, second.factor), (2, Some(4.0)));
        assert_eq!(StateFile::begin(&path).unwrap().factor, None);
        std::fs::write(&path, "junk").unwrap();
        assert!(
            StateFile::begin(&path)
                .unwrap_err()
                .to_string()
                .contains("state file")
        );
    }
}
