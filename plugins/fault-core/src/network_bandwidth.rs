//! Caps what each victim sends or receives.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, NetworkRule, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_RATE, MIN_RATE};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Which way packets go, as the victim sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Direction {
    /// What it sends: tokens.
    Send,
    /// What it receives: prompts.
    Receive,
}

/// Configuration of `network-bandwidth`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The cap, in bytes per second.
    #[schemars(range(min = MIN_RATE, max = MAX_RATE))]
    pub bytes_per_s: u64,
    /// Which way, as the victim sees it: `send` is tokens, `receive` prompts.
    pub direction: Direction,
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            bytes_per_s: 100_000,
            direction: Direction::Send,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
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

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "network-bandwidth",
        summary: "Caps the bytes per second that each victim sends or receives for a while.",
        mechanism: "`send`: the queueing discipline `tbf` on each device of the victim's own \
                    network namespace but loopback; what does not fit waits up to 400 ms, then \
                    it is dropped. Refused where the victim shares the instrument's namespace or \
                    a device has a queue of its own already. `receive`: a packet rule that drops \
                    what comes above the rate.",
        client_sees: "`send`: streams share the rate; gaps grow once tokens need more than it. \
                      An event of a token is a few hundred bytes, so that only a small rate is \
                      felt. `receive`: prompts arrive slowly, TTFT grows with their length.",
        proof: "`send`: during the fault the root queue of each device was `tbf` \
                (`network.queue`), not before, not after, and packets went through it where they \
                are counted. `receive`: the rule dropped packets (`network.dropped-packets` \
                above 0). The same processes play the roles afterwards.",
        ends: "The host removes queue or rule; the watchdog does if the host cannot. The kernel \
               itself drops the rule of `receive` at its end.",
        stands_for: "A link that is shared with others, a traffic shaper, a degraded network card.",
        not_for: "A slow server or a slow GPU: the engine goes on at its own pace, and its \
                  output waits in buffers.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        grants: &[("network", "[\"vllm-0\"]")],
        example: "bytes_per_s = 20000\ndirection = \"send\"\nduration_ms = 10000",
        ..PLAIN
    };

    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error> {
        plan::end(context, "duration_ms", self.duration_ms).map(Some)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        let rule = match self.direction {
            Direction::Send => NetworkRule::LimitSend(self.bytes_per_s),
            Direction::Receive => NetworkRule::LimitReceive(self.bytes_per_s),
        };
        host.apply_network(&replica.id, rule, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let does = match self.direction {
            Direction::Send => "sends",
            Direction::Receive => "receives",
        };
        let (rate, length) = (self.bytes_per_s, self.duration_ms);
        format!("what {victims} {does} capped at {rate} bytes per second for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = match self.direction {
            Direction::Send => proof::queue_in_force(facts, "tbf")?,
            Direction::Receive => {
                let what = "packets above the rate dropped";
                proof::packets(facts, "network.dropped-packets", what)?
            }
        };
        proof::nothing_started_anew(facts)?;
        Ok(what)
    }
}
