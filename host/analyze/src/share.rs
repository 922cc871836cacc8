//! How the service spread the baseline's requests (gate G1).

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
