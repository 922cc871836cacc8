//! Stops one process of each victim with SIGSTOP; the host lets it go on with SIGCONT.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, Replica, Signal};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_ROLE_BYTES};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `process-freeze`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// How long the process stands still, in milliseconds. It must go on within the fault
    /// window.
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
    /// The process that is stopped, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            duration_ms: 5_000,
            process: "api".to_owned(),
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::duration(problems, "duration_ms", self.duration_ms);
        bounds::process(problems, &self.process);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "process-freeze",
        summary: "Stops one process of each victim (SIGSTOP) and lets it go on after a while \
                  (SIGCONT).",
        mechanism: "SIGSTOP through a pidfd, to the process that was looked up before; SIGCONT \
                    at the end.",
        client_sees: "Streams stand still, then go on with one long gap. With the API process \
                      frozen, the kernel still accepts connections for a while, and they get no \
                      answer. Requests that pass their client timeout meanwhile are censored; \
                      most others complete late and are not good.",
        proof: "The process was in state `T` during the fault; afterwards the very same process \
                (pid and start time) is not. If it died, never went on, or was replaced, the run \
                is invalid.",
        ends: "The host sends SIGCONT at the end; the watchdog does if the host cannot.\n\n\
               **Mind the probes.** The fault is visible only if a direct probe *fails*, after \
               `observe.probe_timeout` (2 s by default). A shorter freeze can pass unseen: \
               `outage_s` is then \"not measured\", while goodput, TTR and gaps still show it. \
               Freeze longer than the probe timeout, or shorten that.",
        stands_for: "A process that hangs: a long pause, a deadlock that ends, a host that swaps.",
        not_for: "A hanging GPU, where the process still runs, nor a network partition.",
        no_start_up: Some("a stopped process goes on, nothing starts anew"),
        grants: &[("process", "[\"vllm-0\"]")],
        example: "duration_ms = 8000\nprocess = \"engine\"",
        ..PLAIN
    };

    fn check_replica(&self, replica: &Replica) -> Result<(), Error> {
        plan::has_process(replica, &self.process)
    }

    fn until(&self, context: &ArmContext) -> Result<Option<RunNs>, Error> {
        plan::end(context, "duration_ms", self.duration_ms).map(Some)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        host.send_signal(&replica.id, &self.process, Signal::Stop, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (role, length) = (&self.process, self.duration_ms);
        format!("SIGSTOP to the {role} process of {victims} for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::stood_still(facts, &self.process)
    }
}
