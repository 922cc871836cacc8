//! Which figure an alteration sits in, and which figures nothing determines.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::doc::walk;
use super::{Assertion, NotRecomputable};
use crate::time::parse_rfc3339;

/// Figures that take part in most failed assertions: one altered figure fails all that rests on it.
/// Of two figures that only disagree with each other both are named; the one that takes part in fewer
/// assertions that hold comes first.
pub(crate) fn find(assertions: &[Assertion]) -> Vec<String> {
    let mut failed = BTreeMap::<&str, usize>::new();
    let mut held = BTreeMap::<&str, usize>::new();
    for assertion in assertions {
        let side = if assertion.ok { &mut held } else { &mut failed };
        for path in &assertion.where_ {
            *side.entry(path).or_default() += 1;
        }
    }
    let most = failed.values().max().copied().unwrap_or(0);
    let mut top: Vec<(usize, &str)> = failed
        .iter()
        .filter(|(_, n)| **n == most)
        .map(|(path, _)| (held.get(path).copied().unwrap_or(0), *path))
        .collect();
    top.sort_unstable();
    top.into_iter().map(|(_, path)| path.to_owned()).collect()
}

/// Most figures that are listed.
const MAX_LISTED: usize = 10_000;

/// Texts that are evidence or identity, and cannot follow from anything in the document.
const OPAQUE_TEXTS: [(&str, &str); 4] = [
    (
        "instrument_commit",
        "the instrument's sources are not part of the report",
    ),
    (
        "config_sha256",
        "the configuration file is not part of the report",
    ),
    ("log_path", "the server's log is not part of the report"),
    ("id", "the container's identity is known from nowhere else"),
];

/// Numbers, yes/no values and stamps that no assertion determines, with what bounds them.
pub(crate) fn uncovered(
    root: &Value,
    exact: &BTreeSet<String>,
    bounded: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<NotRecomputable> {
    let mut all = Vec::new();
    walk(root, "", &mut |path, value| {
        if all.len() >= MAX_LISTED {
            return;
        }
        let name = path.rsplit('.').next().unwrap_or(path);
        let why = match value {
            Value::Number(_) | Value::Bool(_) => figure_why(path, exact, bounded),
            Value::String(s) if parse_rfc3339(s).is_some() => figure_why(path, exact, bounded),
            Value::String(_) if exact.contains(path) => None,
            Value::String(_) => OPAQUE_TEXTS
                .iter()
                .find(|(key, _)| *key == name)
                .map(|(_, why)| (*why).to_owned()),
            _ => None,
        };
        if let Some(why) = why {
            all.push(NotRecomputable {
                path: path.to_owned(),
                why,
            });
        }
    });
    all
}

fn figure_why(
    path: &str,
    exact: &BTreeSet<String>,
    bounded: &BTreeMap<String, BTreeSet<String>>,
) -> Option<String> {
    if exact.contains(path) {
        return None;
    }
    Some(match bounded.get(path) {
        Some(checks) => {
            let names: Vec<&str> = checks.iter().map(String::as_str).collect();
            format!(
                "the report does not hold the records behind it; held within bounds by: {}",
                names.join(", ")
            )
        }
        None => "the report holds no evidence for it".to_owned(),
    })
}
