//! `blackstart verify`: checks a published report from its own evidence.

use std::io::Read;
use std::path::{Path, PathBuf};

use blackstart_analyze::foreign;
use blackstart_record::open_regular;
use clap::Args;
use serde::Serialize;

use super::load;
use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};
use crate::reporter::Reporter;
use crate::require::{self, Requirements};

/// `verify`
#[derive(Debug, Args)]
pub struct VerifyArgs {
    /// A results directory, a folder of `load --out`, or a published campaign report of schema version
    /// 1 (JSON)
    path: PathBuf,
    /// The campaign's endpoint summaries, if they are in a file of their own (default: a file of the
    /// same folder whose name ends in `-endpoints.json` and starts like the report's)
    #[arg(long, value_name = "FILE")]
    endpoints: Option<PathBuf>,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    requirements: Requirements,
}

/// Largest report that is read.
const MAX_REPORT_BYTES: u64 = 256 << 20;

#[derive(Serialize)]
struct Row {
    id: String,
    ok: bool,
    expected: String,
    found: String,
    r#where: String,
}

#[derive(Serialize)]
struct Verdict {
    ok: bool,
    assertions: Vec<Row>,
    /// Figures that the failed assertions have in common: the likeliest to be wrong.
    suspects: Vec<String>,
    not_recomputed: Vec<NotRecomputed>,
}

#[derive(Serialize)]
struct NotRecomputed {
    what: String,
    why: String,
}

/// Runs the command.
pub fn run(args: VerifyArgs) -> Outcome {
    if load::is_load(&args.path) {
        return load::verify(&args.path, args.json, &args.requirements);
    }
    if args.path.is_dir() {
        return crate::campaign::verify_dir(&args.path, args.json, &args.requirements);
    }
    require::refuse(
        &args.requirements,
        "a published report of schema version 1 is held to none; give a results directory",
    )?;
    let report = read_bounded(&args.path)?;
    let endpoints_path = args
        .endpoints
        .clone()
        .or_else(|| endpoints_beside(&args.path));
    let endpoints = endpoints_path.as_deref().map(read_bounded).transpose()?;
    let verification = foreign::verify_foreign(&report, endpoints.as_deref());
    let verdict = Verdict {
        ok: verification.ok,
        suspects: verification.suspects,
        assertions: verification
            .assertions
            .into_iter()
            .map(|a| Row {
                id: a.id,
                ok: a.ok,
                expected: a.expected,
                found: a.found,
                r#where: a.where_.join(", "),
            })
            .collect(),
        not_recomputed: verification
            .not_recomputable
            .into_iter()
            .map(|n| NotRecomputed {
                what: n.path,
                why: n.why,
            })
            .collect(),
    };
    print(&verdict, args.json, &args.path, endpoints_path.as_deref())
}

fn print(verdict: &Verdict, json: bool, path: &Path, endpoints: Option<&Path>) -> Outcome {
    if json {
        out!(
            "{}",
            serde_json::to_string_pretty(verdict).map_err(Failure::internal)?
        );
    } else {
        for row in &verdict.assertions {
            if row.ok {
                out_text!("✓ {} = {}", row.id, row.found);
            } else {
                out_text!(
                    "✗ {}: expected {}, found {} ({})",
                    row.id,
                    row.expected,
                    row.found,
                    row.r#where
                );
            }
        }
        for n in &verdict.not_recomputed {
            out_text!("– {}: not recomputed, {}", n.what, n.why);
        }
        if !verdict.suspects.is_empty() {
            out_text!("most likely altered: {}", verdict.suspects.join(", "));
        }
        let failed = verdict.assertions.iter().filter(|a| !a.ok).count();
        let with = endpoints.map_or_else(String::new, |e| format!(" with {}", e.display()));
        Reporter::new().say(format!(
            "{}{with}: {} assertions hold, {failed} do not; {} figures have no evidence to recompute them from",
            path.display(),
            verdict.assertions.len() - failed,
            verdict.not_recomputed.len(),
        ));
    }
    Ok(if verdict.ok {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}

fn read_bounded(path: &Path) -> Result<Vec<u8>, Failure> {
    let fail = |e: std::io::Error| {
        Failure::message(Exit::Configuration, format!("{}: {e}", path.display()))
            .help("give a report (JSON) or a results directory that this user may read")
    };
    let file = open_regular(path).map_err(fail)?;
    if file.metadata().map_err(fail)?.len() > MAX_REPORT_BYTES {
        return Err(Failure::message(
            Exit::Configuration,
            format!(
                "{} is larger than the {MAX_REPORT_BYTES} bytes accepted",
                path.display()
            ),
        ));
    }
    let mut bytes = Vec::new();
    file.take(MAX_REPORT_BYTES)
        .read_to_end(&mut bytes)
        .map_err(fail)?;
    Ok(bytes)
}

/// `…-endpoints.json` beside `…-campaign-run-1.json`: the longest common start wins.
fn endpoints_beside(path: &Path) -> Option<PathBuf> {
    let name = path.file_name()?.to_str()?;
    let mut best: Option<(usize, PathBuf)> = None;
    for entry in std::fs::read_dir(
        path.parent()
            .filter(|p| !p.as_os_str().is_empty())
            .unwrap_or(Path::new(".")),
    )
    .ok()?
    .flatten()
    {
        let other = entry.file_name();
        let Some(stem) = other
            .to_str()
            .and_then(|o| o.strip_suffix("-endpoints.json"))
        else {
            continue;
        };
        if name.starts_with(stem) && best.as_ref().is_none_or(|(n, _)| stem.len() > *n) {
            best = Some((stem.len(), entry.path()));
        }
    }
    best.map(|(_, path)| path)
}
