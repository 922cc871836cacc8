//! `blackstart compare`: two campaigns, and what their samples can say about the difference.

use std::path::{Path, PathBuf};

use blackstart_analyze::precision::{plain, signed as signed_text};
use blackstart_analyze::{
    CAMPAIGN_ANALYSIS_SCHEMA_VERSION, CampaignAnalysis, CampaignComparison, CompareInput,
    ComparedEndpoint, ComparedSide, EndpointSide, Interval, Pairing, RUN_ANALYSIS_SCHEMA_VERSION,
    RunAnalysis, Verdict, compare,
};
use blackstart_plan::Plan;
use blackstart_record::{ArtifactMismatch, Manifest, read_json, write_atomic};
use blackstart_require::{comparison_figures, comparison_names};
use clap::Args;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Outcome;
use crate::campaign::read_plan;
use crate::checks::check_unaltered;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};
use crate::reporter::{Reporter, harmless};
use crate::require::Requirements;

/// `compare`
#[derive(Debug, Args)]
pub struct CompareArgs {
    /// A results directory of `run`
    a: PathBuf,
    /// Another one
    b: PathBuf,
    /// Run against run of the same seed (default: where the seeds agree and there are enough pairs)
    #[arg(long, conflicts_with = "unpaired")]
    paired: bool,
    /// Sample against sample, whatever the seeds
    #[arg(long)]
    unpaired: bool,
    /// The difference that does not matter, in percent of the lower mean; choose it beforehand
    #[arg(long, value_name = "PERCENT")]
    margin: Option<f64>,
    /// One JSON object on stdout
    #[arg(long)]
    json: bool,
    /// Write the comparison as one self-contained page, too
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    #[command(flatten)]
    requirements: Requirements,
}

/// A results directory, read.
struct Side {
    /// Whether a manifest says that its documents are those that were written.
    sealed: bool,
    plan: Plan,
    campaign: CampaignAnalysis,
    runs: Vec<RunAnalysis>,
}

/// Columns of the table.
const WIDTH: usize = 100;
/// Most values of one side that the table lists; `--json` has all.
const MAX_LISTED: usize = 10;
/// Most differing keys that the table lists; `--json` has more.
const MAX_KEYS: usize = 20;

/// Runs the command.
pub fn run(args: CompareArgs) -> Outcome {
    args.requirements.check(&comparison_names())?;
    let (a, b) = (read(&args.a)?, read(&args.b)?);
    let pairing = match (args.paired, args.unpaired) {
        (true, _) => Pairing::Paired,
        (_, true) => Pairing::Unpaired,
        _ => Pairing::Auto,
    };
    let mut comparison = compare(input(&a), input(&b), pairing, args.margin).map_err(|e| {
        Failure::new(Exit::Configuration, e)
            .help("leave --paired out to compare the samples, and give --margin as percent above 0")
    })?;
    for (name, side) in [("A", &a), ("B", &b)] {
        if !side.sealed {
            comparison.caveats.push(format!(
                "{name} has no manifest: nothing says that its figures are those that its records gave; \
                 `blackstart verify` on the directory recomputes them"
            ));
        }
    }
    let figures = comparison_figures(&comparison);
    if args.json {
        let mut document = serde_json::to_value(&comparison).map_err(Failure::internal)?;
        args.requirements.put_into(&mut document, Some(&figures));
        out!(
            "{}",
            serde_json::to_string_pretty(&document).map_err(Failure::internal)?
        );
    } else {
        print(&comparison);
    }
    if let Some(path) = &args.html {
        let page = blackstart_report::render_comparison(&comparison).map_err(Failure::internal)?;
        // A link (`/dev/stdout` is one) would be replaced as well.
        if std::fs::symlink_metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(Failure::message(
                Exit::Configuration,
                format!(
                    "--html {}: it is there and is no regular file",
                    path.display()
                ),
            )
            .help("name a new file, or one that may be replaced"));
        }
        let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new(".")).canonicalize();
        if let Ok(folder) = folder
            && [&args.a, &args.b].iter().any(|side| {
                side.canonicalize()
                    .is_ok_and(|side| folder.starts_with(side))
            })
        {
            return Err(Failure::message(
                Exit::Configuration,
                format!(
                    "--html {}: it lies in one of the two results",
                    path.display()
                ),
            )
            .help("evidence is not written to: name a file outside of both"));
        }
        write_atomic(path, page.as_bytes()).map_err(|e| {
            Failure::new(Exit::Configuration, e)
                .help("give --html a file in a folder that this user may write")
        })?;
    }
    let exit = match &comparison.refusal {
        None => Exit::Valid,
        Some(why) => {
            Reporter::new().say(format!("error: not compared: {why}"));
            Exit::Invalid
        }
    };
    Ok(args.requirements.conclude(exit, Some(&figures)))
}

fn input(side: &Side) -> CompareInput<'_> {
    CompareInput {
        plan: &side.plan,
        campaign: &side.campaign,
        runs: &side.runs,
    }
}

fn read(dir: &Path) -> Result<Side, Failure> {
    let plan = read_plan(dir)?;
    let sealed = check_seal(dir)?;
    let campaign: CampaignAnalysis = document(
        dir,
        &dir.join("analysis.json"),
        CAMPAIGN_ANALYSIS_SCHEMA_VERSION,
    )?;
    let mut runs = Vec::new();
    for verdict in &campaign.runs {
        let path = dir
            .join(format!("run-{}", verdict.run))
            .join("analysis.json");
        let run: RunAnalysis = document(dir, &path, RUN_ANALYSIS_SCHEMA_VERSION)?;
        if run.run != verdict.run || !plan.runs.iter().any(|r| r.run == run.run) {
            return Err(Failure::message(
                Exit::Invalid,
                format!("{}: is of run {}", path.display(), run.run),
            )
            .help(format!("run `blackstart analyze {}`", dir.display())));
        }
        runs.push(run);
    }
    Ok(Side {
        sealed,
        plan,
        campaign,
        runs,
    })
}

/// Whether the folder has a manifest; its documents are then those that it sealed.
fn check_seal(dir: &Path) -> Result<bool, Failure> {
    let path = dir.join("manifest.json");
    if !path.exists() {
        return Ok(false);
    }
    let manifest: Manifest = read_json(&path).map_err(Failure::records)?;
    check_unaltered(dir, &manifest, "results", |mismatch| {
        !matches!(mismatch, ArtifactMismatch::Unlisted(_))
    })
    .map(|()| true)
}

/// A document of this version. One of another version holds figures of another method.
fn document<T: DeserializeOwned>(dir: &Path, path: &Path, version: u32) -> Result<T, Failure> {
    let help = format!(
        "run `blackstart analyze {}`, which writes it anew from the records",
        dir.display()
    );
    let found: Value =
        read_json(path).map_err(|e| Failure::new(Exit::Invalid, e).help(help.clone()))?;
    let has = &found["schema_version"];
    if has.as_u64() != Some(u64::from(version)) {
        return Err(Failure::message(
            Exit::Invalid,
            format!(
                "{} has schema version {has}; this blackstart compares version {version}",
                path.display()
            ),
        )
        .help(help));
    }
    serde_json::from_value(found).map_err(|e| {
        Failure::new(Exit::Invalid, e)
            .context(path.display().to_string())
            .help(help)
    })
}

/// Prints a text, broken between words, each line indented.
fn wrapped(indent: usize, text: &str) {
    let text = harmless(text);
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && indent + line.chars().count() + 1 + word.chars().count() > WIDTH {
            out_text!("{:indent$}{line}", "");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        out_text!("{:indent$}{line}", "");
    }
}

fn print(c: &CampaignComparison) {
    print_side("A", &c.a);
    print_side("B", &c.b);
    for d in c.differences.iter().take(MAX_KEYS) {
        let shown = |v: &Option<String>| v.clone().unwrap_or_else(|| "–".to_owned());
        let mark = if d.refused { "refused" } else { "differs" };
        wrapped(
            0,
            &format!("{mark}: {}: {} | {}", d.key, shown(&d.a), shown(&d.b)),
        );
    }
    if let Some(more) = c.differences.len().checked_sub(MAX_KEYS).filter(|n| *n > 0) {
        out_text!("… and {more} more keys");
    }
    if let Some(pairing) = &c.pairing {
        let how = if pairing.paired { "paired" } else { "unpaired" };
        wrapped(0, &format!("compared {how}: {}", pairing.reason));
    }
    if c.endpoints.is_empty() {
        return;
    }
    out_text!(
        "\n{:<30} {:<6} {:>10} {:>10} {:>10}  {:<20} {:>7}",
        "figure",
        "lead",
        "A",
        "B",
        "B − A",
        "95 % interval",
        "p"
    );
    for e in &c.endpoints {
        print_endpoint(e);
    }
    out_text!("");
    for caveat in &c.caveats {
        wrapped(0, &format!("note: {caveat}"));
    }
}

fn print_side(name: &str, side: &ComparedSide) {
    wrapped(
        0,
        &format!(
            "{name} {} · {} · {} of {} runs count, {} invalid",
            side.campaign,
            side.variant.as_deref().unwrap_or("no fault"),
            side.valid_runs,
            side.planned_runs,
            side.invalid_runs
        ),
    );
    for run in &side.excluded {
        wrapped(2, &format!("run {} is left out: {}", run.run, run.reason));
    }
}

fn print_endpoint(e: &ComparedEndpoint) {
    let d = e.decimals();
    let lead = e.leading();
    let number = |v: Option<f64>| v.map_or_else(|| "–".to_owned(), |v| plain(v, d));
    let signed = |v: Option<f64>| v.map_or_else(|| "–".to_owned(), |v| signed_text(v, d));
    let span = |i: Option<Interval>| {
        i.map_or_else(
            || "–".to_owned(),
            |i| format!("[{}, {}]", signed_text(i.lo, d), signed_text(i.hi, d)),
        )
    };
    out_text!(
        "{:<30} {:<6} {:>10} {:>10} {:>10}  {:<20} {:>7}",
        format!("{} ({})", e.name, e.unit),
        lead.word,
        number(lead.a),
        number(lead.b),
        signed(lead.difference),
        span(lead.interval),
        e.p_adjusted
            .map_or_else(|| "–".to_owned(), |p| format!("{p:.4}"))
    );
    wrapped(4, &words(&e.verdict, &e.unit, d));
    if e.a.values.is_empty() && e.b.values.is_empty() && !e.censored() {
        return;
    }
    let mut parts = vec![
        format!("A: {}", listed(&e.a, d)),
        format!("B: {}", listed(&e.b, d)),
    ];
    if e.heavy_tailed && e.mean_interval.is_some() {
        parts.push(format!(
            "mean {} {}",
            signed(e.mean_difference),
            span(e.mean_interval)
        ));
    }
    if let Some(spread) = e.noise.spread {
        parts.push(format!("spread {}", plain(spread, d)));
    }
    if e.noise.uncertainty > 0.0 {
        parts.push(format!(
            "uncertainty ±{}",
            number(Some(e.noise.uncertainty))
        ));
    }
    if let Some(floor) = e.noise.floor {
        parts.push(format!("noise floor {}", plain(floor, d)));
    }
    if let Some(carried) = e.carried_margin {
        parts.push(format!("carries ±{}", plain(carried, d)));
    }
    if let (Some(p), Some(adjusted)) = (e.p, e.p_adjusted)
        && p != adjusted
    {
        parts.push(format!("p {p:.4} before Holm"));
    }
    parts.extend(e.interval_note.clone());
    wrapped(4, &parts.join(" · "));
}

fn words(verdict: &Verdict, unit: &str, d: usize) -> String {
    match verdict {
        Verdict::ALower => "A lower".to_owned(),
        Verdict::BLower => "B lower".to_owned(),
        Verdict::Equivalent { within } => {
            format!("equivalent within ±{} {unit}", plain(*within, d))
        }
        Verdict::CannotTell { why } => format!("cannot tell ({why})"),
    }
}

fn listed(side: &EndpointSide, d: usize) -> String {
    let mut all: Vec<String> = side
        .values
        .iter()
        .map(|v| plain(v.value, d))
        .chain(
            side.censored
                .iter()
                .map(|c| format!("≥{}", plain(c.at_least, d))),
        )
        .collect();
    let more = all.len().saturating_sub(MAX_LISTED);
    all.truncate(MAX_LISTED);
    if more > 0 {
        all.push(format!("and {more} more"));
    }
    all.extend(
        side.dropped
            .iter()
            .take(1)
            .map(|r| format!("({} without a value: {})", side.dropped.len(), r.reason)),
    );
    all.join(" ")
}
