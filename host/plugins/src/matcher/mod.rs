//! Adapter of the matcher world: a plugin that finds boundaries in a server's log.

mod lines;
mod types;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};

use wasmtime::component::{Linker, ResourceAny};

pub use self::lines::{LineBatch, MAX_BATCH_BYTES, MAX_BATCH_LINES, MAX_LINE_BYTES, decode_line};
pub use self::types::{Boundary, BoundaryInfo, MatcherInfo, ProbeResult};
use crate::api::World;
use crate::artifact::Artifact;
use crate::bindings::matcher::exports::blackstart::plugin::matcher as wit;
use crate::bindings::matcher::{LogMatcher, LogMatcherPre};
use crate::bindings::types as shared;
use crate::engine::Engine;
use crate::error::{PluginError, Quarantine, Refusal, Stopped};
use crate::host::{
    fields, guest_error, link_common, list, list_of, measures, name, plugin_info, sentence,
};
use crate::instance::{HostState, Instance, link_error, resolve};
use crate::manifest;
use crate::text::cut;
use crate::types::{Call, Label};

/// Most bytes of a log's head that a matcher is shown at once.
pub const MAX_HEAD_BYTES: usize = 256 << 10;
/// Most sessions of one instance at a time.
pub const MAX_SESSIONS: usize = 256;
/// Most boundaries taken from one call.
pub const MAX_BOUNDARIES: usize = 16 << 10;

/// What the store of a matcher holds beyond the common part.
pub(crate) struct MatcherWorld;

/// A compiled matcher, linked, ready to be instantiated.
pub struct MatcherTemplate {
    engine: Engine,
    artifact: Artifact,
    pre: LogMatcherPre<HostState<MatcherWorld>>,
}

impl MatcherTemplate {
    /// Compiles and links the component.
    ///
    /// # Errors
    /// [`PluginError::Refused`].
    pub fn new(engine: &Engine, artifact: &Artifact) -> Result<MatcherTemplate, PluginError> {
        artifact.check_world(World::LogMatcher)?;
        let misfit = |detail: String| {
            artifact.refuse(Refusal::Link {
                plugin: artifact.label().clone(),
                detail,
            })
        };
        let component = engine.compiled(artifact)?;
        let mut linker = Linker::new(engine.wasm());
        link_common(&mut linker).map_err(|e| misfit(link_error(&e)))?;
        let pre = resolve(&linker, &component).map_err(misfit)?;
        let pre = LogMatcherPre::new(pre).map_err(|e| misfit(link_error(&e)))?;
        Ok(MatcherTemplate {
            engine: engine.clone(),
            artifact: artifact.clone(),
            pre,
        })
    }

    /// Creates an instance and asks it to describe itself.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`], or [`PluginError::Refused`] for a description
    /// that contradicts the stamp.
    pub fn instantiate(&self) -> Result<MatcherPlugin, PluginError> {
        let mut instance =
            Instance::new(&self.engine, self.artifact.label(), MatcherWorld, |store| {
                self.pre.instantiate(store)
            })?;
        let budget = self.engine.limits().call_budget;
        let raw = instance.call(Call::Describe, budget, |store, exports| {
            exports.blackstart_plugin_matcher().call_describe(store)
        })?;
        let info = instance.checked(Call::Describe, || matcher_info(raw))?;
        manifest::check(&self.artifact, &info.plugin)?;
        Ok(MatcherPlugin {
            instance,
            info,
            sessions: HashMap::new(),
        })
    }
}

/// Counts sessions of the process, so that no instance knows another's session.
static NEXT_SESSION: AtomicU64 = AtomicU64::new(0);

/// Names a session of one [`MatcherPlugin`]. Not to be copied: finishing a session
/// uses it up.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Session(u64);

/// A running matcher plugin. One instance serves any number of replicas, each by its
/// own session.
pub struct MatcherPlugin {
    instance: Instance<MatcherWorld, LogMatcher>,
    info: MatcherInfo,
    sessions: HashMap<u64, Open>,
}

/// A session the guest holds.
struct Open {
    resource: ResourceAny,
    /// Lines fed so far, which is the index of the next one.
    fed: u64,
}

impl MatcherPlugin {
    /// [`MatcherTemplate::new`] and [`MatcherTemplate::instantiate`] in one.
    ///
    /// # Errors
    /// As those two.
    pub fn instantiate(engine: &Engine, artifact: &Artifact) -> Result<MatcherPlugin, PluginError> {
        MatcherTemplate::new(engine, artifact)?.instantiate()
    }

    /// What the plugin says about itself.
    pub fn describe(&self) -> &MatcherInfo {
        &self.info
    }

    /// Name and version.
    pub fn label(&self) -> &Label {
        self.instance.label()
    }

    /// Why it was stopped, if it was.
    pub fn quarantined(&self) -> Option<&Quarantine> {
        self.instance.quarantined()
    }

    /// Shows the first lines of a log, joined by `\n`; what is over
    /// `MAX_HEAD_BYTES` is not shown.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`] when the plugin was stopped.
    pub fn probe(&mut self, head: &str) -> Result<ProbeResult, PluginError> {
        let head = cut(head, MAX_HEAD_BYTES);
        let budget = self.instance.engine().limits().call_budget;
        let result = self.instance.call(Call::Probe, budget, |store, exports| {
            exports.blackstart_plugin_matcher().call_probe(store, head)
        })?;
        self.instance.checked(Call::Probe, || {
            if result.confidence > 100 {
                return Err(Stopped::BadAnswer(format!(
                    "a confidence of {}, where 100 is certain",
                    result.confidence
                )));
            }
            Ok(ProbeResult {
                version: result.version.map(|v| name("the release", v)).transpose()?,
                confidence: result.confidence,
            })
        })
    }

    /// Begins a log of one replica. `config` is the plugin's own table as JSON, valid
    /// under its schema.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`] when the plugin was stopped, also for holding
    /// more than [`MAX_SESSIONS`].
    pub fn session(&mut self, replica: &str, config: &str) -> Result<Session, PluginError> {
        if self.sessions.len() >= MAX_SESSIONS {
            return Err(self.instance.quarantine(
                Call::SessionNew,
                Stopped::Count {
                    what: "sessions",
                    limit: MAX_SESSIONS,
                },
            ));
        }
        let budget = self.instance.engine().limits().call_budget;
        // The generated code wants a `&String` where wit/ has an alias of `string`.
        let replica = replica.to_owned();
        let resource = self
            .instance
            .call(Call::SessionNew, budget, |store, exports| {
                exports
                    .blackstart_plugin_matcher()
                    .session()
                    .call_constructor(store, &replica, config)
            })?;
        let session = NEXT_SESSION.fetch_add(1, Ordering::Relaxed);
        self.sessions.insert(session, Open { resource, fed: 0 });
        Ok(Session(session))
    }

    /// Feeds whole lines joined by `\n`, without a last one; an empty text is one
    /// empty line. A text over the bounds of a batch is fed in several.
    ///
    /// # Errors
    /// [`PluginError::Guest`] when the matcher declines the batch,
    /// [`PluginError::Quarantined`] when it was stopped.
    pub fn feed(&mut self, session: &Session, text: &str) -> Result<Vec<Boundary>, PluginError> {
        let lines = text.bytes().filter(|&b| b == b'\n').count() + 1;
        if text.len() <= MAX_LINE_BYTES && lines <= MAX_BATCH_LINES {
            return self.feed_one(session, text, lines as u64);
        }
        let mut found = Vec::new();
        let mut batch = LineBatch::new();
        for line in text.split('\n') {
            if !batch.push(line) {
                found.extend(self.feed_batch(session, &mut batch)?);
                let fits = batch.push(line);
                debug_assert!(fits, "an empty batch takes any line");
            }
        }
        found.extend(self.feed_batch(session, &mut batch)?);
        Ok(found)
    }

    /// Feeds a batch and empties it; an empty batch is not fed.
    ///
    /// # Errors
    /// As [`MatcherPlugin::feed`].
    pub fn feed_batch(
        &mut self,
        session: &Session,
        batch: &mut LineBatch,
    ) -> Result<Vec<Boundary>, PluginError> {
        if batch.is_empty() {
            return Ok(Vec::new());
        }
        let found = self.feed_one(session, batch.text(), batch.lines() as u64);
        batch.clear();
        found
    }

    fn feed_one(
        &mut self,
        session: &Session,
        text: &str,
        lines: u64,
    ) -> Result<Vec<Boundary>, PluginError> {
        let budget = self.instance.engine().limits().batch_budget;
        let Some(open) = self.sessions.get_mut(&session.0) else {
            return Err(self.foreign_session(Call::SessionFeed));
        };
        let resource = open.resource;
        open.fed += lines;
        let fed = open.fed;
        let answer = self
            .instance
            .call(Call::SessionFeed, budget, |store, exports| {
                exports
                    .blackstart_plugin_matcher()
                    .session()
                    .call_feed(store, resource, text)
            })?;
        self.take(Call::SessionFeed, answer, fed)
    }

    /// Ends a session: boundaries that only the end of the log decides.
    ///
    /// # Errors
    /// As [`MatcherPlugin::feed`]; the session is over in any case.
    pub fn finish(&mut self, session: Session) -> Result<Vec<Boundary>, PluginError> {
        let Some(open) = self.sessions.remove(&session.0) else {
            return Err(self.foreign_session(Call::SessionFinish));
        };
        let budget = self.instance.engine().limits().batch_budget;
        let answer = self
            .instance
            .call(Call::SessionFinish, budget, |store, exports| {
                exports
                    .blackstart_plugin_matcher()
                    .session()
                    .call_finish(store, open.resource)
            })?;
        let found = self.take(Call::SessionFinish, answer, open.fed);
        let dropped = self.drop_resource(open.resource);
        let found = found?;
        dropped?;
        Ok(found)
    }

    /// Gives a session up without finishing it.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`] when the plugin was stopped over it.
    pub fn abandon(&mut self, session: Session) -> Result<(), PluginError> {
        match self.sessions.remove(&session.0) {
            Some(open) => self.drop_resource(open.resource),
            None => Err(self.foreign_session(Call::SessionDrop)),
        }
    }

    /// Feeds a whole log in batches and finishes it. `each` gets every boundary with
    /// the absolute index of its line. Returns how many lines were fed.
    ///
    /// # Errors
    /// As [`MatcherPlugin::feed`].
    pub fn scan<L: AsRef<str>>(
        &mut self,
        replica: &str,
        config: &str,
        lines: impl IntoIterator<Item = L>,
        mut each: impl FnMut(Boundary),
    ) -> Result<u64, PluginError> {
        let session = self.session(replica, config)?;
        let fed = self.scan_lines(&session, lines, &mut each);
        match fed {
            Ok(fed) => {
                self.finish(session)?.into_iter().for_each(each);
                Ok(fed)
            }
            Err(error) => {
                // The first error is the one to report.
                let _ = self.abandon(session);
                Err(error)
            }
        }
    }

    fn scan_lines<L: AsRef<str>>(
        &mut self,
        session: &Session,
        lines: impl IntoIterator<Item = L>,
        each: &mut impl FnMut(Boundary),
    ) -> Result<u64, PluginError> {
        let mut batch = LineBatch::new();
        let mut fed = 0;
        for line in lines {
            if !batch.push(line.as_ref()) {
                self.feed_batch(session, &mut batch)?
                    .into_iter()
                    .for_each(&mut *each);
                let fits = batch.push(line.as_ref());
                debug_assert!(fits, "an empty batch takes any line");
            }
            fed += 1;
        }
        self.feed_batch(session, &mut batch)?
            .into_iter()
            .for_each(each);
        Ok(fed)
    }

    /// The guest's destructor runs here, so it has a deadline too.
    fn drop_resource(&mut self, resource: ResourceAny) -> Result<(), PluginError> {
        let budget = self.instance.engine().limits().batch_budget;
        self.instance.call(Call::SessionDrop, budget, |store, _| {
            resource.resource_drop(store)
        })
    }

    /// A session of another instance, or of one that is over: a mistake in the host,
    /// answered as if the instance were gone, since nothing can be said of the log.
    fn foreign_session(&mut self, call: Call) -> PluginError {
        self.instance.quarantine(
            call,
            Stopped::Misuse("the host used a session of another instance".into()),
        )
    }

    fn take(
        &mut self,
        call: Call,
        answer: Result<Vec<wit::Boundary>, shared::Error>,
        fed: u64,
    ) -> Result<Vec<Boundary>, PluginError> {
        match answer {
            Ok(found) => self.instance.checked(call, || {
                list_of("the list of boundaries", found, MAX_BOUNDARIES, |b| {
                    boundary(b, fed)
                })
            }),
            Err(error) => match self.instance.checked(call, || guest_error(error)) {
                Ok(error) => Err(PluginError::Guest {
                    plugin: self.instance.label().clone(),
                    call,
                    error,
                }),
                Err(quarantined) => Err(quarantined),
            },
        }
    }
}

fn boundary(b: wit::Boundary, fed: u64) -> Result<Boundary, Stopped> {
    if b.line >= fed {
        return Err(Stopped::BadAnswer(format!(
            "a boundary at line {} of a log of which {fed} lines were fed",
            b.line
        )));
    }
    Ok(Boundary {
        line: b.line,
        key: name("a boundary's key", b.key)?,
        process: b.process.map(|p| name("a process name", p)).transpose()?,
        stamp: b.stamp.map(|s| name("a line's stamp", s)).transpose()?,
        measures: measures(b.measures)?,
        fields: fields(b.fields)?,
    })
}

fn matcher_info(info: wit::MatcherInfo) -> Result<MatcherInfo, Stopped> {
    Ok(MatcherInfo {
        plugin: plugin_info(info.plugin)?,
        product: name("the product", info.product)?,
        versions: name("the versions", info.versions)?,
        boundaries: list("the list of boundary keys", info.boundaries, |b| {
            Ok(BoundaryInfo {
                key: name("a boundary's key", b.key)?,
                meaning: sentence("a boundary's meaning", b.meaning)?,
                per_rank: b.per_rank,
            })
        })?,
    })
}
