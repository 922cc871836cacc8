//! Adapter of the gate world: a plugin that judges the evidence of a run.

mod imports;
mod types;

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker};

use self::imports::GateWorld;
pub use self::types::{
    Evidence, FaultRecord, Finding, GateInfo, LoggedEvent, Outcome, Point, RequestRecord, Severity,
    Verdict, Window,
};
use crate::api::World;
use crate::artifact::Artifact;
use crate::bindings::gate::blackstart::plugin::evidence;
use crate::bindings::gate::exports::blackstart::plugin::gate as wit;
use crate::bindings::gate::{ValidityGate, ValidityGatePre};
use crate::engine::Engine;
use crate::error::{PluginError, Quarantine, Refusal, Stopped};
use crate::host::{guest_error, link_common, list, measures, name, plugin_info, sentence};
use crate::instance::{HostState, Instance, link_error, resolve};
use crate::manifest;
use crate::types::{Call, Label};

/// Most records of one page; a part of the contract.
pub const MAX_PAGE: u32 = 4096;
/// Most points of a series that a gate is lent at once.
pub const MAX_SERIES_POINTS: usize = 1 << 18;

/// A compiled gate, linked, ready to be instantiated.
pub struct GateTemplate {
    engine: Engine,
    artifact: Artifact,
    pre: ValidityGatePre<HostState<GateWorld>>,
}

impl GateTemplate {
    /// Compiles and links the component.
    ///
    /// # Errors
    /// [`PluginError::Refused`].
    pub fn new(engine: &Engine, artifact: &Artifact) -> Result<GateTemplate, PluginError> {
        artifact.check_world(World::ValidityGate)?;
        let misfit = |detail: String| {
            artifact.refuse(Refusal::Link {
                plugin: artifact.label().clone(),
                detail,
            })
        };
        let component = engine.compiled(artifact)?;
        let linker = linker(engine).map_err(|e| misfit(link_error(&e)))?;
        let pre = resolve(&linker, &component).map_err(misfit)?;
        let pre = ValidityGatePre::new(pre).map_err(|e| misfit(link_error(&e)))?;
        Ok(GateTemplate {
            engine: engine.clone(),
            artifact: artifact.clone(),
            pre,
        })
    }

    /// Creates an instance and asks it to describe itself.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`], or [`PluginError::Refused`] for a description
    /// that contradicts the stamp or itself.
    pub fn instantiate(&self) -> Result<GatePlugin, PluginError> {
        let world = GateWorld { evidence: None };
        let mut instance = Instance::new(&self.engine, self.artifact.label(), world, |store| {
            self.pre.instantiate(store)
        })?;
        let budget = self.engine.limits().call_budget;
        let raw = instance.call(Call::Describe, budget, |store, exports| {
            exports.blackstart_plugin_gate().call_describe(store)
        })?;
        let info = instance.checked(Call::Describe, || gate_info(raw))?;
        manifest::check(&self.artifact, &info.plugin)?;
        if (info.severity == Severity::StripsLabel) != info.label.is_some() {
            return Err(self.artifact.refuse(Refusal::BadDescription {
                plugin: self.artifact.label().clone(),
                detail: "a gate has a label exactly when it is one that strips a label".into(),
            }));
        }
        Ok(GatePlugin { instance, info })
    }
}

fn linker(engine: &Engine) -> wasmtime::Result<Linker<HostState<GateWorld>>> {
    let mut linker = Linker::new(engine.wasm());
    link_common(&mut linker)?;
    evidence::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    Ok(linker)
}

/// A running gate plugin.
pub struct GatePlugin {
    instance: Instance<GateWorld, ValidityGate>,
    info: GateInfo,
}

impl GatePlugin {
    /// [`GateTemplate::new`] and [`GateTemplate::instantiate`] in one.
    ///
    /// # Errors
    /// As those two.
    pub fn instantiate(engine: &Engine, artifact: &Artifact) -> Result<GatePlugin, PluginError> {
        GateTemplate::new(engine, artifact)?.instantiate()
    }

    /// What the plugin says about itself.
    pub fn describe(&self) -> &GateInfo {
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

    /// Judges a run. `config` is the plugin's own table as JSON, valid under its
    /// schema. The evidence is lent for this call alone.
    ///
    /// # Errors
    /// [`PluginError::Guest`] when the gate declines, [`PluginError::Quarantined`]
    /// when it was stopped; either way the gate is not observed, which never passes.
    pub fn evaluate(
        &mut self,
        config: &str,
        evidence: Arc<dyn Evidence>,
    ) -> Result<Finding, PluginError> {
        let budget = self.instance.engine().limits().call_budget;
        if let Some(world) = self.instance.world_mut() {
            world.evidence = Some(evidence);
        }
        let answer = self
            .instance
            .call(Call::Evaluate, budget, |store, exports| {
                exports
                    .blackstart_plugin_gate()
                    .call_evaluate(store, config)
            });
        if let Some(world) = self.instance.world_mut() {
            world.evidence = None;
        }
        match answer? {
            Ok(raw) => self.instance.checked(Call::Evaluate, || finding(raw)),
            Err(error) => match self.instance.checked(Call::Evaluate, || guest_error(error)) {
                Ok(error) => Err(PluginError::Guest {
                    plugin: self.instance.label().clone(),
                    call: Call::Evaluate,
                    error,
                }),
                Err(quarantined) => Err(quarantined),
            },
        }
    }
}

fn finding(raw: wit::Finding) -> Result<Finding, Stopped> {
    let why = |text| sentence("the verdict's reason", text);
    Ok(Finding {
        verdict: match raw.verdict {
            wit::Verdict::Pass => Verdict::Pass,
            wit::Verdict::Fail(text) => Verdict::Fail(why(text)?),
            wit::Verdict::NotObserved(text) => Verdict::NotObserved(why(text)?),
            wit::Verdict::NotApplicable(text) => Verdict::NotApplicable(why(text)?),
        },
        measures: measures(raw.measures)?,
    })
}

fn gate_info(info: wit::GateInfo) -> Result<GateInfo, Stopped> {
    Ok(GateInfo {
        plugin: plugin_info(info.plugin)?,
        id: name("the gate's id", info.id)?,
        title: sentence("the gate's title", info.title)?,
        severity: match info.severity {
            wit::Severity::InvalidatesRun => Severity::InvalidatesRun,
            wit::Severity::StripsLabel => Severity::StripsLabel,
            wit::Severity::Advisory => Severity::Advisory,
        },
        label: info
            .label
            .map(|l| name("the gate's label", l))
            .transpose()?,
        needs: list("the list of needs", info.needs, |n| name("a need", n))?,
    })
}
