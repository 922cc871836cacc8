//! Whole loads beside each other: Blackstart, the bare client and, where given, oha and `vllm-rs bench
//! serve`, in turns against the null target, at one constant rate.
//!
//! The target's own stamps are the truth: how late requests arrived, and when first tokens were sent.

use std::ffi::OsString;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, bail};
use blackstart_benches::stream::{EVENTS, TOKENS, request_body};
use blackstart_clock::monotonic_ns;
use blackstart_record::{EventKind, Outcome, RunFiles, for_each_request, read_events};
use clap::Parser;

/// Whole loads beside each other.
#[derive(Debug, Parser)]
struct Args {
    /// The `blackstart` executable [default: beside this one]
    #[arg(long)]
    blackstart: Option<PathBuf>,
    /// An `oha` executable (`cargo install oha`)
    #[arg(long)]
    oha: Option<PathBuf>,
    /// A `vllm-rs` executable (in the wheel of vllm 0.33)
    #[arg(long)]
    vllm_rs: Option<PathBuf>,
    /// Requests per second
    #[arg(long, default_value_t = 2000.0)]
    rate: f64,
    /// Requests of each load
    #[arg(long, default_value_t = 20_000)]
    requests: u64,
    /// Loads of each tool
    #[arg(long, default_value_t = 3)]
    rounds: u32,
    /// More options for `blackstart load`
    #[arg(long, value_name = "OPTION", allow_hyphen_values = true)]
    with: Vec<OsString>,
}

/// What one load of one tool was.
#[derive(Debug, Clone)]
struct Figures {
    tool: &'static str,
    /// Requests that the target saw.
    requests: usize,
    cpu_s_per_million_events: f64,
    peak_memory_mb: f64,
    first_request_s: f64,
    /// Lateness at the target against a constant rate through its most punctual request, in ms.
    late_ms: Quantiles,
    /// TTFT as the tool tells it, less the truth, in ms.
    ttft_error_ms: Option<(f64, f64)>,
    /// Lateness at the target against the published schedule, in ms. Only Blackstart has one.
    skew_ms: Option<Quantiles>,
    /// The tool's own opinion of its skew, in ms.
    own_skew_ms: Option<Quantiles>,
}

#[derive(Debug, Clone, Copy)]
struct Quantiles {
    p50: f64,
    p99: f64,
    max: f64,
}

impl Quantiles {
    fn of_ns(mut values: Vec<i64>) -> Option<Self> {
        values.sort_unstable();
        let last = values.len().checked_sub(1)?;
        let at = |q: f64| ((q * values.len() as f64).ceil() as usize).clamp(1, last + 1) - 1;
        let ms = |ns: i64| ns as f64 / 1e6;
        Some(Self {
            p50: ms(values[at(0.5)]),
            p99: ms(values[at(0.99)]),
            max: ms(values[last]),
        })
    }
}

/// The null target, which ends with its load.
struct Target(Child);

impl Drop for Target {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A request as the target saw it.
struct Seen {
    id: String,
    arrived_ns: i64,
    first_token_ns: i64,
}

fn main() -> anyhow::Result<()> {
    let args = Args::parse();
    let bin = std::env::current_exe()?;
    let beside = bin.parent().context("no folder")?;
    let dir = tempfile::tempdir()?;
    let prompts = dir.path().join("prompts.jsonl");
    std::fs::write(
        &prompts,
        format!("{{\"prompt\": \"{}\"}}\n", "word ".repeat(128)).repeat(args.requests as usize),
    )?;
    let body = dir.path().join("body.json");
    std::fs::write(&body, request_body())?;
    write_tokenizer(&dir.path().join("tokenizer"))?;
    let mut all = Vec::new();
    for round in 0..args.rounds {
        for tool in ["blackstart", "bare", "oha", "vllm-rs"] {
            let folder = dir.path().join(format!("{tool}-{round}"));
            std::fs::create_dir(&folder)?;
            let rate = args.rate.to_string();
            let requests = args.requests.to_string();
            let url = |port: u16| format!("http://127.0.0.1:{port}");
            let command = |port: u16| -> Option<Command> {
                let mut command;
                match tool {
                    "blackstart" => {
                        let default = beside.join("blackstart");
                        command = Command::new(args.blackstart.as_ref().unwrap_or(&default));
                        command.args(["load", "--url", &url(port), "--model", "mock-8b"]);
                        command.args(["--arrivals", "constant", "--rate", &rate]);
                        let length =
                            format!("{}ms", (args.requests as f64 / args.rate * 1e3) as u64);
                        command.args(["--requests", &requests, "--duration", &length]);
                        command.args(["--max-tokens", &TOKENS.to_string(), "--ignore-eos"]);
                        // The limit on open files must carry rate × timeout.
                        command
                            .args(["--timeout", "4s", "--no-canary", "--out"])
                            .arg(folder.join("out"));
                        command.args(&args.with);
                    }
                    "bare" => {
                        command = Command::new(beside.join("bare-client"));
                        command.args([&port.to_string(), &rate, &requests]);
                    }
                    "oha" => {
                        command = Command::new(args.oha.as_ref()?);
                        // Connections enough for the rate: each stream lasts 0.33 s.
                        let connections = (args.rate * 0.5).ceil().max(4.0) as u64;
                        command.args([
                            "-q",
                            &rate,
                            "-n",
                            &requests,
                            "-c",
                            &connections.to_string(),
                        ]);
                        command
                            .args(["-m", "POST", "-T", "application/json", "-D"])
                            .arg(&body);
                        command.args(["--no-tui", "--output-format", "json"]);
                        command.arg(format!("{}/v1/chat/completions", url(port)));
                    }
                    _ => {
                        command = Command::new(args.vllm_rs.as_ref()?);
                        command.args(["bench", "serve", "--backend", "openai-chat", "--base-url"]);
                        command.args([&url(port), "--model", "mock-8b", "--tokenizer"]);
                        command.arg(dir.path().join("tokenizer"));
                        command.env("HF_HUB_OFFLINE", "1");
                        command
                            .args(["--dataset-name", "custom", "--dataset-path"])
                            .arg(&prompts);
                        command.args(["--custom-output-len", &TOKENS.to_string(), "--ignore-eos"]);
                        command.args(["--num-prompts", &requests, "--request-rate", &rate]);
                        // So little bursty that it is constant.
                        command.args(["--burstiness", "1000000", "--disable-tqdm"]);
                        command.args(["--save-result", "--result-filename", "result.json"]);
                        command.arg("--result-dir").arg(&folder);
                    }
                }
                Some(command)
            };
            if let Some(figures) = measure(tool, &args, beside, &folder, command)
                .with_context(|| format!("{tool}, round {round}"))?
            {
                eprintln!("{figures:?}");
                all.push(figures);
            }
        }
    }
    print!("{}", table(&all));
    Ok(())
}

/// A tokenizer of three words, without which `vllm-rs` sends nothing.
fn write_tokenizer(dir: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(dir)?;
    let files = [
        (
            "tokenizer.json",
            serde_json::json!({
                "version": "1.0", "truncation": null, "padding": null, "added_tokens": [],
                "normalizer": null, "pre_tokenizer": {"type": "Whitespace"},
                "post_processor": null, "decoder": null,
                "model": {
                    "type": "WordLevel", "unk_token": "[UNK]",
                    "vocab": {"[UNK]": 0, "word": 1, "token": 2},
                },
            }),
        ),
        (
            "config.json",
            serde_json::json!({"model_type": "llama", "vocab_size": 3, "max_position_embeddings": 8192}),
        ),
    ];
    for (name, content) in files {
        std::fs::write(dir.join(name), content.to_string())?;
    }
    Ok(())
}

fn measure(
    tool: &'static str,
    args: &Args,
    beside: &Path,
    folder: &Path,
    command: impl Fn(u16) -> Option<Command>,
) -> anyhow::Result<Option<Figures>> {
    let truth = folder.join("truth.tsv");
    let mut target = Target(
        Command::new(beside.join("null-target"))
            .arg("0")
            .arg(&truth)
            .stdout(Stdio::piped())
            .spawn()
            .context("null-target")?,
    );
    let mut line = String::new();
    let said = target.0.stdout.take().context("no output")?;
    BufReader::new(said).read_line(&mut line)?;
    let port: u16 = line.trim().parse().context("null-target: no port")?;
    let Some(mut command) = command(port) else {
        return Ok(None);
    };
    let output = folder.join("stdout");
    command.stdout(std::fs::File::create(&output)?);
    command.stderr(std::fs::File::create(folder.join("stderr"))?);
    let started_ns = monotonic_ns();
    let (cpu_s, peak_memory_mb) = run(command.spawn()?)
        .with_context(|| std::fs::read_to_string(folder.join("stderr")).unwrap_or_default())?;
    let pid = i32::try_from(target.0.id())?;
    // SAFETY: a signal to our own child, which is not waited for yet.
    unsafe { libc::kill(pid, libc::SIGTERM) };
    target.0.wait()?;
    let mut seen = read_truth(&truth)?;
    seen.sort_by_key(|s| s.arrived_ns);
    // A trial request before the load is not of it.
    let trials = seen.len().saturating_sub(args.requests as usize);
    seen.drain(..trials);
    let first_ns = seen
        .first()
        .context("the target saw no request")?
        .arrived_ns;
    let grid = |k: usize| (k as f64 / args.rate * 1e9) as i64;
    let offsets: Vec<i64> = seen
        .iter()
        .enumerate()
        .map(|(k, s)| s.arrived_ns - grid(k))
        .collect();
    let punctual_ns = offsets.iter().copied().min().unwrap_or_default();
    let late = offsets.into_iter().map(|o| o - punctual_ns).collect();
    let mut figures = Figures {
        tool,
        requests: seen.len(),
        cpu_s_per_million_events: cpu_s / (seen.len() * EVENTS) as f64 * 1e6,
        peak_memory_mb,
        first_request_s: (first_ns - started_ns) as f64 / 1e9,
        late_ms: Quantiles::of_ns(late).context("no request")?,
        ttft_error_ms: None,
        skew_ms: None,
        own_skew_ms: None,
    };
    let stdout = std::fs::read_to_string(&output)?;
    match tool {
        "blackstart" => own_figures(&folder.join("out"), &seen, &mut figures)?,
        "bare" => {
            let said: serde_json::Value = serde_json::from_str(&stdout)?;
            // Its requests' intended times are the grid.
            let truth = Quantiles::of_ns(
                seen.iter()
                    .enumerate()
                    .map(|(k, s)| s.first_token_ns - punctual_ns - grid(k))
                    .collect(),
            );
            figures.ttft_error_ms = ttft_error(
                said["ttft_ms"]["p50"].as_f64(),
                said["ttft_ms"]["p99"].as_f64(),
                truth,
            );
        }
        _ => {
            let truth = Quantiles::of_ns(
                seen.iter()
                    .map(|s| s.first_token_ns - s.arrived_ns)
                    .collect(),
            );
            let (p50, p99) = if tool == "oha" {
                let said: serde_json::Value = serde_json::from_str(&stdout)?;
                let q = |p: &str| said["firstBytePercentiles"][p].as_f64().map(|s| s * 1e3);
                (q("p50"), q("p99"))
            } else {
                let text = std::fs::read_to_string(folder.join("result.json"))?;
                let said: serde_json::Value = serde_json::from_str(&text)?;
                (
                    said["median_ttft_ms"].as_f64(),
                    said["p99_ttft_ms"].as_f64(),
                )
            };
            figures.ttft_error_ms = ttft_error(p50, p99, truth);
        }
    }
    Ok(Some(figures))
}

/// What a tool's quantiles are beyond the true ones.
fn ttft_error(p50: Option<f64>, p99: Option<f64>, truth: Option<Quantiles>) -> Option<(f64, f64)> {
    let truth = truth?;
    Some((p50? - truth.p50, p99? - truth.p99))
}

/// CPU time in seconds and peak memory in MB of a process, at its end.
fn run(child: Child) -> anyhow::Result<(f64, f64)> {
    let pid = i32::try_from(child.id())?;
    let mut status = 0;
    // SAFETY: both places outlive the call; zeros are a valid `rusage`. The child is ours, and nobody
    // else waits for it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        if libc::wait4(pid, &raw mut status, 0, &raw mut usage) != pid {
            bail!("wait4: {}", std::io::Error::last_os_error());
        }
        usage
    };
    if !libc::WIFEXITED(status) || libc::WEXITSTATUS(status) != 0 {
        bail!("it failed with wait status {status}");
    }
    let s = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
    Ok((
        s(usage.ru_utime) + s(usage.ru_stime),
        usage.ru_maxrss as f64 / 1024.0,
    ))
}

fn read_truth(path: &Path) -> anyhow::Result<Vec<Seen>> {
    let text = std::fs::read_to_string(path)?;
    text.lines()
        .map(|line| {
            let mut fields = line.split('\t');
            let mut next = || fields.next().context("a short line");
            Ok(Seen {
                id: next()?.to_owned(),
                arrived_ns: next()?.parse()?,
                first_token_ns: next()?.parse()?,
            })
        })
        .collect()
}

/// Blackstart's records against what the target saw, request by request.
fn own_figures(dir: &Path, seen: &[Seen], figures: &mut Figures) -> anyhow::Result<()> {
    let files = RunFiles::new(dir);
    let events = read_events(&files.events())?;
    let epoch_ns = events
        .events
        .iter()
        .find_map(|e| match e.kind {
            EventKind::Epoch { monotonic_ns, .. } => Some(monotonic_ns),
            _ => None,
        })
        .context("no epoch")?;
    let by_index: std::collections::HashMap<u64, &Seen> = seen
        .iter()
        .filter_map(|s| Some((s.id.rsplit('-').next()?.parse().ok()?, s)))
        .collect();
    let (mut skew, mut own, mut error) = (Vec::new(), Vec::new(), Vec::new());
    let mut not_completed = 0;
    for_each_request(&files.requests(), |r| {
        let Some(seen) = by_index.get(&r.index) else {
            not_completed += 1;
            return;
        };
        if r.outcome != Outcome::Completed {
            not_completed += 1;
        }
        let intended_ns = epoch_ns + r.intended_ns;
        skew.push(seen.arrived_ns - intended_ns);
        own.extend(r.send_skew_ns());
        if let Some(ttft_ns) = r.ttft_ns() {
            error.push(ttft_ns - (seen.first_token_ns - intended_ns));
        }
    })?;
    if not_completed > 0 {
        eprintln!("{not_completed} requests did not complete");
    }
    figures.skew_ms = Quantiles::of_ns(skew);
    figures.own_skew_ms = Quantiles::of_ns(own);
    figures.ttft_error_ms = Quantiles::of_ns(error).map(|e| (e.p50, e.p99));
    Ok(())
}

/// Medians over the rounds, as Markdown.
fn table(all: &[Figures]) -> String {
    let mut text = String::from(
        "| tool | CPU s per 1 M events | peak MB | first request s | lateness p50 / p99 / max ms | TTFT error p50 / p99 ms | skew to schedule p50 / p99 / max ms | own opinion |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |\n",
    );
    let mut cpu = std::collections::BTreeMap::new();
    for tool in ["blackstart", "bare", "oha", "vllm-rs"] {
        let rows: Vec<&Figures> = all.iter().filter(|f| f.tool == tool).collect();
        if rows.is_empty() {
            continue;
        }
        let median = |value: &dyn Fn(&Figures) -> Option<f64>| {
            let mut values: Vec<f64> = rows.iter().filter_map(|f| value(f)).collect();
            values.sort_by(f64::total_cmp);
            values.get(values.len() / 2).copied()
        };
        let show = |value: Option<f64>, digits: usize| {
            value.map_or_else(|| "–".to_owned(), |v| format!("{v:.digits$}"))
        };
        let three = |of: &dyn Fn(&Figures) -> Option<Quantiles>| {
            let part = |take: &dyn Fn(Quantiles) -> f64| show(median(&|f| of(f).map(take)), 3);
            format!(
                "{} / {} / {}",
                part(&|q| q.p50),
                part(&|q| q.p99),
                part(&|q| q.max)
            )
        };
        let c = median(&|f| Some(f.cpu_s_per_million_events));
        cpu.insert(tool, c);
        text += &format!(
            "| {tool} ({}) | {} | {} | {} | {} | {} / {} | {} | {} |\n",
            rows.iter()
                .map(|f| f.requests.to_string())
                .collect::<Vec<_>>()
                .join(", "),
            show(c, 2),
            show(median(&|f| Some(f.peak_memory_mb)), 0),
            show(median(&|f| Some(f.first_request_s)), 3),
            three(&|f| Some(f.late_ms)),
            show(median(&|f| f.ttft_error_ms.map(|e| e.0)), 3),
            show(median(&|f| f.ttft_error_ms.map(|e| e.1)), 3),
            three(&|f| f.skew_ms),
            three(&|f| f.own_skew_ms),
        );
    }
    for other in ["bare", "oha", "vllm-rs"] {
        if let (Some(Some(own)), Some(Some(peer))) = (cpu.get("blackstart"), cpu.get(other)) {
            text += &format!(
                "\nCPU per event, Blackstart to {other}: {:.2}\n",
                own / peer
            );
        }
    }
    text
}
