//! G7 queue: no replica was saturated before the fault.
//!
//! The mean of each replica's waiting-queue gauge over the baseline must be ≤ 1.0. The mean stands
//! beside its number of samples and of failed scrapes; without a sample it is not observed.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of G7.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Greatest mean of a replica's waiting-queue gauge over the baseline, in requests.
    #[schemars(range(min = 0))]
    pub max_mean_waiting: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_mean_waiting: 1.0,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        if self.max_mean_waiting < 0.0 {
            problems.add(
                "max_mean_waiting",
                format!("a queue of {} requests", self.max_mean_waiting),
                "a number of at least 0",
            );
        }
    }
}

/// The gate.
pub struct Queue;

blackstart_sdk::register!(gate: Queue);

impl ValidityGate for Queue {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "No replica had requests waiting in a queue before the fault.".to_owned(),
            id: "G7".to_owned(),
            title: "queue".to_owned(),
            severity: Severity::InvalidatesRun,
            label: None,
            needs: [
                "waiting.mean.<replica>",
                "waiting.samples.<replica>",
                "waiting.scrape_errors.<replica>",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn evaluate(config: Config, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let mut check = Check::new(evidence);
        let replicas = evidence.replicas();
        if replicas.is_empty() {
            check.unobserved("the run names no replica");
        }
        for replica in &replicas {
            judge_replica(&config, &mut check, replica);
        }
        Ok(check.conclude())
    }
}

fn judge_replica(config: &Config, check: &mut Check<'_>, replica: &str) {
    let samples = check.scalar(&format!("waiting.samples.{replica}"));
    let errors = check.scalar(&format!("waiting.scrape_errors.{replica}"));
    let text =
        |n: Option<f64>| n.map_or_else(|| "an unknown number of".to_owned(), |n| n.to_string());
    match samples {
        Some(samples) if samples < 1.0 => {
            check.unobserved(format!(
                "{replica}: no sample of the queue in the baseline, {} failed scrapes",
                text(errors)
            ));
            return;
        }
        _ => {}
    }
    if let Some(mean) = check.scalar(&format!("waiting.mean.{replica}")) {
        let most = config.max_mean_waiting;
        check.require(
            mean <= most,
            format!(
                "{replica}: {mean:.3} requests waiting on average of {} samples ({} failed \
                 scrapes), at most {most}",
                text(samples),
                text(errors)
            ),
        );
    }
}
