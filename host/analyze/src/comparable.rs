//! Whether two campaigns asked the same question: their plans, key by key.

use std::collections::BTreeSet;

use blackstart_plan::Plan;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A key at which two plans differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanDifference {
    /// Path in `plan.json`, `phases.baseline_ns`.
    pub key: String,
    /// A's value as JSON; `None` where the key is absent, or its value may hold a secret.
    pub a: Option<String>,
    /// B's value.
    pub b: Option<String>,
    /// Whether it makes the campaigns incomparable. What does not is a remark: the target is what is
    /// compared, and another release of the instrument or of a plugin is worth knowing.
    pub refused: bool,
}

/// Keys that may differ and say nothing: names, seeds and what follows from them.
const FREE: [&str; 4] = ["campaign", "config_sha256", "runs", "fault.statement"];

/// Keys that may differ but are named.
const NAMED: [&str; 7] = [
    "target",
    "instrument_version",
    "plugins",
    "load.base_url",
    "load.headers",
    "load.api_key_env",
    "load.replica_header",
];

/// Parts of paths whose values are never shown.
const SECRET: [&str; 3] = ["headers", "env", "command"];

/// Most differences that are listed; plans that differ more are no less incomparable.
const MAX_DIFFERENCES: usize = 200;

/// Longest value that is shown, in characters.
const MAX_SHOWN: usize = 60;

/// Keys at which two plans differ, in order of their path, refused ones first, at most
/// 200. Empty for one plan under two seeds.
pub fn plan_differences(a: &Plan, b: &Plan) -> Vec<PlanDifference> {
    let mut all = Vec::new();
    // A plan is plain data; what could not be written as JSON would have no `plan.json`.
    let value = |plan| serde_json::to_value(plan).unwrap_or(Value::Null);
    walk("", Some(&value(a)), Some(&value(b)), &mut all);
    all.sort_by_key(|d| !d.refused);
    all.truncate(MAX_DIFFERENCES);
    all
}

fn under(key: &str, tops: &[&str]) -> bool {
    tops.iter().any(|top| {
        key.strip_prefix(top)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
    })
}

fn walk(key: &str, a: Option<&Value>, b: Option<&Value>, all: &mut Vec<PlanDifference>) {
    if a == b || under(key, &FREE) {
        return;
    }
    match (a, b) {
        (Some(Value::Object(x)), Some(Value::Object(y))) => {
            let keys: BTreeSet<&String> = x.keys().chain(y.keys()).collect();
            for k in keys {
                let path = if key.is_empty() {
                    k.clone()
                } else {
                    format!("{key}.{k}")
                };
                walk(&path, x.get(k), y.get(k), all);
            }
        }
        (Some(Value::Array(x)), Some(Value::Array(y))) => {
            for i in 0..x.len().max(y.len()) {
                walk(&format!("{key}[{i}]"), x.get(i), y.get(i), all);
            }
        }
        _ => {
            let secret = key.split(['.', '[']).any(|part| SECRET.contains(&part));
            let shown = |v: Option<&Value>| {
                v.filter(|_| !secret)
                    .map(|v| v.to_string().chars().take(MAX_SHOWN).collect())
            };
            all.push(PlanDifference {
                key: key.to_owned(),
                a: shown(a),
                b: shown(b),
                refused: !under(key, &NAMED),
            });
        }
    }
}
