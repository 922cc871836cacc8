//! G6 baseline: the service was healthy before the fault (baseline goodput ≥ 0.99).

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of G6.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Least goodput of the baseline window, as a fraction of the requests scheduled in it.
    #[schemars(range(min = 0, max = 1))]
    pub min_goodput: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config { min_goodput: 0.99 }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if !(0.0..=1.0).contains(&self.min_goodput) {
            problems.add(
                "min_goodput",
                format!("a goodput of {}", self.min_goodput),
                "a fraction from 0 to 1",
            );
        }
    }
}

/// The gate.
pub struct Baseline;

blackstart_sdk::register!(gate: Baseline);

impl ValidityGate for Baseline {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "The service was healthy before the fault.".to_owned(),
            id: "G6".to_owned(),
            title: "baseline".to_owned(),
            severity: Severity::InvalidatesRun,
            label: None,
            needs: vec!["goodput.baseline".to_owned()],
        }
    }

    fn evaluate(config: Config, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let mut check = Check::new(evidence);
        if let Some(goodput) = check.scalar("goodput.baseline") {
            let least = config.min_goodput;
            check.require(
                goodput >= least,
                format!("baseline goodput {goodput:.6}, at least {least}"),
            );
        }
        Ok(check.conclude())
    }
}
