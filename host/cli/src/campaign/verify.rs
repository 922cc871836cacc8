//! `verify DIR`: every hash of the manifest, the schedule from its seed, and every figure from the
//! raw records.

use std::path::Path;
use std::sync::Arc;

use blackstart_analyze::{RunAnalysis, analyze_campaign};
use blackstart_plan::Plan;
use blackstart_record::{ArtifactMismatch, Manifest, read_json, read_run};
use serde::Serialize;
use serde_json::Value;

use super::results::{figures, has_records, host_facts, reload, reports, run_dir, stopped};
use super::stored;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};
use crate::plugins::Plugins;
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

/// What a verification looked at.
#[derive(Default)]
pub struct Checks {
    assertions: Vec<Assertion>,
}

impl Checks {
    /// One assertion, with the place of what was found.
    pub fn check(
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

    /// Compares a document with a file of the directory.
    ///
    /// # Errors
    /// When the document is none.
    pub fn file<T: Serialize>(
        &mut self,
        id: &str,
        recomputed: &T,
        dir: &Path,
        file: &str,
    ) -> Result<(), Failure> {
        let published: Value = match read_json(&dir.join(file)) {
            Ok(published) => published,
            Err(e) => {
                self.check(id, "readable", e.to_string(), file);
                return Ok(());
            }
        };
        self.same(id, &as_value(recomputed)?, &published, file);
        Ok(())
    }

    fn leaves(&mut self, id: &str, path: &str, recomputed: &Value, published: &Value, place: &str) {
        /// Differences listed of one document; more would say the same.
        const MOST: usize = 200;
        if recomputed == published || self.assertions.iter().filter(|a| !a.ok).count() > MOST {
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
    let unsealed = |e: blackstart_record::RecordError| {
        stored::check_is_campaign(dir).err().unwrap_or_else(|| {
            Failure::new(Exit::Configuration, e).help(format!(
                "without a manifest there is nothing to check against: a campaign that was cut off gets one \
                 by `blackstart analyze {}`",
                dir.display()
            ))
        })
    };
    let manifest: Manifest = read_json(&dir.join("manifest.json")).map_err(unsealed)?;
    let mut checks = Checks::default();
    // Hashes first: they say what was altered even where nothing can be read any more.
    artifacts(&mut checks, dir, &manifest)?;
    let plan: Plan = match stored::read_plan(dir) {
        Ok(plan) => plan,
        Err(e) => {
            checks.check("plan", "readable", e.text(), "plan.json");
            return print(checks, json, dir);
        }
    };
    if let Err(e) = recompute(&mut checks, dir, &plan, &manifest) {
        // Altered files may be anything; what was found wrong before says why this failed.
        if checks.assertions.iter().all(|a| a.ok) {
            return Err(e);
        }
        checks.check("recomputation", "possible", e.text(), "plan.json");
    }
    print(checks, json, dir)
}

/// Everything that follows from the plan and the raw records.
fn recompute(
    checks: &mut Checks,
    dir: &Path,
    plan: &Plan,
    manifest: &Manifest,
) -> Result<(), Failure> {
    checks.check(
        "config_sha256",
        &plan.config_sha256,
        &manifest.config_sha256,
        "manifest.json",
    );
    // The plugins of the run judge again; another digest is another judge, and said so.
    let mut plugins = Plugins::open(&[])?;
    let mut now = plan.clone();
    let gates = reload(&mut plugins, &mut now)?;
    for (name, recorded) in &plan.plugins {
        let found = now
            .plugins
            .get(name)
            .map_or("not there", |p| p.sha256.as_str());
        checks.check(
            format!("plugin {name}"),
            &recorded.sha256,
            found,
            "plan.json",
        );
    }
    let shared = Arc::new(plan.clone());
    let mut runs = Vec::new();
    // Campaign figures need every run.
    let mut complete = true;
    for planned in &plan.runs {
        let run_dir = run_dir(dir, planned.run);
        if !has_records(&run_dir) {
            continue;
        }
        let name = format!("run-{}", planned.run);
        let schedule = plan.schedule(planned).map_err(Failure::internal)?;
        checks.check(
            format!("{name}.schedule_sha256"),
            schedule.sha256(),
            &planned.schedule_sha256,
            "plan.json",
        );
        let records = match read_run(&run_dir) {
            Ok(records) => records,
            Err(e) => {
                checks.check(
                    format!("{name}.records"),
                    "readable",
                    e.to_string(),
                    name.clone(),
                );
                complete = false;
                continue;
            }
        };
        let as_scheduled = records
            .requests
            .iter()
            .all(|r| schedule.intended_ns.get(r.index as usize) == Some(&r.intended_ns));
        checks.check(
            format!("{name}.intended_times"),
            "as scheduled",
            if as_scheduled {
                "as scheduled"
            } else {
                "not as scheduled"
            },
            format!("{name}/requests.parquet"),
        );
        drop(records);
        let run = match figures(&plugins, &gates, &shared, planned, &run_dir, None) {
            Ok(run) => run,
            // What could not be recomputed here says nothing about the results.
            Err(e) if plugins.engine.shortage().is_some() => return Err(e),
            Err(e) => {
                checks.check(
                    format!("{name}.figures"),
                    "computable",
                    e.text(),
                    name.clone(),
                );
                complete = false;
                continue;
            }
        };
        checks.file(
            &format!("{name}.analysis"),
            &run.analysis,
            dir,
            &format!("{name}/analysis.json"),
        )?;
        checks.file(
            &format!("{name}.findings"),
            &run.findings,
            dir,
            &format!("{name}/findings.json"),
        )?;
        runs.push(run);
    }
    if !complete {
        return Ok(());
    }
    let analyses: Vec<RunAnalysis> = runs.iter().map(|r| r.analysis.clone()).collect();
    let findings = runs
        .iter()
        .map(|r| (r.analysis.run, r.findings.clone()))
        .collect();
    let campaign = analyze_campaign(plan, &analyses, &findings);
    checks.file("campaign.analysis", &campaign, dir, "analysis.json")?;
    let stopped = stopped(dir);
    let (report, run_reports) = reports(
        plan,
        &runs,
        &campaign,
        &host_facts(dir),
        manifest.partial,
        stopped.as_deref(),
    );
    checks.file("campaign.report", &report, dir, "report.json")?;
    for report in &run_reports {
        let name = format!("run-{}", report.run.analysis.run);
        checks.file(
            &format!("{name}.report"),
            report,
            dir,
            &format!("{name}/report.json"),
        )?;
    }
    let page = blackstart_report::render_html(&report).map_err(Failure::internal)?;
    let published = std::fs::read_to_string(dir.join("report.html")).unwrap_or_default();
    checks.check(
        "report.html",
        "as rendered",
        if page == published {
            "as rendered"
        } else {
            "another page"
        },
        "report.html",
    );
    Ok(())
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

/// Tells what was found.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn print(checks: Checks, json: bool, dir: &Path) -> Result<Exit, Failure> {
    let ok = checks.assertions.iter().all(|a| a.ok);
    let failed = checks.assertions.iter().filter(|a| !a.ok).count();
    let total = checks.assertions.len();
    if json {
        let verdict = Verdict {
            ok,
            assertions: checks.assertions,
        };
        out!(
            "{}",
            serde_json::to_string_pretty(&verdict).map_err(Failure::internal)?
        );
    } else {
        for a in &checks.assertions {
            if a.ok {
                out_text!("✓ {}", a.id);
            } else {
                out_text!(
                    "✗ {}: expected {}, found {} ({})",
                    a.id,
                    a.expected,
                    a.found,
                    a.r#where
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
