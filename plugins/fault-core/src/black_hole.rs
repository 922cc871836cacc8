//! Drops every packet of each victim, both ways.

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

/// The expiry that the method pins.
const PINNED_EXPIRY_MS: u64 = 120_000;

/// Configuration of `black-hole`.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long packets are dropped, in milliseconds; without it 120000, or to the end of the fault
    /// window where that comes first.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: Option<u64>,
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if let Some(ms) = self.duration_ms {
            bounds::duration(problems, "duration_ms", ms);
        }
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "black-hole",
        summary: "Drops every packet of each victim, both ways, for a while: the victim falls \
                  silent.",
        mechanism: "A packet rule that drops everything, both ways, in the network namespace of \
                    the victim; loopback is left alone, and where the victim shares the \
                    instrument's namespace only the port of its `base_url` is touched. Armed \
                    before the fire, with an expiry that the kernel keeps.",
        client_sees: "Silence: no reset, no end. Open streams stand still and are censored at \
                      the client timeout, unless the hole ends before; new connections get no \
                      answer. Once the rule is gone, TCP goes on where it stopped within a \
                      second or so for short holes, later for long ones.",
        proof: "The rule dropped packets (`network.dropped-packets` above 0), and the same \
                processes play the roles afterwards.",
        ends: "The kernel itself drops the rule at its end, even if the instrument and its \
               watchdog are gone; the host removes the table.",
        stands_for: "The loss of a node or of its network: a power cut, a kernel panic, a pulled \
                     cable. The run carries the label `node-loss-representative` where gates G3 \
                     (no request in flight on the victim ended with an error) and G4 (the dead \
                     endpoint stayed routable for 20 s and took traffic) hold.",
        not_for: "A crash of the server on a node that lives, where the kernel closes the \
                  sockets and clients are told (`process-kill`). The victim goes on meanwhile \
                  and comes back warm: start-up times of a lost node are not in it.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        labels: &["node-loss-representative"],
        grants: &[("network", "[\"vllm-0\"]")],
        example: "duration_ms = 30000",
        ..PLAIN
    };

    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error> {
        let ms = self.duration_ms.unwrap_or_else(|| {
            let room = u64::try_from(plan::room_ms(context)).unwrap_or_default();
            PINNED_EXPIRY_MS.min(room)
        });
        plan::end(context, "duration_ms", ms).map(Some)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        host.apply_network(&replica.id, NetworkRule::DropAll, when)
    }

    fn statement(&self, victims: &str, for_ms: Option<i64>) -> String {
        let ms = for_ms.unwrap_or_default();
        format!("every packet of {victims} dropped for {ms} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = proof::packets(facts, "network.dropped-packets", "packets dropped")?;
        proof::nothing_started_anew(facts)?;
        Ok(what)
    }
}
