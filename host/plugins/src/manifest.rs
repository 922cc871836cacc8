//! Does a plugin's `describe` agree with the stamp it was admitted under?

use crate::artifact::Artifact;
use crate::error::{PluginError, Refusal};
use crate::text::shown;
use crate::types::PluginInfo;

/// Longest name or version shown in the refusal, in bytes.
const MAX_SHOWN: usize = 80;

/// Refuses a plugin that names itself otherwise than its stamp.
pub(crate) fn check(artifact: &Artifact, info: &PluginInfo) -> Result<(), PluginError> {
    let label = artifact.label();
    if info.name == label.name && info.version == label.version {
        return Ok(());
    }
    Err(artifact.refuse(Refusal::LyingManifest {
        plugin: label.clone(),
        described: format!(
            "{} {}",
            shown(&info.name, MAX_SHOWN),
            shown(&info.version, MAX_SHOWN)
        ),
    }))
}
