//! The seal over a load's folder: its manifest.

use std::collections::BTreeMap;
use std::path::Path;

use blackstart_plan::LoadSpec;
use blackstart_record::{
    ArtifactMismatch, Manifest, ManifestHead, read_json, sha256_file, write_json_atomic,
};

use super::{MANIFEST_FILE, SPEC_FILE, SUMMARY_FILE};
use crate::checks::check_unaltered;
use crate::exit::Failure;

/// What stands for a campaign's name.
const LOAD: &str = "load";

/// What the manifest of a load says besides its files. What was asked for, and so its `config_sha256`,
/// is `load.json`.
///
/// # Errors
/// When that cannot be read.
pub(super) fn head(spec: &LoadSpec, dir: &Path, partial: bool) -> Result<ManifestHead, Failure> {
    let (config_sha256, _) = sha256_file(&dir.join(SPEC_FILE)).map_err(Failure::records)?;
    Ok(ManifestHead {
        instrument_version: spec.instrument_version.clone(),
        campaign: LOAD.to_owned(),
        config_sha256,
        seeds: vec![spec.seed],
        plugins: BTreeMap::new(),
        grants: BTreeMap::new(),
        host: BTreeMap::new(),
        partial,
    })
}

/// Writes the manifest over everything that is in the folder now.
///
/// # Errors
/// When it cannot be written.
pub(super) fn seal(spec: &LoadSpec, dir: &Path, partial: bool) -> Result<(), Failure> {
    let manifest = Manifest::build(dir, head(spec, dir, partial)?).map_err(Failure::internal)?;
    write_json_atomic(&dir.join(MANIFEST_FILE), &manifest).map_err(Failure::internal)
}

/// The records of a sealed folder must be those that were sealed: a summary of others would give them a
/// fresh seal. A folder of an instrument that was killed has none.
///
/// # Errors
/// When they are others (exit 2).
pub(in crate::commands) fn check_sealed(dir: &Path) -> Result<(), Failure> {
    let path = dir.join(MANIFEST_FILE);
    if !path.exists() {
        return Ok(());
    }
    let manifest: Manifest = read_json(&path).map_err(Failure::records)?;
    // Somebody's own notes beside the records are none of them, and the summary is written anew.
    check_unaltered(dir, &manifest, "records", |mismatch| {
        !matches!(mismatch, ArtifactMismatch::Unlisted(_)) && mismatch.path() != SUMMARY_FILE
    })
}
