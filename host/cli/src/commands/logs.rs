//! `blackstart logs`: what server logs say, for people and for scripts.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use blackstart_logs::{Dropped, ReadOptions, without_escapes};
use blackstart_record::{Boundary, StampSource};
use clap::Args;
use serde::Serialize;

use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::glyphs::Shown;
use crate::matching::{MatchError, Matched, match_log};
use crate::plugins::Plugins;
use crate::reporter::Reporter;
use crate::when;

/// `logs`
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Log files, plain or compressed with gzip or zstd; `-` reads standard input
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// One JSON object a line and boundary on stdout
    #[arg(long)]
    json: bool,
    /// Log matcher to use (default: the one most certain of each log)
    #[arg(long, value_name = "NAME")]
    matcher: Option<String>,
    /// Folder with components, besides the bundled ones
    #[arg(long, value_name = "DIR")]
    plugin_dir: Vec<PathBuf>,
    /// Offset from UTC of the lines' own clock, such as +02:00: the lines do not say
    #[arg(
        long,
        value_name = "OFFSET",
        default_value = "+00:00",
        allow_hyphen_values = true
    )]
    zone: String,
}

/// A boundary as scripts read it.
#[derive(Serialize)]
struct Row<'a> {
    file: &'a str,
    line: u64,
    life: u32,
    key: &'a str,
    process: Option<&'a str>,
    at: Option<String>,
    stamp: StampSource,
    measures: BTreeMap<&'a str, f64>,
    fields: BTreeMap<&'a str, &'a str>,
}

/// Runs the command.
pub fn run(args: LogsArgs) -> Outcome {
    let offset_s = offset(&args.zone)?;
    let plugins = Plugins::open(&args.plugin_dir)?;
    let reporter = Reporter::new();
    let mut unread = 0;
    for path in &args.files {
        let name = path.display().to_string();
        let (input, reference_unix_ns) = open(path)?;
        let options = ReadOptions {
            captured: false,
            reference_unix_ns,
            offset_s,
        };
        match match_log(
            &plugins,
            args.matcher.as_deref(),
            "{}",
            &name,
            input,
            options,
        ) {
            Ok(matched) => {
                if let Some(d) = matched.reading.dropped {
                    reporter.say(format!(
                        "warning: {name}: too many boundaries to keep: {} of them, from line {} to line {}, are left out",
                        d.boundaries, d.first_line, d.last_line
                    ));
                }
                let written = if args.json {
                    print_json(&name, &matched.reading.boundaries)
                } else {
                    print_text(&name, &matched)
                };
                match written {
                    // The reader of a pipe has seen enough.
                    Err(e) if e.kind() == io::ErrorKind::BrokenPipe => return Ok(Exit::Valid),
                    other => other.map_err(Failure::internal)?,
                }
            }
            Err(MatchError::Unclaimed) => {
                unread += 1;
                reporter.say(format!(
                    "error: {name}: no log matcher recognises it; name one with --matcher ({})",
                    plugins
                        .registry
                        .of_world(blackstart_plugins::World::LogMatcher)
                        .map(|a| a.label().name.as_str())
                        .collect::<Vec<_>>()
                        .join(", ")
                ));
            }
            Err(MatchError::Plugin(e)) => return Err(e.into()),
            Err(MatchError::Input(e)) => {
                return Err(Failure::new(Exit::Configuration, e).context(format!("reading {name}")));
            }
        }
    }
    Ok(if unread == 0 {
        Exit::Valid
    } else {
        Exit::Invalid
    })
}

/// `+02:00`, `-0700` or `Z`, in seconds.
fn offset(text: &str) -> Result<i64, Failure> {
    let refuse = || {
        Failure::message(
            Exit::Configuration,
            format!("--zone {text} is no offset from UTC"),
        )
        .help("write it as +02:00 or -07:00")
    };
    if text == "Z" {
        return Ok(0);
    }
    let sign = match text.as_bytes().first() {
        Some(b'+') => 1,
        Some(b'-') => -1,
        _ => return Err(refuse()),
    };
    let digits: String = text[1..].chars().filter(|&c| c != ':').collect();
    if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(refuse());
    }
    let number: i64 = digits.parse().map_err(|_| refuse())?;
    let (hours, minutes) = (number / 100, number % 100);
    if hours > 14 || minutes > 59 {
        return Err(refuse());
    }
    Ok(sign * (hours * 3600 + minutes * 60))
}

/// Opens a log, taking off compression, with the latest instant that it can hold.
fn open(path: &Path) -> Result<(Box<dyn Read>, i64), Failure> {
    let fail = |e: io::Error| {
        Failure::message(Exit::Configuration, format!("{}: {e}", path.display()))
            .help("give a log file that this user may read, or - for standard input")
    };
    let (mut raw, reference): (Box<dyn Read>, i64) = if path == Path::new("-") {
        (Box::new(io::stdin().lock()), blackstart_clock::unix_ns())
    } else {
        let file = File::open(path).map_err(fail)?;
        let meta = file.metadata().map_err(fail)?;
        // A pipe is a fair input (process substitution); a folder or a device is none.
        let kind = meta.file_type();
        if !(kind.is_file() || kind.is_fifo()) {
            return Err(fail(io::Error::other("is no log file")));
        }
        let modified = meta
            .modified()
            .ok()
            .and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok())
            .and_then(|d| i64::try_from(d.as_nanos()).ok());
        (
            Box::new(file),
            modified.unwrap_or_else(blackstart_clock::unix_ns),
        )
    };
    let mut magic = Vec::new();
    raw.by_ref().take(4).read_to_end(&mut magic).map_err(fail)?;
    let compressed = magic.clone();
    let whole = io::Cursor::new(magic).chain(raw);
    let input: Box<dyn Read> = match compressed.as_slice() {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(BufReader::new(whole))),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::new(whole).map_err(fail)?),
        _ => Box::new(whole),
    };
    Ok((input, reference))
}

fn print_json(file: &str, boundaries: &[Boundary]) -> io::Result<()> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    for b in boundaries {
        let row = Row {
            file,
            line: b.line,
            life: b.life,
            key: &b.key,
            process: b.process.as_deref(),
            at: b.at_unix_ns.map(when::rfc3339),
            stamp: b.stamp,
            measures: b
                .measures
                .iter()
                .map(|m| (m.name.as_str(), m.value))
                .collect(),
            fields: b
                .fields
                .iter()
                .map(|(k, v)| (k.as_str(), v.as_str()))
                .collect(),
        };
        serde_json::to_writer(&mut out, &row)?;
        out.write_all(b"\n")?;
    }
    out.flush()
}

/// Steps of a start in their usual order, to say which were not found.
const STEPS: [&str; 12] = [
    "banner",
    "engine_init",
    "model_load_start",
    "weight_download",
    "weights_loaded",
    "model_loaded",
    "torch_compile",
    "kv_cache",
    "graph_capture",
    "engine_ready",
    "server_start",
    "startup_complete",
];

fn print_text(file: &str, matched: &Matched) -> io::Result<()> {
    let mut out = Shown(io::BufWriter::new(io::stdout().lock()));
    let reading = &matched.reading;
    writeln!(
        out,
        "{file}\n  release {} · read by {} · {} lines, {} matched{}",
        matched.server_version.as_deref().unwrap_or("not found"),
        matched.matcher,
        reading.lines,
        reading.matched,
        if reading.cut_lines > 0 {
            format!(" · {} over-long lines lost their middle", reading.cut_lines)
        } else {
            String::new()
        }
    )?;
    if reading.boundaries.is_empty() {
        writeln!(out, "  nothing found")?;
    }
    let mut dropped = reading.dropped;
    let cut = dropped.map(|d| lives_at(d, &reading.boundaries));
    // File order: the boundaries of one start stand together.
    for of_life in reading.boundaries.chunk_by(|a, b| a.life == b.life) {
        let (Some(first), Some(last)) = (of_life.first(), of_life.last()) else {
            continue;
        };
        if let Some(d) = dropped.take_if(|d| d.last_line < last.line) {
            writeln!(
                out,
                "\n  … {} boundaries left out, from line {} to line {}",
                d.boundaries, d.first_line, d.last_line
            )?;
        }
        let whole = cut.is_none_or(|lives| !lives.contains(&first.life));
        print_life(&mut out, first.life, of_life, whole)?;
    }
    out.flush()
}

/// The starts next to what was dropped, of which boundaries may be missing.
fn lives_at(dropped: Dropped, boundaries: &[Boundary]) -> [u32; 2] {
    let before = boundaries
        .iter()
        .rfind(|b| b.line < dropped.first_line)
        .map_or(0, |b| b.life);
    let after = boundaries
        .iter()
        .find(|b| b.line > dropped.last_line)
        .map_or(0, |b| b.life);
    [before, after]
}

/// One start; `whole` when all of its boundaries are there.
fn print_life(
    out: &mut impl Write,
    life: u32,
    boundaries: &[Boundary],
    whole: bool,
) -> io::Result<()> {
    let start = boundaries.iter().find_map(|b| b.at_unix_ns);
    let clock = match boundaries
        .iter()
        .map(|b| b.stamp)
        .find(|s| *s != StampSource::None)
    {
        Some(StampSource::Capture) => "the instrument's stamps",
        Some(StampSource::Docker) => "the stamps before the lines",
        Some(StampSource::Kubernetes) => "the kubelet's stamps before the lines",
        Some(StampSource::Line) => "the lines' own stamps",
        Some(StampSource::None) | None => "no stamps",
    };
    writeln!(
        out,
        "\n  start {life}{} · {clock}",
        start.map_or_else(String::new, |s| format!(" · {}", when::rfc3339(s)))
    )?;
    writeln!(
        out,
        "    {:>7}  {:>10}  {:<18} {:<14} figures",
        "line", "after", "boundary", "process"
    )?;
    for b in boundaries {
        let after = start.zip(b.at_unix_ns).map_or_else(
            || "–".to_owned(),
            |(s, at)| format!("+{:.3} s", (at - s) as f64 / 1e9),
        );
        let mut figures: Vec<String> = b
            .measures
            .iter()
            .map(|m| format!("{} {}", m.name, m.value))
            .collect();
        figures.extend(
            b.fields
                .iter()
                .map(|(k, v)| format!("{k} {}", shortened(v))),
        );
        writeln!(
            out,
            "    {:>7}  {after:>10}  {:<18} {:<14} {}",
            b.line,
            b.key,
            b.process.as_deref().unwrap_or("–"),
            figures.join(", ")
        )?;
    }
    let missing: Vec<&str> = STEPS
        .into_iter()
        .filter(|s| !boundaries.iter().any(|b| b.key == *s))
        .collect();
    if whole && !missing.is_empty() {
        writeln!(out, "    not found: {}", missing.join(", "))?;
    }
    if let Some(first) = boundaries.iter().find(|b| b.key.starts_with("failure.")) {
        writeln!(
            out,
            "    first failure: {} at line {}: {}",
            &first.key["failure.".len()..],
            first.line,
            shortened(&first.text)
        )?;
    }
    Ok(())
}

/// A text of the log, short and without terminal escapes and other control characters.
fn shortened(text: &str) -> String {
    const LONGEST: usize = 160;
    let text = without_escapes(text);
    let clean: String = text.chars().filter(|c| !c.is_control()).collect();
    match clean.char_indices().nth(LONGEST) {
        Some((cut, _)) => format!("{}…", &clean[..cut]),
        None => clean,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_a_log_have_no_part_of_an_escape() {
        assert_eq!(
            shortened("\x1b[0;36m(A pid=1)\x1b[0;0m \x1b]0;title\x07failed\r"),
            "(A pid=1) failed"
        );
        assert_eq!(shortened(&"x".repeat(200)).chars().count(), 161);
    }
}
