//! Asks one process of each victim to stop (SIGTERM).

use blackstart_sdk::fault::{ArmContext, EffectId, Ending, FaultHost, Replica, Signal};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_ROLE_BYTES};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `graceful-stop`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The process that is asked, as the target names its processes (`api`, `engine`, `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            process: "api".to_owned(),
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        bounds::process(problems, &self.process);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "graceful-stop",
        summary: "Asks one process of each victim to stop (SIGTERM); the victim comes back by its \
                  own restart policy.",
        mechanism: "SIGTERM through a pidfd, to the process that was looked up before.",
        client_sees: "What the server's own shutdown does. vLLM aborts by default: open streams \
                      end in good order with finish reason `abort`, which counts as \
                      `short_completion` where the number of tokens is known. With a drain time \
                      they run on, and what does not fit into it is cut or falls silent. \
                      Afterwards `connect` until the new process listens.",
        proof: "The process that had the role before is another one afterwards (another pid, or \
                the same pid with another start time), or it is gone or a zombie. A server that \
                ignores SIGTERM, or drains to the end of the run, was not stopped: the run is \
                invalid.",
        ends: "By the victim's own restart. A server that stops in good order exits with code 0, \
               which the policy `on-failure` does **not** restart; use `always`.",
        stands_for: "A deployment, a drain, a scale-down, an operator's restart: the ends that a \
                     server is told of.",
        not_for: "A crash (`process-kill`), and not a GPU or node loss: the server has time to \
                  tell its clients.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\"]")],
        example: "process = \"api\"",
        ..PLAIN
    };

    fn check_replica(&self, replica: &Replica) -> Result<(), Error> {
        plan::has_process(replica, &self.process)
    }

    fn until(&self, _: &ArmContext) -> Result<Option<RunNs>, Error> {
        Ok(None)
    }

    fn schedule(
        &self,
        host: &mut impl FaultHost,
        replica: &Replica,
        when: Window,
    ) -> Result<EffectId, Error> {
        host.send_signal(&replica.id, &self.process, Signal::Term, when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        format!("SIGTERM to the {} process of {victims}", self.process)
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        let what = proof::process_died(facts, &self.process, "TERM")?;
        let code = facts.read("target.exit-code");
        Ok(match code.during.or(code.after) {
            Some(code) if !code.is_empty() => {
                format!("{what}; the server's last exit code is {code}")
            }
            _ => what,
        })
    }
}
