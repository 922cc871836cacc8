//! Plugins of a command: where they are found, what they are, and one engine for all of them.

use std::path::{Path, PathBuf};

use blackstart_plan::PluginIdentity;
use blackstart_plugins::{
    Artifact, Engine, GatePlugin, MatcherPlugin, PluginError, Registry, World, default_cache_folder,
};

use crate::exit::Failure;

/// Most lines and bytes of a log that matchers are shown to find whose it is.
const PROBE_LINES: usize = 400;
const PROBE_BYTES: usize = 64 << 10;

/// The engine and every plugin that can be named.
pub struct Plugins {
    /// The WebAssembly engine.
    pub engine: Engine,
    /// What was found.
    pub registry: Registry,
}

impl Plugins {
    /// The bundled plugins and those of the folders.
    ///
    /// # Errors
    /// When a folder cannot be read, or two plugins have one name.
    pub fn open(folders: &[PathBuf]) -> Result<Self, Failure> {
        let mut builder = Engine::builder();
        if let Some(folder) = default_cache_folder(|name| std::env::var_os(name).map(PathBuf::from))
        {
            builder = builder.cache(folder);
        }
        let engine = builder.build()?;
        let mut registry = Registry::with_bundled()?;
        for folder in folders {
            registry.add_folder(folder)?;
        }
        Ok(Self { engine, registry })
    }

    /// The plugin of this name, or the component at this path.
    ///
    /// # Errors
    /// When there is none, or it is of another world, or its digest is not the pinned one.
    pub fn find(
        &mut self,
        name: Option<&str>,
        path: Option<&Path>,
        pin: Option<&str>,
        world: World,
    ) -> Result<Artifact, PluginError> {
        if let Some(path) = path {
            let artifact = self.registry.add_file(path, pin)?;
            artifact.check_world(world)?;
            return Ok(artifact);
        }
        let artifact = self.registry.get(name.unwrap_or_default(), world)?.clone();
        if let Some(pin) = pin {
            artifact.check_pin(pin)?;
        }
        Ok(artifact)
    }

    /// Every gate that is bundled or found in a folder, with its id, ordered by id.
    ///
    /// # Errors
    /// When one cannot be instantiated.
    pub fn gates(&self) -> Result<Vec<(String, Artifact)>, PluginError> {
        let mut gates = Vec::new();
        for artifact in self.registry.of_world(World::ValidityGate) {
            let gate = GatePlugin::instantiate(&self.engine, artifact)?;
            gates.push((gate.describe().id.clone(), artifact.clone()));
        }
        gates.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(gates)
    }

    /// The matcher of this name, or the one most certain of the log's head, with the release that it
    /// read there. `None` = no matcher claims the log.
    ///
    /// # Errors
    /// When a matcher is missing, refused or stopped.
    pub fn matcher_for(
        &self,
        name: Option<&str>,
        head: &str,
    ) -> Result<Option<(MatcherPlugin, Option<String>)>, PluginError> {
        if let Some(name) = name {
            let artifact = self.registry.get(name, World::LogMatcher)?;
            let mut matcher = MatcherPlugin::instantiate(&self.engine, artifact)?;
            let probe = matcher.probe(head)?;
            return Ok(Some((matcher, probe.version)));
        }
        let mut best: Option<(u8, MatcherPlugin, Option<String>)> = None;
        for artifact in self.registry.of_world(World::LogMatcher) {
            let mut matcher = MatcherPlugin::instantiate(&self.engine, artifact)?;
            let probe = matcher.probe(head)?;
            if probe.confidence > 0 && best.as_ref().is_none_or(|(c, ..)| probe.confidence > *c) {
                best = Some((probe.confidence, matcher, probe.version));
            }
        }
        Ok(best.map(|(_, matcher, version)| (matcher, version)))
    }
}

/// The head of a log, as matchers are shown it: without wrapper stamps.
pub fn log_head(bytes: &[u8]) -> String {
    let bytes = &bytes[..bytes.len().min(PROBE_BYTES)];
    let text = String::from_utf8_lossy(bytes);
    let lines: Vec<&str> = text
        .split('\n')
        .take(PROBE_LINES)
        .map(|line| blackstart_logs::strip_wrapper(line).1)
        .collect();
    lines.join("\n")
}

/// What reports and manifests say of a plugin.
pub fn identity(artifact: &Artifact) -> PluginIdentity {
    PluginIdentity {
        version: artifact.label().version.clone(),
        api: artifact.api().to_string(),
        world: artifact.world().name().to_owned(),
        origin: origin(artifact).to_owned(),
        sha256: artifact.sha256_hex(),
        imports: artifact.imports().to_vec(),
    }
}

/// `bundled`, or the path.
pub fn origin(artifact: &Artifact) -> &str {
    if artifact.origin().starts_with("bundled:") {
        "bundled"
    } else {
        artifact.origin()
    }
}
