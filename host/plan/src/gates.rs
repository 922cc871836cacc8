//! The limits that the method's own gates hold a run to: the method's, and those in force.

use serde::{Deserialize, Serialize};

use crate::{GatePlan, Plan, Routing};

/// On which side of its limit a figure must lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// The figure must be at most the limit.
    AtMost,
    /// The figure must be at least the limit.
    AtLeast,
}

/// A limit of a gate on a figure, in the figure's unit.
#[derive(Debug, Clone, PartialEq)]
pub struct GateLimit {
    /// The scalar, as in `docs/gates.md`; `<replica>` stands for each declared replica.
    pub scalar: &'static str,
    /// Which side holds.
    pub side: Side,
    /// The limit in force.
    pub limit: f64,
    /// The method's own limit; `None` where the method has none for this campaign.
    pub method_limit: Option<f64>,
}

impl GateLimit {
    /// Whether the configuration lets pass what the method would not.
    pub fn loosened(&self) -> bool {
        self.method_limit.is_some_and(|method| match self.side {
            Side::AtMost => self.limit > method,
            Side::AtLeast => self.limit < method,
        })
    }

    /// Whether the limit speaks of the scalar of that name, in a plan with these replicas.
    pub fn speaks_of(&self, scalar: &str, plan: &Plan) -> bool {
        match self.scalar.strip_suffix("<replica>") {
            Some(group) => scalar
                .strip_prefix(group)
                .is_some_and(|id| plan.replica(id).is_some()),
            None => scalar == self.scalar,
        }
    }
}

/// A row of the method's table: gate, plugin, key of its configuration, scalar, side, limit.
struct Row {
    id: &'static str,
    plugin: &'static str,
    key: Option<&'static str>,
    scalar: &'static str,
    side: Side,
    limit: f64,
}

const fn row(
    id: &'static str,
    plugin: &'static str,
    key: Option<&'static str>,
    scalar: &'static str,
    side: Side,
    limit: f64,
) -> Row {
    Row {
        id,
        plugin,
        key,
        scalar,
        side,
        limit,
    }
}

/// Replicas for which the method states a band of shares (G1).
pub const SHARE_BAND_REPLICAS: usize = 2;

use Side::{AtLeast, AtMost};

/// The limits of the bundled gates. The gates hold them; this table only shows them, and a test holds
/// both to each other.
const METHOD: [Row; 14] = [
    row(
        "G1",
        "gate-share",
        Some("min_percent"),
        "share.<replica>",
        AtLeast,
        45.0,
    ),
    row(
        "G1",
        "gate-share",
        Some("max_percent"),
        "share.<replica>",
        AtMost,
        55.0,
    ),
    row(
        "G2",
        "gate-client",
        Some("max_skew_us_p99"),
        "client.skew_us_p99",
        AtMost,
        5_000.0,
    ),
    row(
        "G2",
        "gate-client",
        Some("max_skew_us_max"),
        "client.skew_us_max",
        AtMost,
        50_000.0,
    ),
    row(
        "G2",
        "gate-client",
        Some("max_undispatched"),
        "client.undispatched",
        AtMost,
        0.0,
    ),
    row(
        "G2",
        "gate-client",
        Some("max_cpu_percent"),
        "client.cpu_percent_max_5s",
        AtMost,
        70.0,
    ),
    row(
        "G2",
        "gate-client",
        None,
        "client.cpu_windows",
        AtLeast,
        1.0,
    ),
    row(
        "G2",
        "gate-client",
        Some("max_stall_us_p99"),
        "client.stall_us_p99",
        AtMost,
        1_000.0,
    ),
    row(
        "G3",
        "gate-silence",
        Some("max_victim_errored"),
        "inflight.victim_errored",
        AtMost,
        0.0,
    ),
    row(
        "G4",
        "gate-staleness",
        Some("min_window_s"),
        "staleness.window_s",
        AtLeast,
        20.0,
    ),
    row(
        "G4",
        "gate-staleness",
        Some("min_requests"),
        "staleness.victim_bound_requests",
        AtLeast,
        1.0,
    ),
    row(
        "G5",
        "gate-fingerprint",
        None,
        "fingerprint.distinct",
        AtMost,
        1.0,
    ),
    row(
        "G6",
        "gate-baseline",
        Some("min_goodput"),
        "goodput.baseline",
        AtLeast,
        0.99,
    ),
    row(
        "G7",
        "gate-queue",
        Some("max_mean_waiting"),
        "waiting.mean.<replica>",
        AtMost,
        1.0,
    ),
];

/// The limits in force of a planned gate. Empty for a gate that is not bundled: its limits are known
/// to itself only.
pub fn gate_limits(plan: &Plan, gate: &GatePlan) -> Vec<GateLimit> {
    let replicas = plan.target.replicas.len();
    let mut all: Vec<GateLimit> = METHOD
        .iter()
        .filter(|r| r.id == gate.id && r.plugin == gate.plugin)
        .filter_map(|r| {
            let configured = r
                .key
                .and_then(|key| gate.config.get(key))
                .and_then(serde_json::Value::as_f64);
            let band = r.scalar == "share.<replica>";
            if band && plan.target.routing != Routing::PerRequest {
                // The shares only describe.
                return None;
            }
            let method_limit = (!band || replicas == SHARE_BAND_REPLICAS).then_some(r.limit);
            Some(GateLimit {
                scalar: r.scalar,
                side: r.side,
                limit: configured.or(method_limit)?,
                method_limit,
            })
        })
        .collect();
    if gate.id == "G1" && gate.plugin == "gate-share" && replicas > 1 {
        let declared = replicas as f64;
        all.push(GateLimit {
            scalar: "share.replicas_seen",
            side: AtLeast,
            limit: declared,
            method_limit: Some(declared),
        });
    }
    all
}

/// Keys of the configuration of the method's gates with the method's limits: gate's plugin, key,
/// limit. For the test that compares them with what the gates themselves say.
pub fn method_limits() -> impl Iterator<Item = (&'static str, &'static str, f64)> {
    METHOD
        .iter()
        .filter_map(|r| Some((r.plugin, r.key?, r.limit)))
}
