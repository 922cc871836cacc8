//! G1 share: each replica got its share of the baseline's requests.
//!
//! Of two replicas each one's share must be 45–55 %. The band is enforced where routing is per
//! request (layer 7); where it is per connection the shares only describe. Fewer replicas seen than
//! declared fail in either case. With one replica there is nothing to share.
//!
//! The method states this one band, and three replicas that share fairly have 33 % each: of more than
//! two replicas the band says nothing, so that the gate does not apply. A campaign can set a band of
//! its own.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{
    Check, Evidence, Finding, GateDescription, Severity, ValidityGate, Verdict,
};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of G1.
#[derive(Debug, Clone, PartialEq, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Least share of a replica, in percent of the baseline's requests. 45 with two replicas.
    #[schemars(range(min = 0, max = 100))]
    pub min_percent: Option<f64>,
    /// Greatest share of a replica, in percent of the baseline's requests. 55 with two replicas.
    #[schemars(range(min = 0, max = 100))]
    pub max_percent: Option<f64>,
}

/// The method's least share of a replica of two.
const MIN_PERCENT: f64 = 45.0;

/// The method's greatest share of a replica of two.
const MAX_PERCENT: f64 = 55.0;

impl Config {
    /// The band for so many replicas: the configured one, else the method's for two; `None` = the
    /// method states none. Of a band that is configured by half, the other half is the method's for
    /// two replicas, and holds always for more.
    fn band(&self, declared: f64) -> Option<(f64, f64)> {
        match (self.min_percent, self.max_percent) {
            (min, max) if declared == 2.0 => {
                Some((min.unwrap_or(MIN_PERCENT), max.unwrap_or(MAX_PERCENT)))
            }
            (None, None) => None,
            (min, max) => Some((min.unwrap_or(0.0), max.unwrap_or(100.0))),
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        for (key, value) in [
            ("min_percent", self.min_percent),
            ("max_percent", self.max_percent),
        ] {
            let Some(value) = value else { continue };
            if !(0.0..=100.0).contains(&value) {
                problems.add(
                    key,
                    format!("a share of {value} %"),
                    "a number from 0 to 100",
                );
            }
        }
        // Whether one that is set alone leaves room shows only where the replicas are counted.
        let (min, max) = (self.min_percent, self.max_percent);
        if let (Some(min), Some(max)) = (min, max)
            && min > max
        {
            problems.add(
                "min_percent",
                format!("{min} is above max_percent {max}"),
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
        let Some(declared) = declared else {
            return Ok(check.conclude());
        };
        let Some(band) = config.band(declared) else {
            // Whether each replica was seen is judged all the same.
            return Ok(match (seen, check.conclude()) {
                (Some(_), finding) if finding.verdict == Verdict::Pass => {
                    Finding::not_applicable(format!(
                        "the method states a band of shares for two replicas, and {declared} are declared (all of them were seen); set min_percent and max_percent in a free profile to enforce one"
                    ))
                }
                (_, finding) => finding,
            });
        };
        if band.0 > band.1 {
            check.unobserved(format!(
                "no share can lie from {} to {} %: set both min_percent and max_percent",
                band.0, band.1
            ));
            return Ok(check.conclude());
        }
        judge_shares(band, &mut check, evidence);
        Ok(check.conclude())
    }
}

fn judge_shares((min, max): (f64, f64), check: &mut Check<'_>, evidence: &dyn Evidence) {
    let replicas = evidence.replicas();
    if replicas.is_empty() {
        check.unobserved("the run names no replica");
    }
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
