//! Adapter of the fault world: a plugin that decides what to do to whom and when.

mod imports;
mod types;

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker};

use self::imports::{FaultWorld, TimeLimits};
pub use self::types::{
    ArmContext, Armed, Condition, ContainerOperation, EffectAction, EffectError, EffectEvent,
    EffectRequest, Ending, Fact, FaultHost, FaultInfo, HttpRequest, Limit, NetworkRule, Proof,
    Signal, TargetReplica,
};
use crate::api::World;
use crate::artifact::Artifact;
use crate::bindings::fault::blackstart::plugin::{
    clock, conditions, effect_container, effect_http, effect_network, effect_process,
    effect_resources, targets,
};
use crate::bindings::fault::exports::blackstart::plugin::fault as wit;
use crate::bindings::fault::{FaultVariant, FaultVariantPre};
use crate::engine::Engine;
use crate::error::{PluginError, Quarantine, Refusal, Stopped};
use crate::grants::{Grants, ReplicaGrant};
use crate::host::{fields, guest_error, link_common, list, name, plugin_info, sentence};
use crate::instance::{HostState, Instance, link_error, resolve};
use crate::manifest;
use crate::types::{Call, Label};

/// Most effects one instance may put on the timeline.
pub const MAX_EFFECTS: usize = 256;
/// Largest body of an HTTP request of a fault, in bytes.
pub const MAX_BODY_BYTES: usize = 1 << 20;
/// Most headers of an HTTP request of a fault.
pub const MAX_HEADERS: usize = 64;

/// A compiled fault, linked against what it is granted, ready to be instantiated.
pub struct FaultTemplate {
    engine: Engine,
    artifact: Artifact,
    grants: Arc<Grants>,
    pre: FaultVariantPre<HostState<FaultWorld>>,
}

impl FaultTemplate {
    /// Compiles the component and links the interfaces that are granted, no others.
    ///
    /// # Errors
    /// [`PluginError::Refused`]: another world, an import that is not granted, code
    /// that does not compile or does not fit the interfaces.
    pub fn new(
        engine: &Engine,
        artifact: &Artifact,
        grants: &Grants,
    ) -> Result<FaultTemplate, PluginError> {
        artifact.check_world(World::FaultVariant)?;
        artifact.check_grants(grants)?;
        let misfit = |detail: String| {
            artifact.refuse(Refusal::Link {
                plugin: artifact.label().clone(),
                detail,
            })
        };
        let component = engine.compiled(artifact)?;
        let linker = linker(engine, grants).map_err(|e| misfit(link_error(&e)))?;
        let pre = resolve(&linker, &component).map_err(misfit)?;
        let pre = FaultVariantPre::new(pre).map_err(|e| misfit(link_error(&e)))?;
        Ok(FaultTemplate {
            engine: engine.clone(),
            artifact: artifact.clone(),
            grants: Arc::new(grants.clone()),
            pre,
        })
    }

    /// Creates an instance and asks it to describe itself.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`], or [`PluginError::Refused`] for a description
    /// that contradicts the stamp.
    pub fn instantiate(&self, host: Arc<dyn FaultHost>) -> Result<FaultPlugin, PluginError> {
        let world = FaultWorld {
            host,
            grants: Arc::clone(&self.grants),
            may_schedule: false,
            scheduled: 0,
            limits: None,
        };
        let mut instance = Instance::new(&self.engine, self.artifact.label(), world, |store| {
            self.pre.instantiate(store)
        })?;
        let budget = self.engine.limits().call_budget;
        let raw = instance.call(Call::Describe, budget, |store, exports| {
            exports.blackstart_plugin_fault().call_describe(store)
        })?;
        let info = instance.checked(Call::Describe, || fault_info(raw))?;
        manifest::check(&self.artifact, &info.plugin)?;
        Ok(FaultPlugin { instance, info })
    }
}

fn linker(engine: &Engine, grants: &Grants) -> wasmtime::Result<Linker<HostState<FaultWorld>>> {
    let mut linker = Linker::new(engine.wasm());
    link_common(&mut linker)?;
    clock::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    targets::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    conditions::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    if grants.grants(ReplicaGrant::Process) {
        effect_process::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    if grants.grants(ReplicaGrant::Container) {
        effect_container::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    if grants.grants(ReplicaGrant::Network) {
        effect_network::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    if grants.grants(ReplicaGrant::Resources) {
        effect_resources::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    if grants.grants_http() {
        effect_http::add_to_linker::<_, HasSelf<_>>(&mut linker, |state| state)?;
    }
    Ok(linker)
}

/// A running fault plugin.
pub struct FaultPlugin {
    instance: Instance<FaultWorld, FaultVariant>,
    info: FaultInfo,
}

impl FaultPlugin {
    /// [`FaultTemplate::new`] and [`FaultTemplate::instantiate`] in one.
    ///
    /// # Errors
    /// As those two.
    pub fn instantiate(
        engine: &Engine,
        artifact: &Artifact,
        grants: &Grants,
        host: Arc<dyn FaultHost>,
    ) -> Result<FaultPlugin, PluginError> {
        FaultTemplate::new(engine, artifact, grants)?.instantiate(host)
    }

    /// What the plugin says about itself.
    pub fn describe(&self) -> &FaultInfo {
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

    /// Lets the fault put its effects on the timeline. On an error, effects that it
    /// had scheduled before are the caller's to cancel.
    ///
    /// # Errors
    /// [`PluginError::Guest`] when the fault declines, [`PluginError::Quarantined`]
    /// when it was stopped.
    pub fn arm(&mut self, context: &ArmContext) -> Result<Armed, PluginError> {
        if let Some(world) = self.instance.world_mut() {
            world.limits = Some(TimeLimits {
                expire_at_ns: context.expire_at_ns,
                run_end_ns: context.run_end_ns,
            });
        }
        let context = wit::ArmContext {
            config: context.config.clone(),
            seed: context.seed,
            fire_at: context.fire_at_ns,
            expire_at: context.expire_at_ns,
            run_end: context.run_end_ns,
            victims: context.victims.clone(),
        };
        let answer = self.scheduling(Call::Arm, |store, exports| {
            exports.blackstart_plugin_fault().call_arm(store, &context)
        })?;
        match answer {
            Ok(armed) => self.instance.checked(Call::Arm, || {
                Ok(Armed {
                    victims: list("the list of victims", armed.victims, |v| {
                        name("a victim's name", v)
                    })?,
                    statement: sentence("the statement", armed.statement)?,
                })
            }),
            Err(error) => Err(self.guest(Call::Arm, error)),
        }
    }

    /// Tells the fault what became of one of its effects; it may schedule more.
    ///
    /// # Errors
    /// As [`FaultPlugin::arm`].
    pub fn observe(&mut self, effect: u32, event: &EffectEvent) -> Result<(), PluginError> {
        let event = match event {
            EffectEvent::Started(at) => wit::EffectEvent::Started(*at),
            EffectEvent::Undone(at) => wit::EffectEvent::Undone(*at),
            EffectEvent::Failed(why) => wit::EffectEvent::Failed(why.clone()),
        };
        let answer = self.scheduling(Call::Observe, |store, exports| {
            exports
                .blackstart_plugin_fault()
                .call_observe(store, effect, &event)
        })?;
        answer.map_err(|error| self.guest(Call::Observe, error))
    }

    /// Asks whether the fault really happened.
    ///
    /// # Errors
    /// [`PluginError::Quarantined`] when the plugin was stopped.
    pub fn prove(&mut self, facts: &[Fact]) -> Result<Proof, PluginError> {
        let facts: Vec<wit::Fact> = facts
            .iter()
            .map(|fact| wit::Fact {
                replica: fact.replica.clone(),
                name: fact.name.clone(),
                before: fact.before.clone(),
                during: fact.during.clone(),
                after: fact.after.clone(),
            })
            .collect();
        let budget = self.instance.engine().limits().call_budget;
        let proof = self.instance.call(Call::Prove, budget, |store, exports| {
            exports.blackstart_plugin_fault().call_prove(store, &facts)
        })?;
        self.instance.checked(Call::Prove, || {
            let why = |text| sentence("the proof", text);
            Ok(match proof {
                wit::Proof::Happened(text) => Proof::Happened(why(text)?),
                wit::Proof::DidNotHappen(text) => Proof::DidNotHappen(why(text)?),
                wit::Proof::CannotTell(text) => Proof::CannotTell(why(text)?),
            })
        })
    }

    /// A call that may put effects on the timeline.
    fn scheduling<R>(
        &mut self,
        call: Call,
        run: impl FnOnce(
            &mut wasmtime::Store<HostState<FaultWorld>>,
            &FaultVariant,
        ) -> wasmtime::Result<R>,
    ) -> Result<R, PluginError> {
        let budget = self.instance.engine().limits().call_budget;
        if let Some(world) = self.instance.world_mut() {
            world.may_schedule = true;
        }
        let result = self.instance.call(call, budget, run);
        if let Some(world) = self.instance.world_mut() {
            world.may_schedule = false;
        }
        result
    }

    fn guest(&mut self, call: Call, error: crate::bindings::types::Error) -> PluginError {
        match self.instance.checked(call, || guest_error(error)) {
            Ok(error) => PluginError::Guest {
                plugin: self.instance.label().clone(),
                call,
                error,
            },
            Err(quarantined) => quarantined,
        }
    }
}

fn fault_info(info: wit::FaultInfo) -> Result<FaultInfo, Stopped> {
    Ok(FaultInfo {
        plugin: plugin_info(info.plugin)?,
        ending: match info.ending {
            wit::Ending::VictimRestarts => Ending::VictimRestarts,
            wit::Ending::HostUndoes => Ending::HostUndoes,
            wit::Ending::Permanent => Ending::Permanent,
        },
        without_segments: fields(info.without_segments)?,
        labels: list("the list of labels", info.labels, |l| name("a label", l))?,
    })
}
