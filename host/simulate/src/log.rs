//! The server's log of a virtual run: vLLM's lines, as the supervisor captures them or with nothing
//! but their own stamps of one second.

use std::fmt::Write;

use blackstart_record::{Boundaries, Boundary, LogCoverage, StampSource};
use jiff::Timestamp;

use crate::clock::RemoteClock;
use crate::observers::{FIRST_LIFE_NS, RESTART_DELAY_NS};
use crate::planning::{EPOCH_UNIX_NS, MS, S};
use crate::planted::{Phase, State};
use crate::random::Random;

/// Who prints a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Who {
    Api,
    Engine,
    /// uvicorn's own logger, which neither names its process nor stamps its lines.
    Uvicorn,
}

/// Lines of a start: boundary, printer, place, text. Release 0.32.
const LINES: [(&str, Who, &str, &str); 11] = [
    (
        "banner",
        Who::Api,
        "api_utils.py:347",
        "vLLM server version 0.32.0",
    ),
    (
        "engine_init",
        Who::Engine,
        "core.py:133",
        "Initializing a V1 LLM engine (v0.32.0) with config: model='simulated', speculative_config=None, tokenizer='simulated', dtype=torch.bfloat16, max_seq_len=4096, tensor_parallel_size=1, served_model_name=simulated",
    ),
    (
        "model_load_start",
        Who::Engine,
        "gpu_model_runner.py:5390",
        "Starting to load model simulated...",
    ),
    (
        "weights_loaded",
        Who::Engine,
        "default_loader.py:501",
        "Loading weights took 1.00 seconds",
    ),
    (
        "model_loaded",
        Who::Engine,
        "gpu_model_runner.py:5480",
        "Model loading took 14.29 GiB memory and 1.200000 seconds",
    ),
    (
        "torch_compile",
        Who::Engine,
        "monitor.py:67",
        "[backbone] torch.compile took 1.00 s in total",
    ),
    (
        "kv_cache",
        Who::Engine,
        "kv_cache_utils.py:2327",
        "GPU KV cache size: 2,097,152 tokens, Maximum concurrency for 4,096 tokens per request: 512.00x",
    ),
    (
        "graph_capture",
        Who::Engine,
        "gpu_model_runner.py:6710",
        "Graph capturing finished in 1 secs, took 0.61 GiB",
    ),
    (
        "engine_ready",
        Who::Engine,
        "core.py:402",
        "init engine (profile, create kv cache, warmup model) took 2.00 s (compilation: 1.00 s)",
    ),
    (
        "server_start",
        Who::Api,
        "entry.py:140",
        "Starting vLLM server on http://127.0.0.1:8000",
    ),
    (
        "startup_complete",
        Who::Uvicorn,
        "",
        "Application startup complete.",
    ),
];

/// Of the time from a new start to service, at which share each line is written.
const SHARES: [f64; 11] = [
    0.12, 0.22, 0.31, 0.48, 0.52, 0.66, 0.70, 0.81, 0.87, 0.93, 0.985,
];

/// How late a line may be written behind what it tells.
const JITTER_NS: i64 = 20 * MS;
/// How late a written line may be captured.
pub(crate) const CAPTURE_NS: i64 = 2 * MS;

/// A line, when it was written, and the boundary that it is.
pub(crate) struct Line {
    /// When it was written, in run time: the truth.
    pub(crate) written_ns: i64,
    /// When the supervisor had read it.
    captured_ns: i64,
    pub(crate) key: Option<&'static str>,
    pub(crate) life: u32,
    text: String,
    /// Whether the line stamps itself.
    stamps: bool,
}

/// The log of a replica.
pub(crate) struct Log {
    pub(crate) lines: Vec<Line>,
    /// The clock that stamps lines, where the log was not captured on this host.
    remote: Option<RemoteClock>,
}

impl Log {
    /// Writes the log of a replica's lives. Where the log comes from another host, only the lines'
    /// own stamps say when they were written.
    pub(crate) fn write(
        phases: &[Phase],
        end_ns: i64,
        remote: Option<RemoteClock>,
        random: &mut Random,
    ) -> Self {
        let mut log = Self {
            lines: Vec::new(),
            remote,
        };
        log.life(1, FIRST_LIFE_NS, -5 * S, random);
        let mut life = 1;
        let ends = phases.iter().skip(1).map(|p| p.from_ns).chain([end_ns]);
        for (phase, until_ns) in phases.iter().zip(ends) {
            match phase.state {
                State::Refusing if until_ns < end_ns => {
                    life += 1;
                    log.life(life, phase.from_ns + RESTART_DELAY_NS, until_ns, random);
                }
                State::Up => {
                    log.idle(life, phase.from_ns.max(0), until_ns.min(end_ns), random);
                }
                _ => {}
            }
        }
        log
    }

    /// The lines of a start that serves from `ready_ns` on.
    fn life(&mut self, life: u32, start_ns: i64, ready_ns: i64, random: &mut Random) {
        let length = (ready_ns - start_ns) as f64;
        for ((key, who, place, text), share) in LINES.into_iter().zip(SHARES) {
            let told_ns = start_ns + (length * share) as i64;
            let written_ns = told_ns + random.between(0, JITTER_NS.min(ready_ns - told_ns));
            self.line(life, written_ns, Some(key), who, place, text, random);
        }
    }

    /// What a server writes while it serves.
    fn idle(&mut self, life: u32, from_ns: i64, until_ns: i64, random: &mut Random) {
        const EVERY_NS: i64 = 10 * S;
        let mut at_ns = from_ns + EVERY_NS;
        while at_ns < until_ns {
            let text = "Engine 000: Avg prompt throughput: 400.0 tokens/s, Avg generation throughput: 400.0 tokens/s, Running: 12 reqs, Waiting: 0 reqs, GPU KV cache usage: 0.1%, Prefix cache hit rate: 0.0%";
            self.line(life, at_ns, None, Who::Api, "loggers.py:259", text, random);
            at_ns += EVERY_NS;
        }
    }

    #[allow(clippy::too_many_arguments)]
    fn line(
        &mut self,
        life: u32,
        written_ns: i64,
        key: Option<&'static str>,
        who: Who,
        place: &str,
        text: &str,
        random: &mut Random,
    ) {
        let captured_ns = written_ns + random.between(0, CAPTURE_NS);
        let stamp = self.own_stamp(written_ns);
        let text = match who {
            Who::Api => format!("(APIServer pid={}) INFO {stamp} [{place}] {text}", 9 + life),
            Who::Engine => format!(
                "(EngineCore pid={}) INFO {stamp} [{place}] {text}",
                109 + life
            ),
            Who::Uvicorn => format!("INFO:     {text}"),
        };
        self.lines.push(Line {
            written_ns,
            captured_ns,
            key,
            life,
            text,
            stamps: who != Who::Uvicorn,
        });
    }

    /// Wall clock of the writing host.
    fn wall_ns(&self, at_ns: i64) -> i64 {
        EPOCH_UNIX_NS
            + self
                .remote
                .as_ref()
                .map_or(at_ns, |clock| clock.read(at_ns))
    }

    /// The stamp that vLLM writes: no year, no zone, whole seconds.
    fn own_stamp(&self, at_ns: i64) -> String {
        Timestamp::from_nanosecond(i128::from(self.wall_ns(at_ns))).map_or_else(
            |_| String::new(),
            |t| t.strftime("%m-%d %H:%M:%S").to_string(),
        )
    }

    /// The file as a run leaves it.
    pub(crate) fn text(&self) -> String {
        let mut out = String::new();
        for line in &self.lines {
            if self.remote.is_none()
                && let Ok(stamp) =
                    Timestamp::from_nanosecond(i128::from(EPOCH_UNIX_NS + line.captured_ns))
            {
                // A write to a string cannot fail.
                let _ = write!(out, "{stamp:.9} ");
            }
            out.push_str(&line.text);
            out.push('\n');
        }
        out
    }

    /// What a matcher finds in it.
    pub(crate) fn boundaries(&self, replica: String) -> Boundaries {
        let mut boundaries = Vec::new();
        for (number, line) in (1_u64..).zip(&self.lines) {
            let Some(key) = line.key else { continue };
            let (at_unix_ns, stamp, resolution_ns) = if self.remote.is_none() {
                let at = EPOCH_UNIX_NS + line.captured_ns;
                (Some(at), StampSource::Capture, Some(1))
            } else if line.stamps {
                let at = self.wall_ns(line.written_ns).div_euclid(S) * S;
                (Some(at), StampSource::Line, Some(S))
            } else {
                (None, StampSource::None, None)
            };
            boundaries.push(Boundary {
                line: number,
                life: line.life,
                key: key.to_owned(),
                process: None,
                at_unix_ns,
                stamp,
                resolution_ns,
                measures: Vec::new(),
                fields: Vec::new(),
                text: line.text.clone(),
            });
        }
        Boundaries {
            replica,
            matcher: Some("planted".to_owned()),
            server_version: Some("0.32.0".to_owned()),
            coverage: LogCoverage::Measured {
                lines: self.lines.len() as u64,
                matched: boundaries.len() as u64,
            },
            boundaries,
        }
    }

    /// When the first line of each boundary after an instant was written. Lines whose time cannot be
    /// known are left out.
    pub(crate) fn first_after(&self, at_ns: i64) -> Vec<(&'static str, i64)> {
        let mut found: Vec<(&'static str, i64)> = Vec::new();
        for line in &self.lines {
            let Some(key) = line.key else { continue };
            let known = self.remote.is_none() || line.stamps;
            if known && line.written_ns >= at_ns && !found.iter().any(|(k, _)| *k == key) {
                found.push((key, line.written_ns));
            }
        }
        found
    }
}
