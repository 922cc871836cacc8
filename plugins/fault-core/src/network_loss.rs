//! Loses a share of the packets of each victim.

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

/// Smallest share that is still a fault.
const MIN_PERCENT: f64 = 0.01;
/// All of them.
const MAX_PERCENT: f64 = 100.0;

/// Configuration of `network-loss`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Share of the packets that is lost, in percent.
    #[schemars(range(min = MIN_PERCENT, max = MAX_PERCENT))]
    pub percent: f64,
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            percent: 5.0,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let limits = (MIN_PERCENT, MAX_PERCENT);
        bounds::within(problems, "percent", self.percent, limits, " %");
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "network-loss",
        summary: "Loses a share of the packets of each victim, both ways, for a while.",
        mechanism: "A packet rule that drops each packet with the given probability, both ways, \
                    in the network namespace of the victim; loopback is left alone, and where \
                    the victim shares the instrument's namespace only the port of its `base_url` \
                    is touched.",
        client_sees: "TCP sends again what is lost: gaps of 0.2 s and more in some streams, slow \
                      or failed connects. At a high share streams stand still like in a black \
                      hole.",
        proof: "The rule dropped packets (`network.dropped-packets` above 0), and the same \
                processes play the roles afterwards.",
        ends: "The kernel itself drops the rule at its end, even if the instrument and its \
               watchdog are gone; the host removes the table.",
        stands_for: "A bad cable or transceiver, a congested link, a failing switch port.",
        not_for: "A link that is merely slow (`network-bandwidth`), nor losses between the \
                  processes of a replica: those run over loopback or a fabric that is not \
                  touched.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        grants: &[("network", "[\"vllm-0\"]")],
        example: "percent = 10\nduration_ms = 10000",
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
        host.apply_network(&replica.id, NetworkRule::Lose(self.percent), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (percent, length) = (self.percent, self.duration_ms);
        format!("{percent} % of the packets of {victims} lost for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = proof::packets(facts, "network.dropped-packets", "packets lost")?;
        proof::nothing_started_anew(facts)?;
        Ok(what)
    }
}
