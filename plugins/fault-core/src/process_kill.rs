//! Sends a deadly signal to one process of each victim.

use blackstart_sdk::fault::{ArmContext, EffectId, Ending, FaultHost, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_ROLE_BYTES};
use crate::proof::{self, Facts, Shown};
use crate::{About, Deadly, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

/// Configuration of `process-kill`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// The signal, without `SIG`.
    pub signal: Deadly,
    /// The process that gets it, as the target names its processes (`api`, `engine`,
    /// `worker`).
    #[schemars(length(min = 1, max = MAX_ROLE_BYTES))]
    pub process: String,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            signal: Deadly::Kill,
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
        name: "process-kill",
        summary: "Kills one process of each victim with a signal (SIGKILL unless said \
                  otherwise); the victim comes back by its own restart policy.",
        mechanism: "The signal through a pidfd, to the process that was looked up before.",
        client_sees: "| victim | requests in flight | afterwards |\n\
                      | --- | --- | --- |\n\
                      | API process, SIGKILL | the connection ends: `truncated` or `reset` | `connect` until the new process listens |\n\
                      | engine core, SIGKILL | an error object inside the stream (`in_stream_error`), a `[DONE]` may follow | `http_status` while the API process is still there, then `connect` |\n\
                      | API process, SIGTERM | what the server's own shutdown does: an abort, an error, or completion | `connect` |",
        proof: "The process that had the role before is another one afterwards (another pid, or \
                the same pid with another start time), or it is gone or a zombie. A process that \
                lives on did not die: the run is invalid. That happens where a server handles \
                SIGTERM slowly or ignores it.\n\nThe statement names descendants that outlived \
                the main process, as its supervisor saw them at that moment, and what became of \
                them: gone when looked at (`orphans = \"kill\"` ends them within milliseconds), \
                or there to the end. Without a supervisor only those count that were still there \
                when looked at.",
        ends: "By the victim's own restart. For a launched replica that is `restart` in the \
               file; for a container its restart policy, since a signal to the process is a \
               crash to the engine. An engine kill needs `restart = \"always\"`: vLLM's API \
               process then exits with code 0, which `on-failure` does not restart. The segments \
               then say so, and outage and TTR count as \"at least\". For a running replica it \
               is that server's own supervisor. Nothing is undone, since a kill cannot be.",
        stands_for: "A crash of that process: an uncaught exception, a bad memory access, the \
                     out-of-memory killer, an operator's `kill -9`.",
        not_for: "The loss of a GPU, a node or a network: the kernel closes the sockets, and \
                  clients are told. SIGKILL stands for a crash, not for a GPU loss.",
        ending: Ending::VictimRestarts,
        grants: &[("process", "[\"vllm-0\"]")],
        example: "signal = \"KILL\"\nprocess = \"engine\"",
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
        host.send_signal(&replica.id, &self.process, self.signal.into(), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (signal, role) = (self.signal.name(), &self.process);
        format!("SIG{signal} to the {role} process of {victims}")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::process_died(facts, &self.process, self.signal.name())
    }
}
