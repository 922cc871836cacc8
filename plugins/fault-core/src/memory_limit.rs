//! Caps the memory of each victim and takes what is left, so that the kernel ends it.

use blackstart_sdk::fault::{ArmContext, EffectId, Ending, FaultHost, Limit, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

const MIB: u64 = 1 << 20;
/// Most that the helper is asked to take.
const MAX_HEADROOM_MIB: u64 = 65_536;

/// Configuration of `memory-limit`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Memory beyond what is in use at the fire, in MiB.
    #[schemars(range(min = 0, max = MAX_HEADROOM_MIB))]
    pub headroom_mib: u64,
    /// How long the limit stays, in milliseconds; the kernel ends the server at its begin.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            headroom_mib: 16,
            duration_ms: 10000,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let limits = (0, MAX_HEADROOM_MIB);
        bounds::within(problems, "headroom_mib", self.headroom_mib, limits, " MiB");
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "memory-limit",
        summary: "Caps the memory of each victim so that the kernel ends it (out of memory).",
        mechanism: "The memory limit of the victim's control group is set to what it uses plus \
                    `headroom_mib`; a helper in the group then takes what is left, and the \
                    kernel ends the process that uses most. Refused where the group holds \
                    processes of anyone else.",
        client_sees: "What a crash shows: connections end (`truncated` or `reset`), then \
                      `connect` until the server listens again. Where the kernel ends the \
                      engine, an error inside the stream.",
        proof: "The kernel counted a kill for want of memory in the group (`cgroup.oom-kills` \
                grew), or the engine says so of the container (`container.oom-killed`); *and* a \
                process of the victim is gone or another one.",
        ends: "By the victim's own restart. The host writes the earlier limit back at the end; \
               until then a server that starts again in the same group runs into it. A container \
               that is started again has a group of its own, without the limit.",
        stands_for: "The out-of-memory killer: a container limit that is too small, a leak, a \
                     cache that outgrows its node.",
        not_for: "A GPU that runs out of memory (CUDA OOM): that is an error inside the engine, \
                  and no process is killed.",
        ending: Ending::VictimRestarts,
        grants: &[("resources", "[\"vllm-0\"]")],
        example: "headroom_mib = 64\nduration_ms = 5000",
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
        let limit = Limit::MemoryHeadroomBytes(self.headroom_mib.saturating_mul(MIB));
        host.apply_limit(&replica.id, &limit, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (headroom, length) = (self.headroom_mib, self.duration_ms);
        format!("memory of {victims} capped at its use plus {headroom} MiB for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::out_of_memory(facts)
    }
}
