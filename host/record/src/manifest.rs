//! `manifest.json`: the hash of every artifact of a campaign.

use std::collections::BTreeMap;

use blackstart_plan::PluginIdentity;
use serde::{Deserialize, Serialize};

/// Version of `manifest.json`.
pub const MANIFEST_SCHEMA_VERSION: u32 = 1;

/// What a results directory holds, and what made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// [`MANIFEST_SCHEMA_VERSION`].
    pub schema_version: u32,
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
    pub grants: BTreeMap<String, blackstart_plan::GrantPlan>,
    /// Host and kernel, for provenance.
    pub host: BTreeMap<String, String>,
    /// Whether the campaign ended early.
    pub partial: bool,
    /// Artifacts by path relative to the directory; `manifest.json` itself is not among them.
    pub artifacts: BTreeMap<String, ArtifactEntry>,
}

/// One artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ArtifactEntry {
    /// SHA-256 in hexadecimal.
    pub sha256: String,
    /// Size in bytes.
    pub bytes: u64,
}
