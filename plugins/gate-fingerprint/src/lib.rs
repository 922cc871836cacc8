//! G5 fingerprint: accelerator model, driver, clocks and power policy are equal across replicas
//! and runs.
//!
//! Every reading that must be there is (`fingerprint.sources` equals `fingerprint.expected`: each
//! replica before and after the run), and all accelerators have one fingerprint
//! (`fingerprint.distinct`). Without a declared accelerator there is nothing to compare. The host
//! compares the runs of a campaign with each other; a gate sees one run.

#[cfg(test)]
mod tests;

use blackstart_sdk::gate::{Check, Evidence, Finding, GateDescription, Severity, ValidityGate};
use blackstart_sdk::{Error, NoConfig};

/// The gate.
pub struct Fingerprint;

blackstart_sdk::register!(gate: Fingerprint);

impl ValidityGate for Fingerprint {
    type Config = NoConfig;

    fn describe() -> GateDescription {
        GateDescription {
            summary: "All replicas and runs had equal accelerators, drivers, clocks and power \
                      policies."
                .to_owned(),
            id: "G5".to_owned(),
            title: "fingerprint".to_owned(),
            severity: Severity::InvalidatesRun,
            label: None,
            needs: [
                "target.accelerators_declared",
                "fingerprint.expected",
                "fingerprint.sources",
                "fingerprint.distinct",
            ]
            .map(str::to_owned)
            .to_vec(),
        }
    }

    fn evaluate(_: NoConfig, evidence: &dyn Evidence) -> Result<Finding, Error> {
        let mut check = Check::new(evidence);
        let declared = check.scalar("target.accelerators_declared");
        if declared == Some(0.0) {
            return Ok(Finding::not_applicable(
                "the configuration declares no accelerator",
            ));
        }
        let expected = check.scalar("fingerprint.expected");
        let sources = check.scalar("fingerprint.sources");
        if let (Some(expected), Some(sources)) = (expected, sources)
            && sources != expected
        {
            check.unobserved(format!(
                "{sources} of {expected} readings (each replica before and after the run) gave a \
                 fingerprint"
            ));
        }
        match check.scalar("fingerprint.distinct") {
            // No fingerprint at all is no agreement.
            Some(distinct) if distinct < 1.0 => check.unobserved("no fingerprint was read"),
            Some(distinct) => check.require(
                distinct == 1.0,
                format!("{distinct} different fingerprints, exactly 1 allowed"),
            ),
            None => {}
        }
        Ok(check.conclude())
    }
}
