//! Whether the accelerators were the same everywhere and all the time (gate G5).

use std::collections::BTreeSet;

use blackstart_plan::{Accelerators, Plan};
use blackstart_record::{Event, EventKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Accelerator fingerprints of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FingerprintAnalysis {
    /// Whether the plan declares accelerators.
    pub declared: bool,
    /// Readings that gave a fingerprint.
    pub sources: u64,
    /// Readings that failed, with the reason.
    pub failures: Vec<String>,
    /// The distinct fingerprints.
    pub fingerprints: Vec<String>,
    /// Why there are none.
    pub note: Option<String>,
}

/// Fingerprints of a run.
pub(crate) fn analyze(plan: &Plan, events: &[Event]) -> FingerprintAnalysis {
    let declared = plan.target.accelerators != Accelerators::None;
    let mut sources = 0;
    let mut failures = Vec::new();
    let mut distinct = BTreeSet::new();
    for event in events {
        if let EventKind::Fingerprint {
            replica,
            phase,
            accelerators,
        } = &event.kind
        {
            match accelerators {
                Ok(texts) => {
                    sources += 1;
                    distinct.insert(texts.join("\n"));
                }
                Err(reason) => failures.push(format!("{replica} {phase}: {reason}")),
            }
        }
    }
    FingerprintAnalysis {
        declared,
        sources,
        failures,
        fingerprints: distinct.into_iter().collect(),
        note: (sources == 0).then(|| {
            if declared {
                "the plan declares accelerators, but no fingerprint was read".to_owned()
            } else {
                "the plan declares no accelerators".to_owned()
            }
        }),
    }
}
