//! How the service spread the baseline's requests (gate G1).

use std::collections::BTreeMap;

use blackstart_plan::{Plan, Routing};
use blackstart_record::RequestRecord;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Span;

/// Each replica's share of the baseline's requests.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ShareAnalysis {
    /// Replicas that the plan declares.
    pub replicas_declared: u64,
    /// Declared replicas that served at least one baseline request; `None` if no request says who
    /// served it.
    pub replicas_seen: Option<u64>,
    /// Share of the attributed requests, percent, by declared replica.
    pub percent: BTreeMap<String, f64>,
    /// Requests whose replica is known, by replica (also undeclared names).
    pub requests: BTreeMap<String, u64>,
    /// Requests whose replica is not known.
    pub unattributed: u64,
    /// 1 = a choice for each request, 0 = for each connection; `None` when addressed directly.
    pub per_request: Option<bool>,
    /// Why shares are absent.
    pub note: Option<String>,
}

/// Shares over the baseline.
pub(crate) fn analyze(plan: &Plan, requests: &[RequestRecord], baseline: Span) -> ShareAnalysis {
    let declared: Vec<&str> = plan.target.replicas.iter().map(|r| r.id.as_str()).collect();
    let mut counts = BTreeMap::<String, u64>::new();
    let mut unattributed = 0;
    let mut total = 0_u64;
    for r in requests.iter().filter(|r| baseline.holds(r)) {
        total += 1;
        match served_by(plan, r) {
            Some(replica) => *counts.entry(replica.to_owned()).or_default() += 1,
            None => unattributed += 1,
        }
    }
    let attributed = total - unattributed;
    let seen = declared
        .iter()
        .filter(|id| counts.get(**id).is_some_and(|n| *n > 0))
        .count() as u64;
    let mut percent = BTreeMap::new();
    if attributed > 0 {
        for id in &declared {
            let n = counts.get(*id).copied().unwrap_or(0);
            percent.insert((*id).to_owned(), n as f64 * 100.0 / attributed as f64);
        }
    }
    ShareAnalysis {
        replicas_declared: declared.len() as u64,
        replicas_seen: (attributed > 0).then_some(seen),
        percent,
        requests: counts,
        unattributed,
        per_request: match plan.target.routing {
            Routing::Direct => None,
            Routing::PerRequest => Some(true),
            Routing::PerConnection => Some(false),
        },
        note: (attributed == 0).then(|| {
            if total == 0 {
                "the baseline window holds no request".to_owned()
            } else {
                "no baseline request says which replica served it; name the response header in load.replica_header".to_owned()
            }
        }),
    }
}

/// The replica that a request went to: the only one when addressed directly, else the one that the
/// response named.
pub(crate) fn served_by<'a>(plan: &'a Plan, r: &'a RequestRecord) -> Option<&'a str> {
    if plan.addressed_directly() {
        plan.target.replicas.first().map(|only| only.id.as_str())
    } else {
        r.replica.as_deref()
    }
}
