//! Holds back what each victim sends.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, NetworkRule, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Longest delay.
const MAX_DELAY_MS: u64 = 60_000;

/// Configuration of `network-delay`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long each packet is held back, in milliseconds.
    #[schemars(range(min = 1, max = MAX_DELAY_MS))]
    pub delay_ms: u64,
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            delay_ms: 100,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let limits = (1, MAX_DELAY_MS);
        bounds::within(problems, "delay_ms", self.delay_ms, limits, " ms");
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "network-delay",
        summary: "Holds each packet that a victim sends back for a while.",
        mechanism: "The queueing discipline `netem` on each device of the victim's own network \
                    namespace but loopback. Refused with the reason where the kernel has none, \
                    where the victim shares the instrument's namespace, or where a device has a \
                    queue of its own already.",
        client_sees: "Everything comes later by the delay: TTFT, and the first event after the \
                      fire as one long gap; later gaps are as before, since each packet waits \
                      equally long. New connections take one delay more.",
        proof: "During the fault the root queue of each device was `netem` (`network.queue`), \
                not before, not after, and packets went through it where they are counted; the \
                same processes play the roles afterwards.",
        ends: "The host removes the queue; the watchdog does if the host cannot.",
        stands_for: "A detour, an overfull link with deep buffers, a replica in another region.",
        not_for: "A slow server: its own figures (queue, TTFT histogram) do not change. Nor \
                  jitter or loss.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        grants: &[("network", "[\"vllm-0\"]")],
        example: "delay_ms = 200\nduration_ms = 10000",
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
        let us = self.delay_ms.saturating_mul(1_000);
        host.apply_network(&replica.id, NetworkRule::Delay(us), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (delay, length) = (self.delay_ms, self.duration_ms);
        format!("what {victims} sends held back by {delay} ms for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = proof::queue_in_force(facts, "netem")?;
        proof::nothing_started_anew(facts)?;
        Ok(what)
    }
}
