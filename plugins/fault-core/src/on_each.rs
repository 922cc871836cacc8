//! Variants that do one thing to each victim at the fire.

use blackstart_sdk::fault::{
    ArmContext, Armed, EffectId, Fact, FaultDescription, FaultHost, FaultVariant, Proof, Replica,
    prove_all, victims,
};
use blackstart_sdk::{Error, PluginConfig, RunNs, Window};

use crate::proof::{Facts, Shown};
use crate::{About, Documented, plan};

/// A variant that does one thing to each victim: its configuration says all.
pub trait OneEffect: PluginConfig {
    /// What it is.
    const ABOUT: &'static About;

    /// Whether it can be done to this replica; asked of every victim before the first effect.
    ///
    /// # Errors
    /// What does not fit.
    fn check_replica(&self, replica: &Replica) -> Result<(), Error> {
        let _ = replica;
        Ok(())
    }

    /// When the host undoes it.
    ///
    /// # Errors
    /// An end beyond the fault window.
    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error>;

    /// Puts it on the timeline.
    ///
    /// # Errors
    /// What the host refused.
    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error>;

    /// One line: what is done to whom. `until` is the end that was given to the host.
    fn statement(&self, victims: &str, for_ms: Option<i64>) -> String;

    /// Whether the facts about one victim show it.
    fn shown(&self, facts: &Facts<'_>) -> Shown;
}

/// An armed variant that does one thing to each victim.
#[derive(Debug)]
pub struct OnEach<C> {
    config: C,
    victims: Vec<String>,
}

impl<C: OneEffect> Documented for OnEach<C> {
    const ABOUT: &'static About = C::ABOUT;
}

impl<C: OneEffect> FaultVariant for OnEach<C> {
    type Config = C;

    fn describe() -> FaultDescription {
        C::ABOUT.description()
    }

    fn arm(
        config: C,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error> {
        let until = config.until(context)?;
        let replicas = victims(context, host)?;
        for replica in &replicas {
            config.check_replica(replica)?;
        }
        // Everything is checked before the first effect is scheduled.
        let at = context.fire_at;
        for replica in &replicas {
            config.schedule(host, replica, Window { at, until })?;
        }
        let victims = plan::ids(&replicas);
        let for_ms = until.map(|until| until.saturating_sub(at) / 1_000_000);
        let armed = Armed {
            statement: config.statement(&victims.join(", "), for_ms),
            victims: victims.clone(),
        };
        Ok((OnEach { config, victims }, armed))
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(self.victims.iter().map(|victim| {
            let facts = Facts::new(facts, victim);
            facts.prove(self.config.shown(&facts))
        }))
    }
}
