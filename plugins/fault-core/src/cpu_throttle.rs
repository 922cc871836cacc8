//! Caps the processor time of each victim.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, Limit, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// A thousand cores.
const MAX_PERCENT: u32 = 100_000;

/// Configuration of `cpu-throttle`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Processor time, in percent of one core.
    #[schemars(range(min = 1, max = MAX_PERCENT))]
    pub percent: u32,
    /// How long it lasts, in milliseconds. It must end within the fault window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            percent: 20,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let limits = (1, MAX_PERCENT);
        bounds::within(problems, "percent", self.percent, limits, " %");
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "cpu-throttle",
        summary: "Caps the processor time of each victim for a while.",
        mechanism: "The processor quota of the victim's control group. Refused where the group \
                    holds processes of anyone else.",
        client_sees: "Gaps between tokens grow and become ragged in steps of 100 ms, the period \
                      of the quota; TTFT grows; with a small share requests pass their timeout \
                      and are censored.",
        proof: "The quota was in force during the fault (`cgroup.cpu-quota-percent`), another \
                one before, and the kernel held the group back in some periods \
                (`cgroup.throttled-periods` grew). A quota that is never reached is no fault.",
        ends: "The host writes the earlier quota back; the watchdog does if the host cannot.",
        stands_for: "A noisy neighbour, a container limit that is too small, a host whose cores \
                     are taken.",
        not_for: "A slow or throttled GPU: only the processor's share is less. A server that \
                  computes on a GPU may hardly feel it.",
        no_start_up: Some("the process goes on, nothing starts anew"),
        grants: &[("resources", "[\"vllm-0\"]")],
        example: "percent = 20\nduration_ms = 10000",
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
        host.apply_limit(&replica.id, &Limit::CpuPercent(self.percent), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (percent, length) = (self.percent, self.duration_ms);
        format!("processor time of {victims} capped at {percent} % of a core for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::throttled(facts, self.percent)
    }
}
