//! G1 share: each replica got its share of the baseline's requests.
//!
//! Each replica's share must be 45–55 %. The band is enforced where routing is per request
//! (layer 7); where it is per connection the shares only describe. Fewer replicas seen than
//! declared fail in either case. With one replica there is nothing to share.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of G1.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Least share of a replica, in percent of the baseline's requests.
    #[schemars(range(min = 0, max = 100))]
    pub min_percent: f64,
    /// Greatest share of a replica, in percent of the baseline's requests.
    #[schemars(range(min = 0, max = 100))]
    pub max_percent: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            min_percent: 45.0,
            max_percent: 55.0,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        for (key, value) in [
            ("min_percent", self.min_percent),
            ("max_percent", self.max_percent),
        ] {
            if !(0.0..=100.0).contains(&value) {
                problems.add(
                    key,
                    format!("a share of {value} %"),
                    "a number from 0 to 100",
                );
            }
        }
        if self.min_percent > self.max_percent {
            problems.add(
                "min_percent",
                format!(
                    "{} is above max_percent {}",
                    self.min_percent, self.max_percent
                ),
                "at most max_percent",
            );
        }
    }
}

/// The gate.
pub struct Share;

blackstart_sdk::register!(gate: Share);

impl ValidityGate for Share {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "Each replica got its share of the baseline's requests.".to_owned(),
            id: "G1".to_owned(),
            title: "share".to_owned(),
            severity: Severity::InvalidatesRun,
            label: None,
            needs: [
                "share.<replica>",
                "share.replicas_seen",
                "share.replicas_declared",
                "routing.per_request",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn evaluate(config: Config, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let mut check = Check::new(evidence);
        let declared = check.scalar("share.replicas_declared");
        if declared == Some(1.0) {
            return Ok(Finding::not_applicable(
                "one replica is declared: there is nothing to share",
            ));
        }
        let seen = check.scalar("share.replicas_seen");
        if let (Some(seen), Some(declared)) = (seen, declared) {
            check.require(
                seen >= declared,
                format!("{seen} of {declared} declared replicas seen in the baseline"),
            );
        }
        judge_shares(&config, &mut check, evidence);
        Ok(check.conclude())
    }
}

fn judge_shares(config: &Config, check: &mut Check<'_>, evidence: &dyn Evidence) {
    let replicas = evidence.replicas();
    if replicas.is_empty() {
        check.unobserved("the run names no replica");
    }
    let (min, max) = (config.min_percent, config.max_percent);
    let mut outside = Vec::new();
    let mut inside = Vec::new();
    for replica in &replicas {
        let Some(share) = check.scalar(&format!("share.{replica}")) else {
            continue;
        };
        let text = format!("{replica} got {share:.2} %");
        if (min..=max).contains(&share) {
            &mut inside
        } else {
            &mut outside
        }
        .push(text);
    }
    let shares = |outside: &[String]| format!("{}, allowed {min} to {max} %", outside.join(", "));
    if outside.is_empty() {
        // Holds whichever way requests are routed: whether that is known decides nothing.
        if !inside.is_empty() {
            check.require(true, shares(&inside));
        }
        return;
    }
    match check.scalar("routing.per_request") {
        Some(0.0) => {
            let all = [outside, inside].concat().join(", ");
            check.note(format!(
                "{all}; routing is per connection: shares only describe"
            ));
        }
        Some(_) => check.require(false, shares(&outside)),
        // `scalar` has noted that it is not known whether the band is enforced.
        None => check.unobserved(format!(
            "whether the band applies is not known, and {}",
            shares(&outside)
        )),
    }
}
