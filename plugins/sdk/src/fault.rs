//! World `fault-variant`: what is done to whom and when, and what proves it.
//!
//! ```
//! use blackstart_sdk::fault::*;
//! use blackstart_sdk::{Error, NoConfig, Window};
//!
//! /// Kills the `api` process of every victim.
//! struct Kill {
//!     victims: Vec<String>,
//! }
//!
//! impl FaultVariant for Kill {
//!     type Config = NoConfig;
//!
//!     fn describe() -> FaultDescription {
//!         FaultDescription {
//!             summary: "Kills the API process.".into(),
//!             ending: Ending::VictimRestarts,
//!             without_segments: vec![],
//!             labels: vec![],
//!         }
//!     }
//!
//!     fn arm(_: NoConfig, context: &ArmContext, host: &mut impl FaultHost) -> Result<(Self, Armed), Error> {
//!         for victim in &context.victims {
//!             let when = Window { at: context.fire_at, until: None };
//!             host.send_signal(victim, "api", Signal::Kill, when)?;
//!         }
//!         let armed = Armed {
//!             victims: context.victims.clone(),
//!             statement: format!("SIGKILL to api of {}", context.victims.join(", ")),
//!         };
//!         Ok((Kill { victims: context.victims.clone() }, armed))
//!     }
//!
//!     fn prove(&self, facts: &[Fact]) -> Proof {
//!         let Some(pid) = facts.iter().find(|f| f.name == "process.api.pid") else {
//!             return Proof::CannotTell("the process id was not read".into());
//!         };
//!         match (&pid.before, &pid.during) {
//!             (Some(before), during) if during.as_ref() != Some(before) => {
//!                 Proof::Happened(format!("process {before} is gone"))
//!             }
//!             _ => Proof::DidNotHappen("the process lives".into()),
//!         }
//!     }
//! }
//!
//! // In a guest crate (a `cdylib`), once: blackstart_sdk::register!(fault: Kill);
//! let mut host = blackstart_sdk::testing::FakeHost::default();
//! let context = blackstart_sdk::testing::arm_context(&["vllm-0"]);
//! let (_, armed) = Kill::arm(NoConfig {}, &context, &mut host).unwrap();
//! assert_eq!(armed.victims, ["vllm-0"]);
//! assert_eq!(host.signals.len(), 1);
//! ```

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::fault::blackstart::plugin as host;
use crate::bindings::fault::exports::blackstart::plugin::fault as exported;
use crate::config::{self, PluginConfig};
use crate::identity::Identity;
use crate::{Error, Field, RunNs, Window, panic};

pub use exported::{ArmContext, Armed, EffectEvent, Ending, Fact, FaultInfo, Proof};
pub use host::conditions::Condition;
pub use host::effect_container::Operation as ContainerOperation;
pub use host::effect_http::Request;
pub use host::effect_network::Rule as NetworkRule;
pub use host::effect_process::Signal;
pub use host::effect_resources::{Fill, Limit};
pub use host::targets::Replica;
pub use host::types::EffectId;

/// What a fault says about itself; name and version come from its `Cargo.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct FaultDescription {
    /// One line for people.
    pub summary: String,
    /// How the fault ends.
    pub ending: Ending,
    /// Decomposition segments that cannot occur, each with the reason.
    pub without_segments: Vec<Field>,
    /// Labels that the run carries when its label gates hold.
    pub labels: Vec<String>,
}

/// What the host offers to a fault. Effects go on the host's timeline; they do not act at once.
///
/// A component asks for the interfaces whose methods it calls, and the configuration must grant
/// them. Therefore the host is passed as `impl FaultHost`, not as `dyn`: a trait object would
/// reach every method and could ask for interfaces that the plugin never uses.
pub trait FaultHost {
    /// The run clock.
    fn now(&self) -> RunNs;

    /// What the configuration calls the system under test.
    fn targets(&self) -> Vec<Replica>;

    /// Schedules a signal to a process of a replica; `role` is one of its
    /// `process_roles`. With an `until`, STOP is undone by CONT.
    ///
    /// # Errors
    /// [`Error::Denied`] outside the grants, [`Error::Unsupported`] where the replica
    /// has no such process.
    fn send_signal(
        &mut self,
        replica: &str,
        role: &str,
        signal: Signal,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// Schedules an HTTP request; `on_expiry` is sent at `when.until`.
    ///
    /// # Errors
    /// [`Error::Denied`] for a URL outside the grants.
    fn send_http(
        &mut self,
        request: &Request,
        on_expiry: Option<&Request>,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// Schedules an operation of the container engine on a replica's container.
    ///
    /// # Errors
    /// [`Error::Denied`] outside the grants, [`Error::Unsupported`] where the replica is in no
    /// container or the operation cannot be undone as asked.
    fn run_container(
        &mut self,
        replica: &str,
        operation: &ContainerOperation,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// Schedules a rule on a replica's packets.
    ///
    /// # Errors
    /// [`Error::Denied`] outside the grants, [`Error::Unsupported`] where this host cannot do it.
    fn apply_network(
        &mut self,
        replica: &str,
        rule: NetworkRule,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// Schedules a limit on what a replica may use of its host.
    ///
    /// # Errors
    /// [`Error::Denied`] outside the grants, [`Error::Unsupported`] where this host cannot do it,
    /// or where others would be hit.
    fn apply_limit(
        &mut self,
        replica: &str,
        limit: &Limit,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// Waits for a condition from `when.at` to `when.until`; [`FaultVariant::observe`] is told.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a replica that is none.
    fn watch(
        &mut self,
        replica: &str,
        condition: Condition,
        when: Window,
    ) -> Result<EffectId, Error>;
}

/// A fault variant. The value is the armed fault: what `arm` decided and `prove` needs.
pub trait FaultVariant: Sized + 'static {
    /// The plugin's own configuration table ([`crate::NoConfig`] if there is none).
    type Config: PluginConfig;

    /// What the plugin is.
    fn describe() -> FaultDescription;

    /// Schedules every effect the fault needs. Called before the first request of a run,
    /// and with the same arguments for a dry run.
    ///
    /// # Errors
    /// What the host refused, or a configuration that does not fit the targets
    /// ([`config::invalid`]).
    fn arm(
        config: Self::Config,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error>;

    /// An event of one of this fault's own effects; may schedule more.
    ///
    /// # Errors
    /// Marks the fault as failed.
    fn observe(
        &mut self,
        effect: EffectId,
        event: &EffectEvent,
        host: &mut impl FaultHost,
    ) -> Result<(), Error> {
        let _ = (effect, event, host);
        Ok(())
    }

    /// Did the fault really happen? Asked after the fault window, of the instance that
    /// armed. A fact that is absent, or a value that was not readable, proves nothing:
    /// answer [`Proof::CannotTell`].
    fn prove(&self, facts: &[Fact]) -> Proof;
}

/// Finds the fact `name` of a replica.
#[must_use]
pub fn fact<'f>(facts: &'f [Fact], replica: &str, name: &str) -> Option<&'f Fact> {
    facts
        .iter()
        .find(|f| f.replica == replica && f.name == name)
}

/// Joins what is known of each victim into one proof: one victim that was not hit means
/// the fault did not happen as planned; else one that cannot be told means that the
/// whole cannot be told. No victims at all proves nothing.
#[must_use]
pub fn prove_all(proofs: impl IntoIterator<Item = Proof>) -> Proof {
    let (mut happened, mut not, mut unknown) = (Vec::new(), Vec::new(), Vec::new());
    for proof in proofs {
        match proof {
            Proof::Happened(why) => happened.push(why),
            Proof::DidNotHappen(why) => not.push(why),
            Proof::CannotTell(why) => unknown.push(why),
        }
    }
    if !not.is_empty() {
        Proof::DidNotHappen(not.join("; "))
    } else if !unknown.is_empty() {
        Proof::CannotTell(unknown.join("; "))
    } else if happened.is_empty() {
        Proof::CannotTell("no victim was named".to_owned())
    } else {
        Proof::Happened(happened.join("; "))
    }
}

/// Checks that victims are named and known to the host; returns them.
///
/// # Errors
/// [`Error::Other`] without victims, [`Error::Unsupported`] for one that is no target.
pub fn victims(context: &ArmContext, host: &impl FaultHost) -> Result<Vec<Replica>, Error> {
    if context.victims.is_empty() {
        return Err(Error::Other(
            "no victim is named; name at least one replica as victim of the fault".to_owned(),
        ));
    }
    let targets = host.targets();
    context
        .victims
        .iter()
        .map(|id| {
            targets
                .iter()
                .find(|t| &t.id == id)
                .cloned()
                .ok_or_else(|| {
                    let known: Vec<_> = targets.iter().map(|t| t.id.as_str()).collect();
                    Error::Unsupported(format!(
                        "victim `{id}` is not a replica of the target; known: {}",
                        known.join(", ")
                    ))
                })
        })
        .collect()
}

/// The host behind the world's imports.
struct Imports;

impl FaultHost for Imports {
    fn now(&self) -> RunNs {
        host::clock::now()
    }

    fn targets(&self) -> Vec<Replica> {
        host::targets::list()
    }

    fn send_signal(
        &mut self,
        replica: &str,
        role: &str,
        signal: Signal,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::effect_process::send_signal(replica, role, signal, when)
    }

    fn send_http(
        &mut self,
        request: &Request,
        on_expiry: Option<&Request>,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::effect_http::send(request, on_expiry, when)
    }

    fn run_container(
        &mut self,
        replica: &str,
        operation: &ContainerOperation,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::effect_container::run(replica, operation, when)
    }

    fn apply_network(
        &mut self,
        replica: &str,
        rule: NetworkRule,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::effect_network::apply(replica, rule, when)
    }

    fn apply_limit(
        &mut self,
        replica: &str,
        limit: &Limit,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::effect_resources::apply(replica, limit, when)
    }

    fn watch(
        &mut self,
        replica: &str,
        condition: Condition,
        when: Window,
    ) -> Result<EffectId, Error> {
        host::conditions::watch(replica, condition, when)
    }
}

/// An armed fault without its type; a component has one.
trait Live {
    fn observe(&mut self, effect: EffectId, event: &EffectEvent) -> Result<(), Error>;
    fn prove(&self, facts: &[Fact]) -> Proof;
}

impl<T: FaultVariant> Live for T {
    fn observe(&mut self, effect: EffectId, event: &EffectEvent) -> Result<(), Error> {
        FaultVariant::observe(self, effect, event, &mut Imports)
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        FaultVariant::prove(self, facts)
    }
}

thread_local! {
    static LIVE: RefCell<Option<Box<dyn Live>>> = const { RefCell::new(None) };
}

const NOT_ARMED: &str = "this instance of the plugin was never armed";

/// Binds a [`FaultVariant`] to the generated export; [`crate::register!`] uses it.
#[doc(hidden)]
pub struct Component<T, I>(PhantomData<(T, I)>);

impl<T: FaultVariant, I: Identity + 'static> exported::Guest for Component<T, I> {
    fn describe() -> FaultInfo {
        panic::report_to_host();
        let about = T::describe();
        FaultInfo {
            plugin: crate::identity::plugin_info::<I, T::Config>(about.summary),
            ending: about.ending,
            without_segments: about.without_segments,
            labels: about.labels,
        }
    }

    fn arm(context: ArmContext) -> Result<Armed, Error> {
        panic::report_to_host();
        let config = config::parse::<T::Config>(&context.config)?;
        let (live, armed) = T::arm(config, &context, &mut Imports)?;
        LIVE.with_borrow_mut(|slot| *slot = Some(Box::new(live)));
        Ok(armed)
    }

    fn observe(effect: EffectId, event: EffectEvent) -> Result<(), Error> {
        panic::report_to_host();
        LIVE.with_borrow_mut(|slot| match slot {
            Some(live) => live.observe(effect, &event),
            None => Err(Error::Other(NOT_ARMED.to_owned())),
        })
    }

    fn prove(facts: Vec<Fact>) -> Proof {
        panic::report_to_host();
        LIVE.with_borrow(|slot| match slot {
            Some(live) => live.prove(&facts),
            None => Proof::CannotTell(NOT_ARMED.to_owned()),
        })
    }
}
