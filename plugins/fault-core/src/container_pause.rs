//! Pauses the container of each victim.

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

/// Configuration of `container-pause`.
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
        name: "container-pause",
        summary: "Pauses the container of each victim and lets it go on after a while.",
        mechanism: "The container engine's pause and unpause: the freezer, through the engine.",
        client_sees: "Open streams stand still, then go on with one long gap. A new connection \
                      through a published port is accepted by the engine's proxy and then silent.",
        proof: "The container was `paused` during the fault; before and after it the same \
                container (id and start) was `running`.",
        ends: "The host unpauses the container; the watchdog does if the host cannot.",
        stands_for: "A server that stands still as a whole, seen by its container engine: a \
                     snapshot, a live migration, an operator's pause.",
        not_for: "A crash: nothing is lost but time. Nor a lost network, where the server itself \
                  goes on working.",
        no_start_up: Some("a paused container goes on, nothing starts anew"),
        grants: &[("container", "[\"vllm-0\"]")],
        example: "duration_ms = 8000",
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
        host.run_container(&replica.id, &ContainerOperation::Pause, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!("container of {victims} paused for {} ms", self.duration_ms)
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::paused(facts)
    }
}
