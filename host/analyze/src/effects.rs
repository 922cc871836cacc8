//! What was done to the victims, and whether it is proven.

use std::collections::BTreeMap;

use blackstart_plan::{Plan, RunPlan};
use blackstart_record::{EffectStep, Event, EventKind, ProofVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One effect of the fault, with its steps joined.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EffectSummary {
    /// Its number on the timeline.
    pub effect: u32,
    /// What it is, for people.
    pub action: String,
    /// The replica it harms.
    pub replica: Option<String>,
    /// Planned start.
    pub planned_ns: Option<i64>,
    /// Start: middle of the clock reads around it.
    pub started_ns: Option<i64>,
    /// Half of the distance between those reads.
    pub started_half_width_ns: Option<i64>,
    /// Planned undo.
    pub undo_planned_ns: Option<i64>,
    /// Undo: middle of the clock reads around it.
    pub undone_ns: Option<i64>,
    /// Who undid it: `instrument` or `watchdog`.
    pub undone_by: Option<String>,
    /// Why it failed.
    pub failure: Option<String>,
    /// Pids or other details of the start.
    pub detail: Option<String>,
}

/// What the fault plugin concluded from the facts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProofSummary {
    /// It happened.
    Happened,
    /// It did not.
    DidNotHappen,
    /// The facts do not decide.
    CannotTell,
    /// No verdict was recorded.
    NotRecorded,
    /// No fault was to be proven.
    NotApplicable,
}

/// The fault as it was executed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FaultProof {
    /// Variant, when a fault was planned.
    pub variant: Option<String>,
    /// Victims that the plan names.
    pub victims: Vec<String>,
    /// What the plugin said it would do.
    pub statement: Option<String>,
    /// The effects.
    pub effects: Vec<EffectSummary>,
    /// End of the last effect that was undone; `None` = never (or nothing to undo).
    pub expired_ns: Option<i64>,
    /// The verdict.
    pub proof: ProofSummary,
    /// Its reason.
    pub proof_statement: Option<String>,
    /// Facts that changed between before and after: `replica name: before → after`.
    pub changed_facts: Vec<String>,
}

/// The fault of a run as its events show it.
pub(crate) fn analyze(plan: &Plan, run: &RunPlan, events: &[Event]) -> FaultProof {
    let mut effects = BTreeMap::<u32, EffectSummary>::new();
    let mut proof = if plan.fault.is_none() {
        ProofSummary::NotApplicable
    } else {
        ProofSummary::NotRecorded
    };
    let mut proof_statement =
        (run.negative_control).then(|| "negative control: no effect was to be executed".to_owned());
    for event in events {
        match &event.kind {
            EventKind::Effect(step) => join(&mut effects, step),
            EventKind::Proof { verdict, statement } => {
                proof = match verdict {
                    ProofVerdict::Happened => ProofSummary::Happened,
                    ProofVerdict::DidNotHappen => ProofSummary::DidNotHappen,
                    ProofVerdict::CannotTell => ProofSummary::CannotTell,
                };
                proof_statement = Some(statement.clone());
            }
            _ => {}
        }
    }
    let effects: Vec<EffectSummary> = effects.into_values().collect();
    FaultProof {
        variant: plan.fault.as_ref().map(|f| f.variant.clone()),
        victims: plan
            .fault
            .as_ref()
            .map(|f| f.victims.clone())
            .unwrap_or_default(),
        statement: plan.fault.as_ref().and_then(|f| f.statement.clone()),
        expired_ns: effects.iter().filter_map(|e| e.undone_ns).max(),
        effects,
        proof,
        proof_statement,
        changed_facts: changed_facts(events),
    }
}

fn join(effects: &mut BTreeMap<u32, EffectSummary>, step: &EffectStep) {
    let effect = effects.entry(step.effect).or_insert_with(|| EffectSummary {
        effect: step.effect,
        action: step.action.clone(),
        replica: step.replica.clone(),
        planned_ns: None,
        started_ns: None,
        started_half_width_ns: None,
        undo_planned_ns: None,
        undone_ns: None,
        undone_by: None,
        failure: None,
        detail: None,
    });
    let bracket = step.before_ns.zip(step.after_ns);
    let middle = bracket.map(|(before, after)| before + (after - before) / 2);
    match step.step.as_str() {
        "scheduled" => effect.planned_ns = Some(step.planned_ns),
        "started" => {
            effect.planned_ns = Some(step.planned_ns);
            effect.started_ns = middle;
            effect.started_half_width_ns = bracket.map(|(before, after)| (after - before + 1) / 2);
            effect.detail.clone_from(&step.detail);
        }
        "undone" => {
            effect.undo_planned_ns = Some(step.planned_ns);
            effect.undone_ns = middle;
            effect.undone_by = Some(step.by.clone());
        }
        "failed" => {
            effect.failure = Some(
                step.detail
                    .clone()
                    .unwrap_or_else(|| "no reason recorded".to_owned()),
            );
        }
        _ => {}
    }
}

/// Facts whose last reading after the fault differs from the last one before it.
fn changed_facts(events: &[Event]) -> Vec<String> {
    let mut before = BTreeMap::new();
    let mut after = BTreeMap::new();
    for event in events {
        if let EventKind::Facts { phase, facts } = &event.kind {
            let side = match phase.as_str() {
                "before" => &mut before,
                "after" => &mut after,
                _ => continue,
            };
            for fact in facts {
                side.insert((&fact.replica, &fact.name), fact.value.as_deref());
            }
        }
    }
    let show = |value: Option<&str>| value.unwrap_or("not readable").to_owned();
    after
        .into_iter()
        .filter_map(|(key, now)| {
            let then = before.get(&key).copied()?;
            (then != now).then(|| {
                let (replica, name) = key;
                format!("{replica} {name}: {} → {}", show(then), show(now))
            })
        })
        .collect()
}
