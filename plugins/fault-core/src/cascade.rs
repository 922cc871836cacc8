//! Kills the next victim when the one before serves again.

use blackstart_sdk::fault::{
    ArmContext, Armed, EffectEvent, EffectId, Ending, Fact, FaultDescription, FaultHost,
    FaultVariant, Proof, victims,
};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_ROLE_BYTES, MIN_PAUSE_MS};
use crate::sequence::Sequence;
use crate::{About, Deadly, Documented, plan, proof};

/// Configuration of `cascade`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process that gets the signal, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
    /// How long after a victim serves again the next is hit, in milliseconds.
    #[schemars(range(min = MIN_PAUSE_MS, max = MAX_DURATION_MS))]
    pub delay_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            process: "api".to_owned(),
            delay_ms: 1_000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::process(problems, &self.process);
        let limits = (MIN_PAUSE_MS, MAX_DURATION_MS);
        bounds::within(problems, "delay_ms", self.delay_ms, limits, " ms");
    }
}

/// The armed fault.
#[derive(Debug)]
pub struct Cascade {
    chain: Sequence,
}

impl Documented for Cascade {
    const ABOUT: &'static About = &About {
        name: "cascade",
        summary: "Kills the first victim, and the next one when the one before serves again.",
        mechanism: "SIGKILL through a pidfd to the first victim at the fire. The host watches \
                    its probes: `delay_ms` after the victim has failed one and then answered an \
                    inference again, the next victim is killed.",
        client_sees: "For each victim in turn what `process-kill` shows. Through a balancer the \
                      survivors change places; the caches of those that came back are cold when \
                      the next one falls.",
        proof: "All signals were sent, and of each victim the process that had the role before \
                is another one afterwards, or gone. Where a victim does not serve again in time, \
                the others are not hit, and the run is invalid: that is said.",
        ends: "By each victim's own restart. The last signal must come within the fault window; \
               make it as long as the recoveries of all victims take together.",
        stands_for: "Failures that follow each other: load that moves on to the next replica and \
                     kills it, a bad request that is retried elsewhere, a rolling node failure.",
        not_for: "Failures at the same instant (name several victims of `process-kill`), and not \
                  the *cause* of a cascade: the second one is killed by plan, not by load.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\", \"vllm-1\"]")],
        victims: "[\"vllm-0\", \"vllm-1\"]",
        example: "process = \"api\"\ndelay_ms = 2000",
        ..PLAIN
    };
}

impl FaultVariant for Cascade {
    type Config = Config;

    fn describe() -> FaultDescription {
        Self::ABOUT.description()
    }

    fn arm(
        config: Config,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error> {
        let replicas = victims(context, host)?;
        if replicas.len() < 2 {
            return Err(Error::Other(
                "a cascade needs at least 2 victims; name them in the order in which they fall, \
                 or use process-kill for one"
                    .to_owned(),
            ));
        }
        for replica in &replicas {
            plan::has_process(replica, &config.process)?;
        }
        plan::pauses(
            context,
            "delay_ms",
            config.delay_ms,
            replicas.len() as u64 - 1,
        )?;
        let victims = plan::ids(&replicas);
        let (role, pause) = (&config.process, config.delay_ms);
        let armed = Armed {
            statement: format!(
                "SIGKILL to the {role} process of {}, each {pause} ms after the one before serves \
                 again",
                victims.join(", then ")
            ),
            victims: victims.clone(),
        };
        let signal = Deadly::Kill;
        let chain = Sequence::start(victims, role, signal, pause, context, host)?;
        Ok((Cascade { chain }, armed))
    }

    fn observe(
        &mut self,
        effect: EffectId,
        event: &EffectEvent,
        host: &mut impl FaultHost,
    ) -> Result<(), Error> {
        self.chain.observe(effect, event, host)
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        proof::chain_ran(facts, &self.chain)
    }
}
