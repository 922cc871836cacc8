//! What a variant is, for its reader: the plugin's own description and `docs/faults.md` say the
//! same, since both are made of this.

use blackstart_sdk::fault::{Ending, FaultDescription};
use blackstart_sdk::field;

/// A variant, for people. The longer texts are Markdown.
#[derive(Debug)]
pub struct About {
    /// Name of the plugin.
    pub name: &'static str,
    /// One line: what it does.
    pub summary: &'static str,
    /// How the host does it.
    pub mechanism: &'static str,
    /// What the client sees.
    pub client_sees: &'static str,
    /// What must be seen for the fault to count.
    pub proof: &'static str,
    /// How it ends, in full.
    pub ends: &'static str,
    /// What happens in reality that looks like this.
    pub stands_for: &'static str,
    /// What it must not be taken for.
    pub not_for: &'static str,
    /// How it ends, for the host.
    pub ending: Ending,
    /// Why nothing starts anew under it; none where a start-up can follow.
    pub no_start_up: Option<&'static str>,
    /// Labels that the run carries when its label gates hold.
    pub labels: &'static [&'static str],
    /// What must be granted: keys of `[fault.grant]` and their values in the example.
    pub grants: &'static [(&'static str, &'static str)],
    /// `victims` of the example.
    pub victims: &'static str,
    /// Tables that the example needs before `[fault]`.
    pub example_target: &'static str,
    /// `[fault.config]` of the example, one `key = value` a line.
    pub example: &'static str,
}

/// What is common to many; the others are named with it.
pub(crate) const PLAIN: About = About {
    name: "",
    summary: "",
    mechanism: "",
    client_sees: "",
    proof: "",
    ends: "",
    stands_for: "",
    not_for: "",
    ending: Ending::HostUndoes,
    no_start_up: None,
    labels: &[],
    grants: &[],
    victims: "[\"vllm-0\"]",
    example_target: "",
    example: "",
};

/// A variant that says what it is.
pub trait Documented {
    /// What it is.
    const ABOUT: &'static About;
}

/// Segments of a start-up.
const START_UP: [&str; 10] = [
    "reschedule",
    "container_start",
    "log_bringup",
    "engine_init",
    "weight_download",
    "weight_load",
    "torch_compile",
    "profile_kv_capture",
    "engine_ready",
    "server_ready",
];

impl About {
    /// What the plugin tells the host.
    pub(crate) fn description(&self) -> FaultDescription {
        let without = |reason| START_UP.map(|segment| field(segment, reason)).to_vec();
        FaultDescription {
            summary: self.summary.to_owned(),
            ending: self.ending,
            without_segments: self.no_start_up.map(without).unwrap_or_default(),
            labels: self.labels.iter().map(|l| (*l).to_owned()).collect(),
        }
    }
}
