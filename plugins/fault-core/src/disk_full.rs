//! Fills a file system of each victim.

use blackstart_sdk::fault::{ArmContext, EffectId, FaultHost, Fill, Limit, Replica};
use blackstart_sdk::{Error, PluginConfig, Problems, RunNs, Window};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::about::PLAIN;
use crate::bounds::{self, MAX_DURATION_MS, MAX_PATH_BYTES};
use crate::proof::{self, Facts, Shown};
use crate::{About, OnEach, OneEffect, plan};

/// The armed fault.
pub type Fault = OnEach<Config>;

const MIB: u64 = 1 << 20;
/// Most space that can be asked to be left.
const MAX_LEAVE_MIB: u64 = 1_048_576;

/// Configuration of `disk-full`.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// A folder as the victim's main process sees it, on the file system that is filled.
    #[schemars(length(min = 1, max = MAX_PATH_BYTES))]
    pub path: String,
    /// Space that is left, in MiB.
    #[serde(default)]
    #[schemars(range(min = 0, max = MAX_LEAVE_MIB))]
    pub leave_mib: u64,
    /// How long the file system stays full, in milliseconds. It must be given back within the
    /// fault window.
    #[serde(default = "default_duration_ms")]
    #[schemars(range(min = 1, max = MAX_DURATION_MS))]
    pub duration_ms: u64,
}

fn default_duration_ms() -> u64 {
    10_000
}

impl Config {
    fn leave_bytes(&self) -> u64 {
        self.leave_mib.saturating_mul(MIB)
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        let path = self.path.as_str();
        let up = path.split('/').any(|part| part == "..");
        if !path.starts_with('/') || up || path.contains('\0') || path.len() > MAX_PATH_BYTES {
            problems.add(
                "path",
                format!("`{path:.80}` is no absolute path without `..`"),
                format!(
                    "a folder as the server sees it, such as `/data`, in at most {MAX_PATH_BYTES} \
                     bytes"
                ),
            );
        }
        let limits = (0, MAX_LEAVE_MIB);
        bounds::within(problems, "leave_mib", self.leave_mib, limits, " MiB");
        bounds::duration(problems, "duration_ms", self.duration_ms);
    }
}

impl OneEffect for Config {
    const ABOUT: &'static About = &About {
        name: "disk-full",
        summary: "Fills a file system of each victim for a while.",
        mechanism: "A file without a name on that file system takes the space (`fallocate`). It \
                    vanishes with the process that holds it, however that ends. Refused where \
                    anything but the victim uses the file system.",
        client_sees: "Often nothing: a server that has its weights in memory does not write. \
                      What does write fails: logs, caches of compiled graphs, uploads, spilled \
                      key-value caches. Whether requests fail with it is what the run finds out.",
        proof: "During the fault no more than `leave_mib` was left (`disk.available-bytes`, give \
                or take 1 MiB), and more before.",
        ends: "The host lets the file go, and the space is free again. A server that has crashed \
               meanwhile comes back by its own restart.",
        stands_for: "A full disk: logs or core dumps that nobody removes, a cache without a \
                     limit, a neighbour on the volume.",
        not_for: "A slow or failing disk: reads go on as before.",
        grants: &[("resources", "[\"vllm-0\"]")],
        example: "path = \"/data\"\nleave_mib = 0\nduration_ms = 10000",
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
        let fill = Fill {
            path: self.path.clone(),
            leave_bytes: self.leave_bytes(),
        };
        host.apply_limit(&replica.id, &Limit::FillDisk(fill), when)
    }

    fn statement(&self, victims: &str, _: Option<i64>) -> String {
        let (path, leave, length) = (&self.path, self.leave_mib, self.duration_ms);
        format!("`{path}` of {victims} filled but for {leave} MiB for {length} ms")
    }

    fn shown(&self, facts: &Facts<'_>) -> Shown {
        proof::disk_filled(facts, self.leave_bytes())
    }
}
