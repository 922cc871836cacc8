//! `verify DIR`: every hash of the manifest, the schedule from its seed, and every figure from the
//! raw records.

use std::collections::BTreeMap;
use std::path::Path;

use blackstart_analyze::{RunAnalysis, analyze_campaign, analyze_run};
use blackstart_plan::Plan;
use blackstart_record::{ArtifactMismatch, Finding, Manifest, read_json, read_run};
use serde::Serialize;
use serde_json::Value;

use crate::exit::{Exit, Failure};
use crate::reporter::Reporter;

#[derive(Serialize)]
struct Assertion {
    id: String,
    ok: bool,
    expected: String,
    found: String,
    r#where: String,
}

#[derive(Serialize)]
struct Verdict {
    ok: bool,
    assertions: Vec<Assertion>,
}

#[derive(Default)]
struct Checks {
    assertions: Vec<Assertion>,
}

impl Checks {
    fn check(
        &mut self,
        id: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
        place: impl Into<String>,
    ) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.assertions.push(Assertion {
            id: id.into(),
            ok: expected == found,
            expected,
            found,
            r#where: place.into(),
        });
    }

    /// Compares two documents leaf by leaf; each difference is an assertion of its own, equality one.
    fn same(&mut self, id: &str, recomputed: &Value, published: &Value, place: &str) {
        let before = self.assertions.len();
        self.leaves(id, "", recomputed, published, place);
        if self.assertions.len() == before {
            self.check(id, "as recomputed", "as recomputed", place);
        }
    }

    fn leaves(&mut self, id: &str, path: &str, recomputed: &Value, published: &Value, place: &str) {
        /// Differences listed of one document; more would say the same.
        const MOST: usize = 200;
        if recomputed == published || self.assertions.len() > MOST {
            return;
        }
        match (recomputed, published) {
            (Value::Object(a), Value::Object(b)) => {
                let keys: std::collections::BTreeSet<&String> = a.keys().chain(b.keys()).collect();
                for key in keys {
                    let (a, b) = (
                        a.get(key).unwrap_or(&Value::Null),
                        b.get(key).unwrap_or(&Value::Null),
                    );
                    self.leaves(id, &format!("{path}.{key}"), a, b, place);
                }
            }
            (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
                for (i, (a, b)) in a.iter().zip(b).enumerate() {
                    self.leaves(id, &format!("{path}[{i}]"), a, b, place);
                }
            }
            _ => self.check(format!("{id}{path}"), recomputed, published, place),
        }
    }
}

/// Checks a results directory.
///
/// # Errors
/// When it is none.
pub fn verify_dir(dir: &Path, json: bool) -> Result<Exit, Failure> {
    let not_results = |e: blackstart_record::RecordError| {
        Failure::new(Exit::Configuration, e)
            .help("give a results directory: it holds plan.json, manifest.json and run-1, run-2, …")
    };
    let plan: Plan = read_json(&dir.join("plan.json")).map_err(not_results)?;
    let manifest: Manifest = read_json(&dir.join("manifest.json")).map_err(not_results)?;
    let mut checks = Checks::default();
    artifacts(&mut checks, dir, &manifest)?;
    checks.check(
        "config_sha256",
        &plan.config_sha256,
        &manifest.config_sha256,
        "manifest.json",
    );
    let mut analyses = Vec::new();
    let mut all_findings = BTreeMap::new();
    for planned in &plan.runs {
        let run_dir = dir.join(format!("run-{}", planned.run));
        if !run_dir.join("events.jsonl").exists() {
            continue;
        }
        let schedule = plan.schedule(planned).map_err(Failure::internal)?;
        let place = format!("plan.json, run {}", planned.run);
        checks.check(
            format!("run-{}.schedule_sha256", planned.run),
            schedule.sha256(),
            &planned.schedule_sha256,
            place,
        );
        let records = read_run(&run_dir).map_err(Failure::internal)?;
        let intended_match = records
            .requests
            .iter()
            .all(|r| schedule.intended_ns.get(r.index as usize) == Some(&r.intended_ns));
        checks.check(
            format!("run-{}.intended_times", planned.run),
            "as scheduled",
            if intended_match {
                "as scheduled"
            } else {
                "not as scheduled"
            },
            format!("run-{}/requests.parquet", planned.run),
        );
        let recomputed = analyze_run(&plan, planned, &records).map_err(Failure::internal)?;
        let published: Value =
            read_json(&run_dir.join("analysis.json")).map_err(Failure::internal)?;
        let mut value = as_value(&recomputed)?;
        // Notes that reading the files added are part of the published analysis only.
        value["notes"] = published["notes"].clone();
        checks.same(
            &format!("run-{}.analysis", planned.run),
            &value,
            &published,
            &format!("run-{}/analysis.json", planned.run),
        );
        let findings: Vec<Finding> =
            read_json(&run_dir.join("findings.json")).map_err(Failure::internal)?;
        let published: RunAnalysis = serde_json::from_value(value).map_err(Failure::internal)?;
        analyses.push(published);
        all_findings.insert(planned.run, findings);
    }
    let recomputed = as_value(&analyze_campaign(&plan, &analyses, &all_findings))?;
    let published: Value = read_json(&dir.join("analysis.json")).map_err(Failure::internal)?;
    checks.same(
        "campaign.analysis",
        &recomputed,
        &published,
        "analysis.json",
    );
    print(checks, json, dir)
}

fn as_value<T: Serialize>(value: &T) -> Result<Value, Failure> {
    // Through text, so that a float is compared as a file holds it.
    let text = serde_json::to_string(value).map_err(Failure::internal)?;
    serde_json::from_str(&text).map_err(Failure::internal)
}

fn artifacts(checks: &mut Checks, dir: &Path, manifest: &Manifest) -> Result<(), Failure> {
    let mismatches = manifest.check(dir).map_err(Failure::internal)?;
    for (path, entry) in &manifest.artifacts {
        let found = mismatches.iter().find_map(|m| match m {
            ArtifactMismatch::Missing(p) if p == path => Some("no such file".to_owned()),
            ArtifactMismatch::Changed {
                path: p,
                found_sha256,
                ..
            } if p == path => Some(found_sha256.clone()),
            _ => None,
        });
        checks.check(
            format!("sha256 {path}"),
            &entry.sha256,
            found.as_ref().unwrap_or(&entry.sha256),
            path.clone(),
        );
    }
    for mismatch in &mismatches {
        if let ArtifactMismatch::Unlisted(path) = mismatch {
            checks.check(
                format!("artifact {path}"),
                "listed in the manifest",
                "not listed",
                path.clone(),
            );
        }
    }
    Ok(())
}

fn print(checks: Checks, json: bool, dir: &Path) -> Result<Exit, Failure> {
    let ok = checks.assertions.iter().all(|a| a.ok);
    let failed = checks.assertions.iter().filter(|a| !a.ok).count();
    let total = checks.assertions.len();
    if json {
        let verdict = Verdict {
            ok,
            assertions: checks.assertions,
        };
        println!(
            "{}",
            serde_json::to_string_pretty(&verdict).map_err(Failure::internal)?
        );
    } else {
        for a in &checks.assertions {
            if a.ok {
                println!("✓ {}", a.id);
            } else {
                println!(
                    "✗ {}: expected {}, found {} ({})",
                    a.id, a.expected, a.found, a.r#where
                );
            }
        }
        Reporter::new().say(format!(
            "{}: {} assertions hold, {failed} do not",
            dir.display(),
            total - failed
        ));
    }
    Ok(if ok { Exit::Valid } else { Exit::Invalid })
}
