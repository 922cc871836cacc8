//! G4 staleness (black-hole only): the dead endpoint stayed routable and took traffic.
//!
//! When a node is lost, the service keeps sending to it until something notices. A run in which
//! that took less than 20 s, or in which nothing was sent there meanwhile, is not representative
//! of losing a node.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Fault variants of which this gate speaks.
pub const BLACK_HOLES: [&str; 2] = ["black-hole", "network-black-hole"];

/// Limits of G4.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Least time that the dead endpoint stays routable, in seconds.
    #[schemars(range(min = 0))]
    pub min_window_s: f64,
    /// Least number of requests that are sent to it in that time.
    #[schemars(range(min = 1))]
    pub min_requests: u64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_window_s: 20.0,
            min_requests: 1,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if self.min_window_s < 0.0 {
            let message = format!("a time of {} s", self.min_window_s);
            problems.add("min_window_s", message, "a number of at least 0");
        }
        if self.min_requests == 0 {
            problems.add("min_requests", "0 requests prove no traffic", "at least 1");
        }
    }
}

/// The gate.
pub struct Staleness;

blackstart_sdk::register!(gate: Staleness);

impl ValidityGate for Staleness {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "The dead endpoint stayed routable and took traffic in that time.".to_owned(),
            id: "G4".to_owned(),
            title: "staleness".to_owned(),
            severity: Severity::StripsLabel,
            label: Some("node-loss-representative".to_owned()),
            needs: ["staleness.window_s", "staleness.victim_bound_requests"]
                .map(str::to_owned)
                .to_vec(),
        }
    }

    fn evaluate(config: Config, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let black_hole = |variant: &str| BLACK_HOLES.contains(&variant);
        if !evidence
            .faults()
            .iter()
            .any(|f| black_hole(&f.variant_name))
        {
            return Ok(Finding::not_applicable(
                "the fault is no network black-hole: its endpoint need not stay routable",
            ));
        }
        let mut check = Check::new(evidence);
        if let Some(window_s) = check.scalar("staleness.window_s") {
            let least = config.min_window_s;
            check.require(
                window_s >= least,
                format!(
                    "the dead endpoint stayed routable for {window_s:.3} s, at least {least} s"
                ),
            );
        }
        if let Some(requests) = check.scalar("staleness.victim_bound_requests") {
            let least = config.min_requests;
            check.require(
                requests >= least as f64,
                format!("{requests} requests were sent to it in that time, at least {least}"),
            );
        }
        Ok(check.conclude())
    }
}
