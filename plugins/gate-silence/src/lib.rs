//! G3 silence (black-hole only): the victim fell silent, it did not refuse.
//!
//! A node that is lost answers nothing. If a request in flight on the victim ended errored, the
//! client was told of the loss, and the run is not representative of losing a node.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig};
use schemars::JsonSchema;
use serde::Deserialize;

/// Fault variants of which this gate speaks.
pub const BLACK_HOLES: [&str; 2] = ["black-hole", "network-black-hole"];

/// Limits of G3.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Most requests in flight on the victim that may end errored.
    pub max_victim_errored: u64,
}

impl PluginConfig for Config {}

/// The gate.
pub struct Silence;

blackstart_sdk::register!(gate: Silence);

impl ValidityGate for Silence {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "No request in flight on the black-holed victim ended errored.".to_owned(),
            id: "G3".to_owned(),
            title: "silence".to_owned(),
            severity: Severity::StripsLabel,
            label: Some("node-loss-representative".to_owned()),
            needs: vec!["inflight.victim_errored".to_owned()],
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
                "the fault is no network black-hole: its victim need not fall silent",
            ));
        }
        let mut check = Check::new(evidence);
        if let Some(errored) = check.scalar("inflight.victim_errored") {
            let most = config.max_victim_errored;
            check.require(
                errored <= most as f64,
                format!("{errored} requests in flight on the victim ended errored, at most {most}"),
            );
        }
        Ok(check.conclude())
    }
}
