//! Where plugins are found, and by which name.

use std::borrow::Cow;
use std::fs;
use std::path::{Path, PathBuf};

use crate::api::World;
use crate::artifact::Artifact;
use crate::bundled::{Bundled, bundled};
use crate::error::PluginError;

/// Most entries of a plugin folder that are looked at.
pub const MAX_FOLDER_ENTRIES: usize = 4096;
/// Most plugins a registry holds.
pub const MAX_PLUGINS: usize = 1024;
/// Longest origin of a bundled plugin is its file name behind this.
const BUNDLED_PREFIX: &str = "bundled:";

/// All plugins a run can name.
#[derive(Debug, Default)]
pub struct Registry {
    /// Ordered by name.
    plugins: Vec<Artifact>,
    /// Files in plugin folders that are not usable, each with its error.
    broken: Vec<PluginError>,
    /// Canonical paths already read, so that naming a file twice is no conflict.
    seen: Vec<PathBuf>,
}

impl Registry {
    /// No plugins.
    pub fn empty() -> Registry {
        Registry::default()
    }

    /// The plugins inside the program.
    ///
    /// # Errors
    /// [`PluginError::Refused`] or [`PluginError::Duplicate`], which mean that the
    /// program was built with plugins that do not belong to it.
    pub fn with_bundled() -> Result<Registry, PluginError> {
        Registry::from_bundle(bundled())
    }

    fn from_bundle(bundle: &'static [Bundled]) -> Result<Registry, PluginError> {
        let mut registry = Registry::empty();
        for plugin in bundle {
            let origin = format!("{BUNDLED_PREFIX}{}", plugin.file_name);
            let bytes = Cow::Borrowed(plugin.bytes);
            registry.add(Artifact::digested(&origin, bytes, plugin.sha256)?)?;
        }
        Ok(registry)
    }

    /// Adds every `*.wasm` of a folder, not of folders inside it. A file that cannot
    /// be used is remembered, see [`Registry::broken`], and does not hide the others.
    ///
    /// # Errors
    /// [`PluginError::Folder`], [`PluginError::Duplicate`].
    pub fn add_folder(&mut self, folder: &Path) -> Result<(), PluginError> {
        let failed = |detail: String| PluginError::Folder {
            path: folder.to_owned(),
            detail,
        };
        let mut files = Vec::new();
        let entries = fs::read_dir(folder).map_err(|e| failed(e.to_string()))?;
        for (i, entry) in entries.enumerate() {
            if i >= MAX_FOLDER_ENTRIES {
                return Err(failed(format!("more than {MAX_FOLDER_ENTRIES} entries")));
            }
            let path = entry.map_err(|e| failed(e.to_string()))?.path();
            if path.extension().is_some_and(|e| e == "wasm") {
                files.push(path);
            }
        }
        files.sort();
        for path in files {
            if self.already(&path) {
                continue;
            }
            match Artifact::from_path(&path) {
                Ok(artifact) => self.add(artifact)?,
                Err(error) => self.broken.push(error),
            }
        }
        Ok(())
    }

    /// Adds one file, with a pinned SHA-256 in hexadecimal if there is one, and gives
    /// back the plugin.
    ///
    /// # Errors
    /// [`PluginError::Refused`], [`PluginError::Duplicate`].
    pub fn add_file(&mut self, path: &Path, pin: Option<&str>) -> Result<Artifact, PluginError> {
        let artifact = Artifact::from_path(path)?;
        if let Some(pin) = pin {
            artifact.check_pin(pin)?;
        }
        if self.already(path) {
            return Ok(artifact);
        }
        self.add(artifact.clone())?;
        Ok(artifact)
    }

    /// Adds a plugin that was read elsewhere.
    ///
    /// # Errors
    /// [`PluginError::Duplicate`].
    pub fn add(&mut self, artifact: Artifact) -> Result<(), PluginError> {
        let name = &artifact.label().name;
        match self
            .plugins
            .binary_search_by(|p| p.label().name.as_str().cmp(name))
        {
            Ok(at) => Err(PluginError::Duplicate {
                name: name.clone(),
                first: self.plugins[at].origin().to_owned(),
                second: artifact.origin().to_owned(),
            }),
            Err(_) if self.plugins.len() >= MAX_PLUGINS => Err(PluginError::Folder {
                path: PathBuf::from(artifact.origin()),
                detail: format!("there are more than {MAX_PLUGINS} plugins"),
            }),
            Err(at) => {
                self.plugins.insert(at, artifact);
                Ok(())
            }
        }
    }

    fn already(&mut self, path: &Path) -> bool {
        let Ok(path) = path.canonicalize() else {
            return false;
        };
        if self.seen.contains(&path) {
            return true;
        }
        self.seen.push(path);
        false
    }

    /// The plugin of this name and world.
    ///
    /// # Errors
    /// [`PluginError::NotFound`], which names what there is; [`PluginError::Refused`]
    /// for a plugin of another world.
    pub fn get(&self, name: &str, world: World) -> Result<&Artifact, PluginError> {
        let Some(artifact) = self.plugins.iter().find(|p| p.label().name == name) else {
            return Err(PluginError::NotFound {
                name: crate::text::shown(name, crate::limits::MAX_NAME_BYTES),
                known: self
                    .of_world(world)
                    .map(|p| p.label().name.clone())
                    .collect(),
                broken: self.broken.iter().map(ToString::to_string).collect(),
            });
        };
        artifact.check_world(world)?;
        Ok(artifact)
    }

    /// All plugins, ordered by name.
    pub fn list(&self) -> &[Artifact] {
        &self.plugins
    }

    /// All plugins of one world, ordered by name.
    pub fn of_world(&self, world: World) -> impl Iterator<Item = &Artifact> {
        self.plugins.iter().filter(move |p| p.world() == world)
    }

    /// Why files in plugin folders were not usable.
    pub fn broken(&self) -> &[PluginError] {
        &self.broken
    }
}
