//! Restarts the victims in turn (SIGTERM), the next when the one before serves again.

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

/// Configuration of `rolling-restart`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process that gets the signal, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
    /// How long after a victim serves again the next is hit, in milliseconds.
    #[schemars(range(min = MIN_PAUSE_MS, max = MAX_DURATION_MS))]
    pub pause_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            process: "api".to_owned(),
            pause_ms: 1_000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::process(problems, &self.process);
        let limits = (MIN_PAUSE_MS, MAX_DURATION_MS);
        bounds::within(problems, "pause_ms", self.pause_ms, limits, " ms");
    }
}

/// The armed fault.
#[derive(Debug)]
pub struct RollingRestart {
    chain: Sequence,
}

impl Documented for RollingRestart {
    const ABOUT: &'static About = &About {
        name: "rolling-restart",
        summary: "Asks the victims to stop in turn (SIGTERM), the next one when the one before \
                  serves again.",
        mechanism: "SIGTERM through a pidfd to the first victim at the fire. The host watches \
                    its probes: `pause_ms` after the victim has failed one and then answered an \
                    inference again, the next victim is asked.",
        client_sees: "For each victim in turn what `graceful-stop` shows; through a balancer one \
                      replica less at a time, and cold caches that add up.",
        proof: "All signals were sent, and of each victim the process that had the role before \
                is another one afterwards, or gone. Where a victim does not serve again in time, \
                the others are not asked, and the run is invalid: that is said.",
        ends: "By each victim's own restart, which must also follow an exit with code 0 \
               (`restart = \"always\"`). The last signal must come within the fault window.",
        stands_for: "A rolling deployment or update without a spare replica.",
        not_for: "A deployment with a surge (the new replica first), nor with the readiness \
                  checks and drain hooks of an orchestrator: only the server's own shutdown is \
                  in it.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\", \"vllm-1\"]")],
        victims: "[\"vllm-0\", \"vllm-1\"]",
        example: "process = \"api\"\npause_ms = 5000",
        ..PLAIN
    };
}

impl FaultVariant for RollingRestart {
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
        for replica in &replicas {
            plan::has_process(replica, &config.process)?;
        }
        plan::pauses(
            context,
            "pause_ms",
            config.pause_ms,
            replicas.len() as u64 - 1,
        )?;
        let victims = plan::ids(&replicas);
        let (role, pause) = (&config.process, config.pause_ms);
        let armed = Armed {
            statement: format!(
                "SIGTERM to the {role} process of {}, each {pause} ms after the one before serves \
                 again",
                victims.join(", then ")
            ),
            victims: victims.clone(),
        };
        let signal = Deadly::Term;
        let chain = Sequence::start(victims, role, signal, pause, context, host)?;
        Ok((RollingRestart { chain }, armed))
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
