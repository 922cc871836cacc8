//! The predecessor's published report (`schema_version` 1), checked from its own evidence.
//!
//! A published report carries some of its evidence: clock brackets and offsets, the log's boundary
//! lines, container states, per-run values. Every figure that follows from that evidence is
//! recomputed by the method's formulas and compared; every relation that must hold between figures
//! is checked; every figure that nothing in the document determines is listed by name. A document
//! is hostile until parsed: nothing here panics on any input.

mod boundaries;
mod checker;
mod container;
mod counts;
mod doc;
mod endpoints;
mod gates;
mod receive_path;
mod segments;
mod suspects;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use checker::Checker;

/// The version of the format that is understood.
const FOREIGN_SCHEMA_VERSION: i64 = 1;

/// Largest document that is read, in bytes.
pub const MAX_DOCUMENT_BYTES: usize = 64 << 20;

/// Most runs of one document that are checked.
const MAX_RUNS: usize = 1_000;

/// Key under which the separate endpoints document appears in paths.
pub(crate) const ENDPOINTS_FILE: &str = "$endpoints";

/// One checked statement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Assertion {
    /// The figure that is checked, by its path in the document, then `#` and the name of the check.
    pub id: String,
    /// Whether it holds.
    pub ok: bool,
    /// What the evidence gives.
    pub expected: String,
    /// What the document says.
    pub found: String,
    /// The figure and the evidence that the check rests on, by path.
    #[serde(rename = "where")]
    pub where_: Vec<String>,
}

/// A figure that no evidence in the document determines.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NotRecomputable {
    /// Its path.
    pub path: String,
    /// Why, and which bounds were checked all the same.
    pub why: String,
}

/// What the check found.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ForeignReport {
    /// Whether every assertion holds.
    pub ok: bool,
    /// Every assertion.
    pub assertions: Vec<Assertion>,
    /// Figures whose alteration explains the failures best; empty when all holds.
    pub suspects: Vec<String>,
    /// Figures that could not be recomputed.
    pub not_recomputable: Vec<NotRecomputable>,
}

/// Whether the bytes look like a document of the predecessor: a report or its endpoints.
pub fn is_foreign(json: &[u8]) -> bool {
    json.len() <= MAX_DOCUMENT_BYTES
        && serde_json::from_slice::<Value>(json).is_ok_and(|v| {
            let report = v.get("instrument_commit").is_some() && v.get("campaign").is_some();
            let endpoints = v.get("endpoints").is_some_and(Value::is_array)
                && v.as_object().is_some_and(|o| o.len() == 1);
            report || endpoints
        })
}

/// Checks a published report, and beside it the published endpoints where there are any.
/// `report_json` may also be an endpoints document alone.
///
/// Agreement is exact for counts and integers, 1 ns for instants that follow by integer arithmetic,
/// 256 ns (one `f64` step at today's Unix nanoseconds) for those that went through `f64`, 1 µs for
/// seconds, and 1e-9 relative for statistics. A document that cannot be read is one failed assertion.
pub fn verify_foreign(report_json: &[u8], endpoints_json: Option<&[u8]>) -> ForeignReport {
    let parsed = parse(report_json, "report").and_then(|report| {
        let endpoints = endpoints_json
            .map(|json| parse(json, "endpoints"))
            .transpose()?;
        Ok((report, endpoints))
    });
    let (mut root, endpoints) = match parsed {
        Ok(both) => both,
        Err(unreadable) => {
            return ForeignReport {
                ok: false,
                suspects: vec![unreadable.id.clone()],
                assertions: vec![unreadable],
                not_recomputable: Vec::new(),
            };
        }
    };
    if let (Some(object), Some(endpoints)) = (root.as_object_mut(), endpoints) {
        object.insert(ENDPOINTS_FILE.to_owned(), endpoints);
    }
    let mut check = Checker::new(&root);
    if check.doc.get("campaign").is_some() {
        report(&mut check);
    }
    endpoints::documents(&mut check);
    let assertions = check.assertions;
    ForeignReport {
        ok: !assertions.is_empty() && assertions.iter().all(|a| a.ok),
        suspects: suspects::find(&assertions),
        not_recomputable: suspects::uncovered(&root, &check.exact, &check.bounded),
        assertions,
    }
}

fn parse(json: &[u8], what: &str) -> Result<Value, Assertion> {
    let fail = |found: String| Assertion {
        id: format!("{what}#readable"),
        ok: false,
        expected: format!("a JSON object of at most {MAX_DOCUMENT_BYTES} bytes"),
        found,
        where_: vec![what.to_owned()],
    };
    if json.len() > MAX_DOCUMENT_BYTES {
        return Err(fail(format!("{} bytes", json.len())));
    }
    match serde_json::from_slice::<Value>(json) {
        Ok(value) if value.is_object() => Ok(value),
        Ok(_) => Err(fail("JSON, but no object".to_owned())),
        Err(e) => Err(fail(e.to_string())),
    }
}

fn report(check: &mut Checker<'_>) {
    check.eq_int("schema_version", "version", FOREIGN_SCHEMA_VERSION, &[]);
    let runs = check.doc.len("campaign.per_run").min(MAX_RUNS);
    check.require(
        "campaign.per_run",
        "present",
        runs > 0,
        "at least one run".to_owned(),
        format!("{runs} runs"),
        &[],
    );
    for i in 0..runs {
        let run = format!("campaign.per_run[{i}]");
        let fire = container::check(check, &run);
        let boundaries = boundaries::check(check, &run);
        segments::check(check, &run, fire.as_ref(), &boundaries);
        counts::check(check, &run);
        receive_path::check(check, &run);
    }
    gates::check(check, runs);
}
