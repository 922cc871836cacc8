//! Has the container engine send a signal to the main process of each victim's container.

use blackstart_sdk::fault::{ArmContext, ContainerOperation, EffectId, Ending, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{self, Facts, Shown};
use crate::{About, Deadly, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `container-kill`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The signal, without `SIG`.
    pub signal: Deadly,
    /// How long after the fire the host starts the container again, in milliseconds; without it,
    /// the container stays down.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub down_ms: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            signal: Deadly::Kill,
            down_ms: None,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if let Some(ms) = self.down_ms {
            bounds::duration(problems, "down_ms", ms);
        }
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "container-kill",
        summary: "Kills the container of each victim through the container engine, which then \
                  does not restart it.",
        mechanism: "The container engine's kill: a signal to the container's main process, and \
                    every other process ends with it.",
        client_sees: "Through a published port the engine's proxy ends open connections some \
                      milliseconds after the kill (`truncated`); a new one connects and is \
                      closed at once, or is refused (`connect`).",
        proof: "The container was `running` before; during or after the fault it is down \
                (`exited`, `dead`, gone), or it was started once more since.",
        ends: "With `down_ms` the host starts the same container again that long after the fire; \
               the watchdog does if the host cannot. Without it the container stays down: the \
               engine counts a kill through it as a stop by hand, and **no restart policy brings \
               it back**. Outage and TTR then count as \"at least\".",
        stands_for: "An operator's `docker kill`, an orchestrator that removes its container: \
                     ends after which nobody is asked to restart it.",
        not_for: "A crash: the engine restarts a crashed server by its policy. For a crash send \
                  the signal to the process (`process-kill`), inside or outside a container.",
        ending: Ending::Permanent,
        grants: &[("container", "[\"vllm-0\"]")],
        example: "signal = \"KILL\"\ndown_ms = 5000",
        ..PLAIN
    };

    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error> {
        let end = |ms| plan::end(context, "down_ms", ms);
        self.down_ms.map(end).transpose()
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        let operation = ContainerOperation::Kill(self.signal.name().to_owned());
        host.run_container(&replica.id, &operation, when)
    }

    fn statement(&self, victims: &str, for_ms: Option<i64>) -> String {
        let what = format!(
            "SIG{} to the container of {victims} through its engine",
            self.signal.name()
        );
        match for_ms {
            Some(ms) => format!("{what}, started again after {ms} ms"),
            None => format!("{what}, not started again"),
        }
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::ended(facts)
    }
}
