//! A gate's figures, each beside the limit that it was held to.

use blackstart_plan::{GateLimit, Plan, Side, gate_limits};
use blackstart_record::{Finding, Measure};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A limit on one figure of a gate, in the figure's unit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LimitRow {
    /// Name of the figure, as among the gate's measures.
    pub measure: String,
    /// `at_most` or `at_least`.
    pub side: String,
    /// The limit in force.
    pub limit: f64,
    /// The method's own limit; `None` where it has none for this campaign.
    pub method_limit: Option<f64>,
    /// Whether the configuration lets pass what the method would not.
    pub loosened: bool,
}

/// The limits on a finding's figures, in the order of the figures.
pub(crate) fn limit_rows(plan: &Plan, finding: &Finding) -> Vec<LimitRow> {
    let Some(gate) = plan.gates.iter().find(|g| g.id == finding.id) else {
        return Vec::new();
    };
    let limits = gate_limits(plan, gate);
    let row = |m: &Measure, l: &GateLimit| LimitRow {
        measure: m.name.clone(),
        side: match l.side {
            Side::AtMost => "at_most",
            Side::AtLeast => "at_least",
        }
        .to_owned(),
        limit: l.limit,
        method_limit: l.method_limit,
        loosened: l.loosened(),
    };
    finding
        .measures
        .iter()
        .filter(|m| m.value.is_finite())
        .flat_map(|m| {
            limits
                .iter()
                .filter(|l| l.speaks_of(&m.name, plan))
                .map(move |l| row(m, l))
        })
        .collect()
}

impl LimitRow {
    /// "≤ 70", with a mark where the configuration loosened it. `show` writes a value in the figure's
    /// unit.
    pub(crate) fn text(&self, show: &dyn Fn(f64) -> String) -> String {
        let sign = if self.side == "at_most" { "≤" } else { "≥" };
        let mark = match self.method_limit {
            Some(method) if self.loosened => {
                format!(" (loosened: the method's limit is {})", show(method))
            }
            _ => String::new(),
        };
        format!("{sign} {}{mark}", show(self.limit))
    }
}

/// A gate's figures in one line: "client.skew_us_p99 61 ≤ 5000 us, client.cpu_percent_max_5s 82.100 ≤
/// 95 % (loosened: the method's limit is 70 %)". A figure without a limit stands alone.
pub fn gate_figures(plan: &Plan, finding: &Finding) -> String {
    let limits = limit_rows(plan, finding);
    let figures: Vec<String> = finding
        .measures
        .iter()
        .filter(|m| m.value.is_finite())
        .map(|m| {
            let show = |v: f64| in_unit(v, &m.unit);
            let mut text = format!("{} {}", m.name, show(m.value));
            let mut held: Vec<&LimitRow> = limits.iter().filter(|l| l.measure == m.name).collect();
            held.sort_by(|a, b| a.limit.total_cmp(&b.limit));
            for (i, limit) in held.iter().enumerate() {
                text.push_str(if i == 0 { " " } else { " and " });
                text.push_str(&limit.text(&show));
            }
            text
        })
        .collect();
    figures.join(", ")
}

/// A value without noise digits, in its UCUM unit.
fn in_unit(value: f64, unit: &str) -> String {
    let number = if value.fract() == 0.0 && value.abs() < 1e15 {
        format!("{value:.0}")
    } else {
        let text = format!("{value:.3}");
        text.trim_end_matches('0').trim_end_matches('.').to_owned()
    };
    match unit {
        "1" => number,
        "us" => format!("{number} µs"),
        unit => format!("{number} {unit}"),
    }
}
