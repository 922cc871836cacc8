//! Has the container engine restart the container of each victim.

use blackstart_sdk::fault::{ArmContext, ContainerOperation, EffectId, Ending, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_GRACE_S};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `container-restart`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the server may take to stop, in seconds; then it is killed.
    #[schemars(range(min = 0, max = MAX_GRACE_S))]
    pub grace_s: u32,
}

impl Default for Config {
    fn default() -> Self {
        Config { grace_s: 10 }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::within(problems, "grace_s", self.grace_s, (0, MAX_GRACE_S), " s");
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "container-restart",
        summary: "Restarts the container of each victim through the container engine.",
        mechanism: "The container engine's restart: the image's stop signal, SIGKILL after \
                    `grace_s`, and a start of the same container.",
        client_sees: "What the server's own shutdown does (see `graceful-stop`), then `connect` \
                      until the server listens again; through a published port new connections \
                      connect and are closed at once meanwhile.",
        proof: "The same container (id) has another start afterwards and is `running`.",
        ends: "By itself: the start is part of the operation. The engine's restart count does \
               not grow.",
        stands_for: "An operator's or a deployment tool's restart.",
        not_for: "A crash: the server is told, and the engine does not wait before the start as \
                  it does after repeated crashes.",
        ending: Ending::VictimRestarts,
        grants: &[("container", "[\"vllm-0\"]")],
        example: "grace_s = 2",
        ..PLAIN
    };

    fn until(&self, _: &ArmContext) -> Result<Option<RunNs>, Error> {
        Ok(None)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        host.run_container(
            &replica.id,
            &ContainerOperation::Restart(self.grace_s),
            when,
        )
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!(
            "container of {victims} restarted with {} s of grace",
            self.grace_s
        )
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::restarted(facts)
    }
}
