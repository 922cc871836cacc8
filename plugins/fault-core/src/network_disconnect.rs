//! Takes the container of each victim off its networks.

use blackstart_sdk::fault::{ArmContext, ContainerOperation, EffectId, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Longest name of a network.
const MAX_NAME_BYTES: usize = 128;

/// Configuration of `network-disconnect`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The network; without it, all that the container is on.
    #[schemars(length(min = 1, max = MAX_NAME_BYTES))]
    pub network: Option<String>,
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            network: None,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let is_name = |n: &String| {
            (1..=MAX_NAME_BYTES).contains(&n.len()) && !n.contains(char::is_whitespace)
        };
        if self.network.as_ref().is_some_and(|n| !is_name(n)) {
            problems.add(
                "network",
                "no name of a network",
                format!(
                    "1 to {MAX_NAME_BYTES} bytes without spaces, as `docker network ls` shows it, \
                     or leave it out for all networks"
                ),
            );
        }
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "network-disconnect",
        summary: "Takes the container of each victim off one network, or off all, for a while.",
        mechanism: "The container engine's network disconnect, and connect with the same \
                    addresses.",
        client_sees: "Open streams stand still and go on when the container is back under its \
                      address. New connections fail after about 3 s (no route) instead of at \
                      once.",
        proof: "The container was on the network before and after the fault and not during it \
                (`container.networks`), and it is the same container (id and start) all along.",
        ends: "The host connects the container again; the watchdog does if the host cannot.",
        stands_for: "A container whose network is taken away: a network plugin that fails, a \
                     virtual interface that vanishes.",
        not_for: "A lost node: the gateway says after some seconds that there is no route, where \
                  a lost node says nothing (`black-hole`).",
        no_start_up: Some("a container that is off its network goes on, nothing starts anew"),
        grants: &[("container", "[\"vllm-0\"]")],
        example: "duration_ms = 10000",
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
        let operation = ContainerOperation::Disconnect(self.network.clone());
        host.run_container(&replica.id, &operation, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let networks = match &self.network {
            Some(name) => format!("network {name}"),
            None => "its networks".to_owned(),
        };
        let length = self.duration_ms;
        format!("container of {victims} taken off {networks} for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::off_the_network(facts, self.network.as_deref())
    }
}
