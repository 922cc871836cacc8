//! Hashing a results directory into its manifest, and checking it again.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use blackstart_plan::{GrantPlan, PluginIdentity};

use super::atomic::PART_SUFFIX;
use super::json::sha256_file;
use crate::{ArtifactEntry, MANIFEST_SCHEMA_VERSION, Manifest, RecordError};

/// Most files of a results directory.
pub const MAX_ARTIFACTS: usize = 100_000;
/// Deepest nesting of directories below a results directory.
const MAX_DEPTH: usize = 8;
/// The manifest does not list itself.
const MANIFEST_NAME: &str = "manifest.json";

/// What a manifest says besides its artifacts. Fields as in [`Manifest`].
#[derive(Debug, Clone, Default)]
pub struct ManifestHead {
    /// Version of the instrument.
    pub instrument_version: String,
    /// Campaign name.
    pub campaign: String,
    /// SHA-256 of the campaign file.
    pub config_sha256: String,
    /// Base seed and each run's seed.
    pub seeds: Vec<u64>,
    /// Plugins by name.
    pub plugins: BTreeMap<String, PluginIdentity>,
    /// Grants by plugin name.
    pub grants: BTreeMap<String, GrantPlan>,
    /// Host and kernel, for provenance.
    pub host: BTreeMap<String, String>,
    /// Whether the campaign ended early.
    pub partial: bool,
}

/// An artifact that is not as its manifest says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ArtifactMismatch {
    /// It is listed and not there.
    Missing(String),
    /// It is there and not listed.
    Unlisted(String),
    /// Its bytes are others.
    Changed {
        /// Path relative to the directory.
        path: String,
        /// As listed.
        expected_sha256: String,
        /// As found.
        found_sha256: String,
        /// Size as found; the listed one may be what is wrong.
        found_bytes: u64,
    },
}

impl ArtifactMismatch {
    /// The artifact's path, relative to the directory.
    pub fn path(&self) -> &str {
        match self {
            Self::Missing(path) | Self::Unlisted(path) | Self::Changed { path, .. } => path,
        }
    }
}

impl std::fmt::Display for ArtifactMismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let what = match self {
            Self::Missing(_) => "is missing",
            Self::Unlisted(_) => "was added",
            Self::Changed { .. } => "was changed",
        };
        write!(f, "{} {what}", self.path())
    }
}

impl Manifest {
    /// Hashes every file below `dir` except the manifest itself. Symbolic links are not followed
    /// and not listed: an artifact is a file of this directory.
    ///
    /// # Errors
    /// When a file cannot be read, or there are more than [`MAX_ARTIFACTS`].
    pub fn build(dir: &Path, head: ManifestHead) -> Result<Self, RecordError> {
        let mut artifacts = BTreeMap::new();
        for (name, path) in files_below(dir)? {
            let (sha256, bytes) = sha256_file(&path)?;
            artifacts.insert(name, ArtifactEntry { sha256, bytes });
        }
        Ok(Self {
            schema_version: MANIFEST_SCHEMA_VERSION,
            instrument_version: head.instrument_version,
            campaign: head.campaign,
            config_sha256: head.config_sha256,
            seeds: head.seeds,
            plugins: head.plugins,
            grants: head.grants,
            host: head.host,
            partial: head.partial,
            artifacts,
        })
    }

    /// What in `dir` is not as this manifest says; empty = all is.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn check(&self, dir: &Path) -> Result<Vec<ArtifactMismatch>, RecordError> {
        let mut found = files_below(dir)?;
        let mut mismatches = Vec::new();
        for (name, entry) in &self.artifacts {
            // Only files that the walk found are opened: a listed `../x` never is.
            let Some(path) = found.remove(name) else {
                mismatches.push(ArtifactMismatch::Missing(name.clone()));
                continue;
            };
            let (found_sha256, bytes) = sha256_file(&path)?;
            if found_sha256 != entry.sha256 || bytes != entry.bytes {
                mismatches.push(ArtifactMismatch::Changed {
                    path: name.clone(),
                    expected_sha256: entry.sha256.clone(),
                    found_sha256,
                    found_bytes: bytes,
                });
            }
        }
        mismatches.extend(found.into_keys().map(ArtifactMismatch::Unlisted));
        Ok(mismatches)
    }
}

/// Regular files below a directory, by path relative to it with `/` between the parts.
fn files_below(root: &Path) -> Result<BTreeMap<String, PathBuf>, RecordError> {
    let mut files = BTreeMap::new();
    let mut open = vec![(root.to_owned(), String::new(), 0)];
    while let Some((dir, prefix, depth)) = open.pop() {
        let read = |e| RecordError::io(&dir, "list it", e);
        for entry in fs::read_dir(&dir).map_err(read)? {
            let entry = entry.map_err(read)?;
            let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
            let kind = entry.file_type().map_err(read)?;
            if kind.is_dir() {
                if depth + 1 > MAX_DEPTH {
                    return Err(RecordError::damaged(
                        &entry.path(),
                        format!("nested deeper than {MAX_DEPTH} directories"),
                    ));
                }
                open.push((entry.path(), format!("{name}/"), depth + 1));
            } else if kind.is_file() && name != MANIFEST_NAME && !name.ends_with(PART_SUFFIX) {
                files.insert(name, entry.path());
            }
            if files.len() > MAX_ARTIFACTS || open.len() > MAX_ARTIFACTS {
                return Err(RecordError::damaged(
                    root,
                    format!("more than {MAX_ARTIFACTS} files"),
                ));
            }
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_found_and_named() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("run-1")).unwrap();
        for name in ["plan.json", "run-1/events.jsonl", "manifest.json"] {
            fs::write(dir.path().join(name), name).unwrap();
        }
        let manifest = Manifest::build(dir.path(), ManifestHead::default()).unwrap();
        let names: Vec<_> = manifest.artifacts.keys().cloned().collect();
        assert_eq!(names, ["plan.json", "run-1/events.jsonl"]);
        assert_eq!(manifest.check(dir.path()).unwrap(), []);

        fs::write(dir.path().join("plan.json"), "other").unwrap();
        fs::remove_file(dir.path().join("run-1/events.jsonl")).unwrap();
        fs::write(dir.path().join("stray"), "").unwrap();
        let mismatches = manifest.check(dir.path()).unwrap();
        assert!(matches!(&mismatches[..], [
            ArtifactMismatch::Changed { path, .. },
            ArtifactMismatch::Missing(missing),
            ArtifactMismatch::Unlisted(stray),
        ] if path == "plan.json" && missing == "run-1/events.jsonl" && stray == "stray"));
    }
}
