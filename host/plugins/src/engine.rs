//! The WebAssembly engine that all plugins of a process share: its settings, its
//! clock for deadlines, and the compiled components.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use wasmtime::component::Component;

use crate::artifact::Artifact;
use crate::cache::{self, Cache, Key};
use crate::error::{PluginError, Refusal};
use crate::instance::{LogLine, LogSink};
use crate::limits::{Limits, MAX_WASM_STACK_BYTES};
use crate::ticker::Ticker;

/// Most compiled components kept in memory; the one used longest ago goes first.
const MAX_COMPILED: usize = 128;

/// The shared engine. Cheap to clone; the deadline thread ends with the last clone.
#[derive(Clone)]
pub struct Engine {
    inner: Arc<Inner>,
}

struct Inner {
    ticker: Ticker,
    wasm: wasmtime::Engine,
    limits: Limits,
    cache: Option<Cache>,
    log: LogSink,
    /// The first time that this machine had no memory for a plugin.
    shortage: OnceLock<String>,
    /// Ordered by last use, the newest last.
    compiled: Mutex<Vec<([u8; 32], Component)>>,
}

/// How to make an [`Engine`].
pub struct EngineBuilder {
    limits: Limits,
    cache: Option<PathBuf>,
    log: LogSink,
}

impl EngineBuilder {
    /// Other bounds than the defaults.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Keeps compiled components in this folder. A folder that cannot be trusted is
    /// not used, which is logged and costs only time.
    pub fn cache(mut self, folder: impl Into<PathBuf>) -> Self {
        self.cache = Some(folder.into());
        self
    }

    /// Where log lines of plugins go; by default to `tracing`, target `plugin`.
    pub fn log(mut self, sink: impl Fn(&LogLine<'_>) + Send + Sync + 'static) -> Self {
        self.log = Arc::new(sink);
        self
    }

    /// Makes the engine.
    ///
    /// # Errors
    /// [`PluginError::Engine`] when the machine allows no native code or no thread.
    pub fn build(self) -> Result<Engine, PluginError> {
        let wasm =
            wasmtime::Engine::new(&config()).map_err(|e| PluginError::Engine(format!("{e:#}")))?;
        let ticking = wasm.clone();
        let ticker = Ticker::start(move || ticking.increment_epoch())
            .map_err(|e| PluginError::Engine(e.to_string()))?;
        let cache = self.cache.and_then(|folder| match Cache::open(&folder) {
            Ok(cache) => Some(cache),
            Err(why) => {
                tracing::warn!(why, "compiled plugins are not cached");
                None
            }
        });
        Ok(Engine {
            inner: Arc::new(Inner {
                ticker,
                wasm,
                limits: self.limits,
                cache,
                log: self.log,
                shortage: OnceLock::new(),
                compiled: Mutex::default(),
            }),
        })
    }
}

/// Only what guests built for `wasm32-unknown-unknown` use is switched on.
fn config() -> wasmtime::Config {
    let mut config = wasmtime::Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(MAX_WASM_STACK_BYTES)
        .wasm_component_model(true)
        .wasm_memory64(false)
        .wasm_multi_memory(false)
        .wasm_relaxed_simd(false)
        // Adds a third of a microsecond to each call, for guests that are not ours.
        .concurrency_support(false)
        // An error names the call; guest frames would only name stripped symbols.
        .wasm_backtrace_max_frames(None);
    config
}

impl Engine {
    /// Starts to make an engine: default limits, no cache, logs to `tracing`.
    pub fn builder() -> EngineBuilder {
        EngineBuilder {
            limits: Limits::default(),
            cache: None,
            log: Arc::new(crate::instance::log_to_tracing),
        }
    }

    /// The bounds instances are held to.
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// Where compiled components are kept; `None` when they are not.
    pub fn cache_folder(&self) -> Option<&Path> {
        self.inner.cache.as_ref().map(Cache::path)
    }

    /// What this machine lacked, if any plugin of this engine could not be run for that reason.
    /// Judgements that were made without it are no judgements: callers ask before they keep any.
    pub fn shortage(&self) -> Option<&str> {
        self.inner.shortage.get().map(String::as_str)
    }

    /// Remembers that a plugin could not be run for the machine's sake.
    pub(crate) fn note_shortage(&self, what: &str) {
        let _ = self.inner.shortage.set(what.to_owned());
    }

    pub(crate) fn wasm(&self) -> &wasmtime::Engine {
        &self.inner.wasm
    }

    pub(crate) fn ticker(&self) -> &Ticker {
        &self.inner.ticker
    }

    pub(crate) fn log(&self) -> &LogSink {
        &self.inner.log
    }

    /// Compiles a component, or finds it compiled already, in memory or on disk.
    ///
    /// # Errors
    /// [`Refusal::Compile`] when the component is not valid WebAssembly.
    pub fn prepare(&self, artifact: &Artifact) -> Result<(), PluginError> {
        self.compiled(artifact).map(drop)
    }

    pub(crate) fn compiled(&self, artifact: &Artifact) -> Result<Component, PluginError> {
        if let Some(component) = self.remembered(artifact.sha256()) {
            return Ok(component);
        }
        let component = self.load_or_compile(artifact)?;
        let mut compiled = self.memory();
        if compiled.len() >= MAX_COMPILED {
            compiled.remove(0);
        }
        compiled.push((*artifact.sha256(), component.clone()));
        Ok(component)
    }

    fn memory(&self) -> std::sync::MutexGuard<'_, Vec<([u8; 32], Component)>> {
        self.inner
            .compiled
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    fn remembered(&self, sha256: &[u8; 32]) -> Option<Component> {
        let mut compiled = self.memory();
        let at = compiled.iter().position(|(digest, _)| digest == sha256)?;
        let found = compiled.remove(at);
        let component = found.1.clone();
        compiled.push(found);
        Some(component)
    }

    fn load_or_compile(&self, artifact: &Artifact) -> Result<Component, PluginError> {
        let wasm = &self.inner.wasm;
        let kept = self.inner.cache.as_ref().map(|cache| {
            let key = Key::new(artifact.sha256(), wasm.precompile_compatibility_hash());
            (cache, key)
        });
        if let Some((cache, key)) = &kept
            && let Some(file) = cache.load(key)
        {
            // SAFETY: `Component::deserialize` needs bytes that the engine itself
            // produced. `Cache` gives back only bytes from a file that this user
            // wrote in a folder closed to all others, whose digest is intact; they
            // were made by `Component::serialize` below for this component and for
            // an engine with this compatibility hash (both are in the name), which
            // wasmtime checks once more.
            match unsafe { Component::deserialize(wasm, cache::code(&file)) } {
                Ok(component) => return Ok(component),
                Err(e) => tracing::debug!(error = %format!("{e:#}"), "cached code not accepted"),
            }
        }
        let component = Component::new(wasm, artifact.bytes()).map_err(|e| {
            if let Some(what) = crate::shortage::of(&e) {
                let text = format!("{} could not be compiled: {what}", artifact.label());
                self.note_shortage(&text);
                return PluginError::Engine(text);
            }
            PluginError::refused(
                artifact.origin(),
                Refusal::Compile {
                    plugin: artifact.label().clone(),
                    detail: crate::text::shown(&format!("{e:#}"), crate::limits::MAX_TEXT_BYTES),
                },
            )
        })?;
        if let Some((cache, key)) = &kept {
            match component.serialize() {
                Ok(code) => cache.store(key, &code),
                Err(e) => tracing::debug!(error = %format!("{e:#}"), "compiled code not kept"),
            }
        }
        Ok(component)
    }
}

impl fmt::Debug for Engine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Engine")
            .field("limits", &self.inner.limits)
            .field("cache", &self.cache_folder())
            .finish_non_exhaustive()
    }
}
