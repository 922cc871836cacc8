//! Kills a process of each victim again and again.

use blackstart_sdk::fault::{
    ArmContext, Armed, EffectEvent, EffectId, Ending, Fact, FaultDescription, FaultHost,
    FaultVariant, Proof, prove_all, victims,
};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_ROLE_BYTES, MIN_PAUSE_MS};
use crate::sequence::Sequence;
use crate::{About, Deadly, Documented, plan, proof};

/// Once is `process-kill`.
const MIN_TIMES: u64 = 2;
/// Most signals.
const MAX_TIMES: u64 = 20;

/// Configuration of `flapping`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process that gets the signal, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
    /// The signal, without `SIG`.
    pub signal: Deadly,
    /// How many times.
    #[schemars(range(min = MIN_TIMES, max = MAX_TIMES))]
    pub times: u64,
    /// How long after the victim serves again the next signal comes, in milliseconds.
    #[schemars(range(min = MIN_PAUSE_MS, max = MAX_DURATION_MS))]
    pub pause_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            process: "api".to_owned(),
            signal: Deadly::Kill,
            times: 3,
            pause_ms: 1_000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::process(problems, &self.process);
        let limits = (MIN_TIMES, MAX_TIMES);
        bounds::within(problems, "times", self.times, limits, " times");
        let limits = (MIN_PAUSE_MS, MAX_DURATION_MS);
        bounds::within(problems, "pause_ms", self.pause_ms, limits, " ms");
    }
}

/// The armed fault.
#[derive(Debug)]
pub struct Flapping {
    chains: Vec<Sequence>,
}

impl Documented for Flapping {
    const ABOUT: &'static About = &About {
        name: "flapping",
        summary: "Kills one process of each victim several times, each time shortly after it \
                  serves again.",
        mechanism: "The signal through a pidfd at the fire. The host watches the victim's \
                    probes: `pause_ms` after it has failed one and then answered an inference \
                    again, the signal is sent once more, `times` in all. Several victims flap \
                    each at their own pace.",
        client_sees: "What `process-kill` shows, several times; between them a short time of \
                      service with cold caches. Balancers take the replica in and out, and \
                      supervisors back off: each start may come later than the one before \
                      (Docker doubles its wait, Kubernetes shows `CrashLoopBackOff`).",
        proof: "All signals were sent; the process that had the role before is another one \
                afterwards, or gone; and the restart count (`target.restart-count`, else \
                `container.restart-count`) grew by as many. Where no restart is counted, the \
                victim's returns between the signals are those that the host saw. Where the \
                victim does not serve again in time, the run is invalid: that is said.",
        ends: "By the victim's own restart policy, which must restart it each time. The last \
               signal must come within the fault window.",
        stands_for: "A server that crashes again after each start: a bad configuration, a \
                     poisonous request that comes back, a failing device.",
        not_for: "A crash during the start-up: each one here comes after the victim has served.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\"]")],
        example: "process = \"api\"\ntimes = 3\npause_ms = 2000",
        ..PLAIN
    };
}

impl FaultVariant for Flapping {
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
        plan::pauses(context, "pause_ms", config.pause_ms, config.times - 1)?;
        let victims = plan::ids(&replicas);
        let Config {
            process,
            signal,
            times,
            pause_ms,
        } = &config;
        let armed = Armed {
            statement: format!(
                "SIG{} to the {process} process of {}, {times} times, each {pause_ms} ms after it \
                 serves again",
                signal.name(),
                victims.join(", ")
            ),
            victims: victims.clone(),
        };
        let mut chains = Vec::new();
        for victim in victims {
            let steps = (0..*times).map(|_| victim.clone()).collect();
            let chain = Sequence::start(steps, process, *signal, *pause_ms, context, host)?;
            chains.push(chain);
        }
        Ok((Flapping { chains }, armed))
    }

    fn observe(
        &mut self,
        effect: EffectId,
        event: &EffectEvent,
        host: &mut impl FaultHost,
    ) -> Result<(), Error> {
        // Each knows its own effects.
        self.chains
            .iter_mut()
            .try_for_each(|chain| chain.observe(effect, event, host))
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(self.chains.iter().map(|chain| proof::flapped(facts, chain)))
    }
}
