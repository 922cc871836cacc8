//! Answers every TCP packet of each victim with a reset.

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

/// Configuration of `connection-reset`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config { duration_ms: 5000 }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "connection-reset",
        summary: "Answers every TCP packet to each victim with a reset for a while.",
        mechanism: "A packet rule that answers what arrives with a TCP reset, in the network \
                    namespace of the victim; loopback is left alone, and where the victim shares \
                    the instrument's namespace only the port of its `base_url` is touched.",
        client_sees: "Open streams end with `reset` at their next packet; new connections are \
                      refused (`connect`). The client learns of it at once.",
        proof: "The rule rejected packets (`network.rejected-packets` above 0), and the same \
                processes play the roles afterwards.",
        ends: "The kernel itself drops the rule at its end, even if the instrument and its \
               watchdog are gone; the host removes the table.",
        stands_for: "A middlebox or firewall that forgets or forbids its connections, a load \
                     balancer that drops them, a port that closes under its clients.",
        not_for: "A lost node or cable, which says nothing (`black-hole`), nor a crash: the \
                  server goes on, and its engine may go on computing for clients that are gone.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        grants: &[("network", "[\"vllm-0\"]")],
        example: "duration_ms = 5000",
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
        host.apply_network(&replica.id, NetworkRule::RejectWithReset, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!(
            "every TCP packet of {victims} answered by a reset for {} ms",
            self.duration_ms
        )
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = proof::packets(
            facts,
            "network.rejected-packets",
            "packets answered by a reset",
        )?;
        proof::nothing_started_anew(facts)?;
        Ok(what)
    }
}
