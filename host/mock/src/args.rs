//! Command line of the mock and its validation into a [`Config`].

use std::path::PathBuf;

use clap::Args;
use serde::{Deserialize, Serialize};

use crate::phases::{Phase, PhaseLengths};
use crate::release;

/// Options of `blackstart mock`.
#[derive(Debug, Clone, Args)]
pub struct MockArgs {
    /// Address to listen on.
    #[arg(long, default_value = "127.0.0.1")]
    pub host: std::net::IpAddr,
    /// Port to listen on; 0 takes a free one (see --announce).
    #[arg(long, default_value_t = 8000)]
    pub port: u16,
    /// Print one JSON line on stdout once the port is open: port, admin_port, pid, engine_pid
    /// (always so with `--port 0`).
    #[arg(long)]
    pub announce: bool,
    /// vLLM release to act as: start-up lines, failure behaviour, metric names.
    #[arg(long, default_value = "0.32.0")]
    pub release: String,
    /// Model name that requests must use.
    #[arg(long, default_value = "mock-8b")]
    pub model: String,
    /// Sent as the response header `x-replica`.
    #[arg(long, value_name = "NAME")]
    pub replica_name: Option<String>,
    /// Known-timing endpoint for a canary: TTFT 20 ms, 10 ms between tokens, 32 tokens, engine
    /// in-process, no start-up phases, no log.
    #[arg(long)]
    pub canary: bool,

    /// Sequences that run at once; the rest queue in order of arrival.
    #[arg(long, default_value_t = 256, value_name = "N")]
    pub max_num_seqs: u32,
    /// Longest prompt + answer, tokens.
    #[arg(long, default_value_t = 8192, value_name = "TOKENS")]
    pub max_model_len: u32,
    /// Size of the KV cache that the gauge divides by, tokens.
    #[arg(long, default_value_t = 2_097_152, value_name = "TOKENS")]
    pub kv_cache_tokens: u64,
    /// Admission to first token, ms [default: 40; canary: 20].
    #[arg(long, value_name = "MS")]
    pub ttft_ms: Option<f64>,
    /// Added to the first token for each prompt token, µs.
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub ttft_per_prompt_token_us: f64,
    /// Between two tokens of a sequence, ms [default: 10].
    #[arg(long, value_name = "MS")]
    pub itl_ms: Option<f64>,
    /// Added to the time between tokens for each running sequence, µs.
    #[arg(long, default_value_t = 0.0, value_name = "US")]
    pub itl_per_seq_us: f64,
    /// Each token is late by a random time up to this, ms.
    #[arg(long, default_value_t = 0.0, value_name = "MS")]
    pub jitter_ms: f64,
    /// Seed of the jitter.
    #[arg(long, default_value_t = 0)]
    pub seed: u64,
    /// The engine spins for the last stretch before a token, µs [default: 0; canary: 50].
    #[arg(long, value_name = "US")]
    pub spin_us: Option<u64>,
    /// With many sequences the engine sends tokens that fall within this span together, µs.
    #[arg(long, default_value_t = 100, value_name = "US")]
    pub coalesce_us: u64,
    /// Tokens of an answer whose request names no maximum [default: 128; canary: 32].
    #[arg(long, value_name = "N")]
    pub default_max_tokens: Option<u32>,
    /// The model ends its answer by itself after this many tokens, unless the request sets ignore_eos.
    #[arg(long, value_name = "N")]
    pub eos_after: Option<u32>,

    /// Lengths of start-up phases, for example `weights=1.5,compile=0.8` (seconds).
    #[arg(long, value_name = "PHASE=S,...")]
    pub phase: Vec<String>,
    /// Multiplies every start-up phase.
    #[arg(long, default_value_t = 1.0, value_name = "F")]
    pub startup_scale: f64,
    /// Multiplies the phases of every start but the first (needs --state-file).
    #[arg(long, value_name = "F")]
    pub slow_reload: Option<f64>,
    /// Remembers the number of starts between lives.
    #[arg(long, value_name = "FILE")]
    pub state_file: Option<PathBuf>,
    /// Fail at the end of this start-up phase.
    #[arg(long, value_name = "PHASE")]
    pub die_at_start: Option<String>,
    /// What the failing start prints.
    #[arg(long, value_enum, default_value_t = DieAs::Oom)]
    pub die_as: DieAs,
    /// Only start number N (1 = first) fails (needs --state-file).
    #[arg(long, value_name = "N")]
    pub die_on_start: Option<u64>,
    /// Exit code of a failed start.
    #[arg(long, default_value_t = 1)]
    pub exit_code: u8,
    /// File that stands for the GPU's memory: the engine holds a lock on it while it lives.
    #[arg(long, value_name = "FILE")]
    pub device_lock: Option<PathBuf>,
    /// How long a start waits for the device before it fails, seconds.
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    pub device_lock_wait: f64,
    /// Run a worker process below the engine.
    #[arg(long)]
    pub worker: bool,

    /// At SIGTERM let open requests run for up to this long instead of aborting them, seconds.
    #[arg(long, default_value_t = 0.0, value_name = "S")]
    pub shutdown_timeout: f64,
    /// How long /health answers 503 between engine death and exit, ms [default: the release's].
    #[arg(long, value_name = "MS")]
    pub unhealthy_ms: Option<u64>,
    /// An engine whose API process was killed lives on for this long, seconds; 0 = for ever.
    #[arg(long, default_value_t = 900, value_name = "S")]
    pub orphan_life_s: u64,

    /// Append the scripted truth to this file, as JSON lines on CLOCK_MONOTONIC.
    #[arg(long, value_name = "FILE")]
    pub truth: Option<PathBuf>,
    /// Serve the admin interface on this loopback port; 0 takes a free one.
    #[arg(long, value_name = "PORT")]
    pub admin_port: Option<u16>,
    /// Serve the admin interface on the main port as well.
    #[arg(long)]
    pub admin_on_main: bool,
    /// Ask for real-time priority for the API and engine threads; the announcement
    /// says whether it was granted.
    #[arg(long)]
    pub realtime: bool,
    /// Do not print one line for each request.
    #[arg(long)]
    pub no_access_log: bool,
    /// `argv[0]` of the engine process [default: the release's].
    #[arg(long, value_name = "TITLE")]
    pub engine_title: Option<String>,
    /// Arguments that make this executable run as the engine process.
    #[arg(long, hide = true, default_value = "__mock-engine")]
    pub engine_prefix: String,
}

/// Options of the hidden engine process. Its configuration comes over the socket.
#[derive(Debug, Clone, Args)]
pub struct EngineArgs {
    /// Run as the worker below an engine.
    #[arg(long)]
    pub worker: bool,
}

/// What a failing start prints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DieAs {
    /// CUDA out of memory.
    Oom,
    /// NCCL error.
    Nccl,
    /// No memory left for the KV cache.
    Kv,
}

/// A validated configuration; travels to the engine as JSON.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Config {
    /// Release version.
    pub release: String,
    /// Model name.
    pub model: String,
    /// Host in the log lines.
    pub host: String,
    /// Bound port.
    pub port: u16,
    /// Concurrent sequences.
    pub max_num_seqs: u32,
    /// Context length, tokens.
    pub max_model_len: u32,
    /// KV cache, tokens.
    pub kv_cache_tokens: u64,
    /// Base time to first token, ns.
    pub ttft_ns: u64,
    /// Per prompt token, ns.
    pub ttft_per_prompt_token_ns: u64,
    /// Between tokens, ns.
    pub itl_ns: u64,
    /// Per running sequence, ns.
    pub itl_per_seq_ns: u64,
    /// Largest random delay, ns.
    pub jitter_ns: u64,
    /// Jitter seed.
    pub seed: u64,
    /// Spin, ns.
    pub spin_ns: u64,
    /// Coalescing span, ns.
    pub coalesce_ns: u64,
    /// Answer length without `max_tokens`.
    pub default_max_tokens: u32,
    /// Own end of answers, tokens.
    pub eos_after: Option<u32>,
    /// Start phases, already scaled.
    pub phases: PhaseLengths,
    /// Phase at whose end the start fails.
    pub die_at: Option<Phase>,
    /// What it prints.
    pub die_as: DieAs,
    /// Exit code of a failed start.
    pub exit_code: u8,
    /// GPU memory stand-in.
    pub device_lock: Option<PathBuf>,
    /// Wait for it, ns.
    pub device_lock_wait_ns: u64,
    /// Third process.
    pub worker: bool,
    /// Life of an orphaned engine, s; 0 = for ever.
    pub orphan_life_s: u64,
    /// Truth file.
    pub truth: Option<PathBuf>,
    /// No log at all.
    pub quiet: bool,
    /// Real-time priority wanted.
    pub realtime: bool,
    /// Planned instant of the banner, CLOCK_MONOTONIC ns: the engine's phases follow it.
    pub banner_ns: u64,
    /// How the engine starts its worker.
    pub engine_prefix: Vec<String>,
}

/// Largest latency accepted, ms (one hour).
const MAX_MS: f64 = 3_600_000.0;
/// Most sequences at once.
const MAX_SEQS: u32 = 1_000_000;
/// Most tokens of a context.
const MAX_LEN: u32 = 16_777_216;

fn ns(what: &str, value: f64, unit_ns: f64) -> Result<u64, String> {
    let max = MAX_MS * 1e6 / unit_ns;
    if !(0.0..=max).contains(&value) {
        return Err(format!("{what} must lie between 0 and {max}, not {value}"));
    }
    Ok((value * unit_ns).round() as u64)
}

impl MockArgs {
    /// Checks the options and fills in the presets.
    ///
    /// # Errors
    /// One sentence that names the option and the mend.
    pub fn config(&self) -> Result<Config, String> {
        let release = release::find(&self.release).map_err(|e| format!("--release: {e}"))?;
        if self.model.is_empty()
            || self.model.len() > 256
            || self.model.chars().any(char::is_control)
        {
            return Err("--model must be 1 to 256 bytes of printable text".into());
        }
        if !(1..=MAX_SEQS).contains(&self.max_num_seqs) {
            return Err(format!("--max-num-seqs must lie between 1 and {MAX_SEQS}"));
        }
        if !(2..=MAX_LEN).contains(&self.max_model_len) {
            return Err(format!("--max-model-len must lie between 2 and {MAX_LEN}"));
        }
        if self.kv_cache_tokens == 0 {
            return Err("--kv-cache-tokens must be at least 1".into());
        }
        if self.eos_after == Some(0) || self.default_max_tokens == Some(0) {
            return Err("--eos-after and --default-max-tokens must be at least 1".into());
        }
        let needs_state = [
            (self.slow_reload.is_some(), "--slow-reload"),
            (self.die_on_start.is_some(), "--die-on-start"),
        ];
        for (set, name) in needs_state {
            if set && self.state_file.is_none() {
                return Err(format!("{name} counts starts: add --state-file FILE"));
            }
        }
        for (name, value) in [
            ("--startup-scale", Some(self.startup_scale)),
            ("--slow-reload", self.slow_reload),
        ] {
            if value.is_some_and(|v| !(0.0..=1e6).contains(&v)) {
                return Err(format!("{name} must lie between 0 and 1000000"));
            }
        }
        let mut phases = if self.canary {
            PhaseLengths::zero()
        } else {
            PhaseLengths::default()
        };
        for spec in &self.phase {
            phases.apply(spec).map_err(|e| format!("--phase: {e}"))?;
        }
        phases.scale(self.startup_scale);
        let die_at = match &self.die_at_start {
            None => None,
            Some(name) => Some(Phase::parse(name).map_err(|e| format!("--die-at-start: {e}"))?),
        };
        let engine_prefix: Vec<String> = self
            .engine_prefix
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        Ok(Config {
            release: release.version.to_owned(),
            model: self.model.clone(),
            host: self.host.to_string(),
            port: self.port,
            max_num_seqs: self.max_num_seqs,
            max_model_len: self.max_model_len,
            kv_cache_tokens: self.kv_cache_tokens,
            ttft_ns: ns(
                "--ttft-ms",
                self.ttft_ms
                    .unwrap_or(if self.canary { 20.0 } else { 40.0 }),
                1e6,
            )?,
            ttft_per_prompt_token_ns: ns(
                "--ttft-per-prompt-token-us",
                self.ttft_per_prompt_token_us,
                1e3,
            )?,
            itl_ns: ns("--itl-ms", self.itl_ms.unwrap_or(10.0), 1e6)?,
            itl_per_seq_ns: ns("--itl-per-seq-us", self.itl_per_seq_us, 1e3)?,
            jitter_ns: ns("--jitter-ms", self.jitter_ms, 1e6)?,
            seed: self.seed,
            spin_ns: self
                .spin_us
                .unwrap_or(if self.canary { 50 } else { 0 })
                .min(10_000)
                * 1000,
            coalesce_ns: self.coalesce_us.min(10_000) * 1000,
            default_max_tokens: self.default_max_tokens.unwrap_or(if self.canary {
                32
            } else {
                128
            }),
            eos_after: self.eos_after,
            phases,
            die_at,
            die_as: self.die_as,
            exit_code: self.exit_code,
            device_lock: self.device_lock.clone(),
            device_lock_wait_ns: crate::mono::seconds_to_ns(self.device_lock_wait),
            worker: self.worker && !self.canary,
            orphan_life_s: self.orphan_life_s,
            truth: self.truth.clone(),
            quiet: self.canary,
            realtime: self.realtime,
            banner_ns: 0,
            engine_prefix,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MockArgs,
    }

    fn config(args: &[&str]) -> Result<Config, String> {
        let mut all = vec!["mock"];
        all.extend(args);
        Cli::try_parse_from(all)
            .map_err(|e| e.to_string())?
            .args
            .config()
    }

    #[test]
    fn presets_and_overrides() {
        let c = config(&["--canary"]).unwrap();
        assert_eq!(
            (c.ttft_ns, c.itl_ns, c.default_max_tokens),
            (20_000_000, 10_000_000, 32)
        );
        assert_eq!(c.phases.seconds(Phase::Weights), 0.0);
        let c = config(&["--canary", "--ttft-ms", "5"]).unwrap();
        assert_eq!(c.ttft_ns, 5_000_000);
        let c = config(&["--phase", "weights=1.5", "--startup-scale", "2"]).unwrap();
        assert_eq!(c.phases.seconds(Phase::Weights), 3.0);
    }

    #[test]
    fn mistakes_are_named() {
        for (args, says) in [
            (&["--release", "9.9"][..], "--release"),
            (&["--max-num-seqs", "0"], "--max-num-seqs"),
            (&["--ttft-ms=-1"], "--ttft-ms"),
            (&["--ttft-ms", "NaN"], "--ttft-ms"),
            (&["--slow-reload", "2"], "--state-file"),
            (&["--die-at-start", "lunch"], "--die-at-start"),
            (&["--phase", "lunch=1"], "--phase"),
            (&["--eos-after", "0"], "--eos-after"),
        ] {
            let e = config(args).unwrap_err();
            assert!(e.contains(says), "{args:?}: {e}");
        }
    }
}
