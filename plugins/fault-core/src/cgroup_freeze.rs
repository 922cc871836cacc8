//! Freezes the control group of each victim: all its processes stand still at once.

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

/// Configuration of `cgroup-freeze`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the control group stays frozen, in milliseconds. It must be thawed within the fault
    /// window.
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
        name: "cgroup-freeze",
        summary: "Freezes the control group of each victim and thaws it after a while.",
        mechanism: "The freezer of the control group: `freezer.state` (version 1) or \
                    `cgroup.freeze` (version 2). Refused where the group holds processes of \
                    anyone else.",
        client_sees: "What a frozen server shows: streams stand still, then go on with one long \
                      gap; the kernel accepts new connections for a while, and they get no \
                      answer. Requests that pass their client timeout meanwhile are censored.",
        proof: "The group was frozen during the fault (`cgroup.frozen`), not before, not after; \
                afterwards the same processes play the roles.",
        ends: "The host thaws the group; the watchdog does if the host cannot.",
        stands_for: "A whole server that stands still: a host that swaps, a suspended virtual \
                     machine, a container that its node has paused.",
        not_for: "A hanging GPU or engine, where the API process goes on answering \
                  (`process-freeze` with `process = \"engine\"`), nor a lost node, which does \
                  not come back.",
        no_start_up: Some("frozen processes go on, nothing starts anew"),
        grants: &[("resources", "[\"vllm-0\"]")],
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
        host.apply_limit(&replica.id, &Limit::Freeze, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!(
            "control group of {victims} frozen for {} ms",
            self.duration_ms
        )
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::frozen(facts)
    }
}
