//! Whether the accelerators were the same everywhere and all the time (gate G5).

use std::collections::{BTreeMap, BTreeSet};

use blackstart_plan::{Accelerators, Plan};
use blackstart_record::{Event, EventKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Accelerator fingerprints of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FingerprintAnalysis {
    /// Whether the plan declares accelerators.
    pub declared: bool,
    /// Readings that there must be: of each declared replica before and after the run.
    pub expected: u64,
    /// Of these, those that gave a fingerprint.
    pub sources: u64,
    /// Readings that failed or are missing, with the reason.
    pub failures: Vec<String>,
    /// The distinct fingerprints. `2 × text` = two equal accelerators in one reading; accelerators
    /// of one reading that differ are different fingerprints.
    pub fingerprints: Vec<String>,
    /// Why there are none.
    pub note: Option<String>,
}

/// When accelerators are read.
const PHASES: [&str; 2] = ["before", "after"];

/// Fingerprints of a run.
pub(crate) fn analyze(plan: &Plan, events: &[Event]) -> FingerprintAnalysis {
    let declared = plan.target.accelerators != Accelerators::None;
    let mut failures = Vec::new();
    let mut distinct = BTreeSet::new();
    let mut read = BTreeMap::new();
    for event in events {
        if let EventKind::Fingerprint {
            replica,
            phase,
            accelerators,
        } = &event.kind
        {
            let whole = match accelerators {
                Ok(texts) if texts.is_empty() => {
                    failures.push(format!("{replica} {phase}: no accelerator is named"));
                    false
                }
                Ok(texts) => {
                    distinct.extend(grouped(texts));
                    true
                }
                Err(reason) => {
                    failures.push(format!("{replica} {phase}: {reason}"));
                    false
                }
            };
            *read
                .entry((replica.as_str(), phase.as_str()))
                .or_insert(true) &= whole;
        }
    }
    let (mut expected, mut sources) = (0, 0);
    if declared {
        for replica in &plan.target.replicas {
            for phase in PHASES {
                expected += 1;
                match read.get(&(replica.id.as_str(), phase)) {
                    Some(whole) => sources += u64::from(*whole),
                    None => failures.push(format!("{} {phase}: not read", replica.id)),
                }
            }
        }
    }
    FingerprintAnalysis {
        declared,
        expected,
        sources,
        note: (sources == 0).then(|| {
            if !declared {
                "the plan declares no accelerators".to_owned()
            } else {
                format!(
                    "the plan declares accelerators, but no fingerprint was read: {}",
                    failures.join("; ")
                )
            }
        }),
        failures,
        fingerprints: distinct.into_iter().collect(),
    }
}

/// One text for each kind of accelerator in a reading, with their number where it is not one: that
/// one of two is gone is a difference too.
fn grouped(texts: &[String]) -> Vec<String> {
    let mut counts = BTreeMap::<&str, usize>::new();
    for text in texts {
        *counts.entry(text).or_default() += 1;
    }
    counts
        .into_iter()
        .map(|(text, n)| match n {
            1 => text.to_owned(),
            n => format!("{n} × {text}"),
        })
        .collect()
}
