//! Kills one process of each victim and caps what the victim receives while it starts again.

use blackstart_sdk::fault::{
    ArmContext, Armed, Condition, EffectEvent, EffectId, Ending, Fact, FaultDescription, FaultHost,
    FaultVariant, NetworkRule, Proof, Signal, prove_all, victims,
};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_RATE, MAX_ROLE_BYTES, MIN_RATE};
use crate::proof::{self, Facts, Shown};
use crate::{About, Documented, plan};

/// Configuration of `slow-weights`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process that is killed, as the target names its processes (`api`, `engine`, `worker`).
    /// Its end must end the server.
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
    /// The cap on what the victim receives, in bytes per second.
    #[schemars(range(min = MIN_RATE, max = MAX_RATE))]
    pub bytes_per_s: u64,
    /// How long the cap lasts from the victim's new start, in milliseconds; it ends with the fault
    /// window at the latest.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            process: "api".to_owned(),
            bytes_per_s: 10_000_000,
            duration_ms: 30_000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::process(problems, &self.process);
        let limits = (MIN_RATE, MAX_RATE);
        bounds::within(
            problems,
            "bytes_per_s",
            self.bytes_per_s,
            limits,
            " bytes per second",
        );
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

/// One victim's part.
#[derive(Debug)]
struct Part {
    victim: String,
    kill: EffectId,
    watch: EffectId,
    cap: Option<EffectId>,
    /// The cap was in force.
    capped: bool,
    broken: Option<String>,
}

/// The armed fault.
#[derive(Debug)]
pub struct SlowWeights {
    config: Config,
    deadline: RunNs,
    parts: Vec<Part>,
}

impl Documented for SlowWeights {
    const ABOUT: &'static About = &About {
        name: "slow-weights",
        summary: "Kills one process of each victim and caps the bytes per second that the victim \
                  receives while it starts again.",
        mechanism: "SIGKILL through a pidfd at the fire. As soon as the host sees another main \
                    process (within some 10 ms), a packet rule in its network namespace drops \
                    what comes above the rate. Only a victim with a namespace of its own (a \
                    container) is slowed: elsewhere the rule touches nothing but the port of \
                    `base_url`. What was downloaded in the first moments is not slowed.",
        client_sees: "What `process-kill` shows, with a longer way back: `connect` until the \
                      server has its weights. In the report `weight_download` or `weight_load` \
                      grows.",
        proof: "The process that had the role before is another one afterwards, or gone; the cap \
                came into force; and its rule dropped packets (`network.dropped-packets` above \
                0). Where nothing was dropped the weights did not come over the network, and the \
                run is invalid.",
        ends: "The kill by the victim's own restart. The kernel drops the rule after \
               `duration_ms`, at the latest with the fault window, even if the instrument is \
               gone; the host removes the table.",
        stands_for: "A restart whose weights come over a slow or busy network: object storage, a \
                     model hub, a network file system after a mass restart.",
        not_for: "Weights on a local disk or in the page cache: those are read as fast as ever. \
                  Nor a slow disk.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\"]"), ("network", "[\"vllm-0\"]")],
        example: "process = \"api\"\nbytes_per_s = 5000000\nduration_ms = 20000",
        ..PLAIN
    };
}

impl FaultVariant for SlowWeights {
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
        plan::end(context, "duration_ms", config.duration_ms)?;
        let (at, deadline) = (context.fire_at, context.expire_at);
        let mut parts = Vec::new();
        for victim in plan::ids(&replicas) {
            let when = Window { at, until: None };
            let kill = host.send_signal(&victim, &config.process, Signal::Kill, when)?;
            let until = Some(deadline);
            let when = Window { at, until };
            let watch = host.watch(&victim, Condition::StartedAgain, when)?;
            parts.push(Part {
                victim,
                kill,
                watch,
                cap: None,
                capped: false,
                broken: None,
            });
        }
        let victims = plan::ids(&replicas);
        let armed = Armed {
            statement: format!(
                "SIGKILL to the {} process of {}; from the new start on, what it receives capped \
                 at {} bytes per second for {} ms",
                config.process,
                victims.join(", "),
                config.bytes_per_s,
                config.duration_ms
            ),
            victims,
        };
        let fault = SlowWeights {
            config,
            deadline,
            parts,
        };
        Ok((fault, armed))
    }

    fn observe(
        &mut self,
        effect: EffectId,
        event: &EffectEvent,
        host: &mut impl FaultHost,
    ) -> Result<(), Error> {
        for part in &mut self.parts {
            let cap = part.cap == Some(effect);
            match event {
                EffectEvent::Started(started) if part.watch == effect => {
                    let at = host.now().max(*started);
                    let length = plan::ns(self.config.duration_ms);
                    let until = at.saturating_add(length).min(self.deadline);
                    if until <= at {
                        part.broken =
                            Some("it started again after the fault window was over".to_owned());
                        continue;
                    }
                    let rule = NetworkRule::LimitReceive(self.config.bytes_per_s);
                    let until = Some(until);
                    part.cap =
                        Some(host.apply_network(&part.victim, rule, Window { at, until })?);
                }
                EffectEvent::Started(_) if cap => part.capped = true,
                EffectEvent::Failed(why) if cap || part.watch == effect || part.kill == effect => {
                    part.broken = Some(why.clone());
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(self.parts.iter().map(|part| {
            let facts = Facts::new(facts, &part.victim);
            facts.prove(part.shown(&facts, &self.config.process))
        }))
    }
}

impl Part {
    fn shown(&self, facts: &Facts<'_>, role: &str) -> Shown {
        let died = proof::process_died(facts, role, "KILL")?;
        if !self.capped {
            let why = self.broken.as_deref();
            let why = why.unwrap_or("it was not seen to start again");
            return proof::not(format!("what it receives was never capped: {why}"));
        }
        let what = "packets above the rate dropped";
        let dropped = proof::packets(facts, "network.dropped-packets", what)?;
        Ok(format!("{died}; {dropped}"))
    }
}
