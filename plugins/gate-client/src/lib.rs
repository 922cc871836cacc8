//! G2 client: the client kept its schedule, so that what it measured is the server.
//!
//! Send skew p99 ≤ 5 ms and max ≤ 50 ms; no request scheduled but never dispatched; CPU of the
//! client host ≤ 70 % in every 5 s window, of which at least one was measured whole; scheduler
//! stall p99 ≤ 1 ms.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, PluginConfig, Problems};
use schemars::JsonSchema;
use serde::Deserialize;

/// Limits of G2.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Greatest 99th percentile of send skew, in microseconds.
    #[schemars(range(min = 0))]
    pub max_skew_us_p99: f64,
    /// Greatest send skew of any request, in microseconds.
    #[schemars(range(min = 0))]
    pub max_skew_us_max: f64,
    /// Most requests that were scheduled and never dispatched.
    pub max_undispatched: u64,
    /// Greatest CPU use of the client host in a 5 s window, in percent of all its cores.
    #[schemars(range(min = 0, max = 100))]
    pub max_cpu_percent: f64,
    /// Greatest 99th percentile of scheduler stall, in microseconds.
    #[schemars(range(min = 0))]
    pub max_stall_us_p99: f64,
}

impl Default for Config {
    fn default() -> Self {
        Config {
            max_skew_us_p99: 5_000.0,
            max_skew_us_max: 50_000.0,
            max_undispatched: 0,
            max_cpu_percent: 70.0,
            max_stall_us_p99: 1_000.0,
        }
    }
}

impl PluginConfig for Config {
    fn check(&self, problems: &mut Problems) {
        for (key, value) in [
            ("max_skew_us_p99", self.max_skew_us_p99),
            ("max_skew_us_max", self.max_skew_us_max),
            ("max_cpu_percent", self.max_cpu_percent),
            ("max_stall_us_p99", self.max_stall_us_p99),
        ] {
            if value < 0.0 {
                problems.add(key, format!("a limit of {value}"), "a number of at least 0");
            }
        }
        if self.max_cpu_percent > 100.0 {
            let message = format!("a limit of {} % holds always", self.max_cpu_percent);
            problems.add("max_cpu_percent", message, "a number up to 100");
        }
    }
}

/// The gate.
pub struct Client;

blackstart_sdk::register!(gate: Client);

impl ValidityGate for Client {
    type Config = Config;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "The client kept its schedule: skew, CPU and stalls within limits.".to_owned(),
            id: "G2".to_owned(),
            title: "client".to_owned(),
            severity: Severity::InvalidatesRun,
            label: None,
            needs: [
                "client.skew_us_p99",
                "client.skew_us_max",
                "client.undispatched",
                "client.cpu_percent_max_5s",
                "client.cpu_windows",
                "client.stall_us_p99",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn evaluate(config: Config, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let mut check = Check::new(evidence);
        at_most(
            &mut check,
            "client.skew_us_p99",
            "send skew p99",
            config.max_skew_us_p99,
            "µs",
        );
        at_most(
            &mut check,
            "client.skew_us_max",
            "send skew max",
            config.max_skew_us_max,
            "µs",
        );
        let undispatched = config.max_undispatched as f64;
        at_most(
            &mut check,
            "client.undispatched",
            "never dispatched",
            undispatched,
            "requests",
        );
        match check.scalar("client.cpu_windows") {
            Some(windows) if windows >= 1.0 => {
                let what = format!("client CPU, greatest of {windows} windows of 5 s,");
                at_most(
                    &mut check,
                    "client.cpu_percent_max_5s",
                    &what,
                    config.max_cpu_percent,
                    "%",
                );
            }
            Some(_) => check.unobserved("no whole 5 s window of client CPU was measured"),
            None => {}
        }
        at_most(
            &mut check,
            "client.stall_us_p99",
            "scheduler stall p99",
            config.max_stall_us_p99,
            "µs",
        );
        Ok(check.conclude())
    }
}

fn at_most(check: &mut Check<'_>, scalar: &str, what: &str, limit: f64, unit: &str) {
    if let Some(value) = check.scalar(scalar) {
        check.require(
            value <= limit,
            format!("{what} {value} {unit}, at most {limit} {unit}"),
        );
    }
}
