//! Has the container engine stop the container of each victim in good order.

use blackstart_sdk::fault::{ArmContext, ContainerOperation, EffectId, Ending, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_GRACE_S};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `container-stop`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the server may take to stop, in seconds; then it is killed.
    #[schemars(range(min = 0, max = MAX_GRACE_S))]
    pub grace_s: u32,
    /// How long after the fire the host starts the container again, in milliseconds; without it,
    /// the container stays down.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub down_ms: Option<u64>,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            grace_s: 10,
            down_ms: None,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::within(problems, "grace_s", self.grace_s, (0, MAX_GRACE_S), " s");
        if let Some(ms) = self.down_ms {
            bounds::duration(problems, "down_ms", ms);
            let grace_ms = u64::from(self.grace_s).saturating_mul(1_000);
            if ms <= grace_ms {
                problems.add(
                    "down_ms",
                    format!("{ms} ms, when the stop itself may take {grace_ms} ms"),
                    format!("more than {grace_ms}, or a smaller `grace_s`"),
                );
            }
        }
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "container-stop",
        summary: "Stops the container of each victim in good order; the engine then does not \
                  restart it.",
        mechanism: "The container engine's stop: the image's stop signal (SIGTERM unless said \
                    otherwise) to the main process, and SIGKILL after `grace_s`.",
        client_sees: "What the server's own shutdown does (see `graceful-stop`) and, where it \
                      overruns `grace_s`, a cut. Afterwards new connections are refused \
                      (`connect`), or connect and are closed at once through a published port.",
        proof: "The container was `running` before; during or after the fault it is down \
                (`exited`, `dead`, gone), or it was started once more since.",
        ends: "With `down_ms` the host starts the same container again that long after the fire; \
               the watchdog does if the host cannot. Without it the container stays down: the \
               engine counts a stop through it as a stop by hand, and **no restart policy brings \
               it back**. Outage and TTR then count as \"at least\".",
        stands_for: "A replica that is taken out of service: a scale-down, maintenance, `docker \
                     stop`.",
        not_for: "A crash (`process-kill`) or a restart (`container-restart`).",
        ending: Ending::Permanent,
        grants: &[("container", "[\"vllm-0\"]")],
        example: "grace_s = 2\ndown_ms = 5000",
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
        host.run_container(&replica.id, &ContainerOperation::Stop(self.grace_s), when)
    }

    fn statement(&self, victims: &str, for_ms: Option<i64>) -> String {
        let what = format!(
            "container of {victims} stopped with {} s of grace",
            self.grace_s
        );
        match for_ms {
            Some(ms) => format!("{what}, started again {ms} ms after the fire"),
            None => format!("{what}, not started again"),
        }
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::ended(facts)
    }
}
