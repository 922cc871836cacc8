//! What the mock knows of each vLLM release, kept as data: log lines, prefix style,
//! what a client sees when the engine dies, chunk fields, metric names.
//! A new release is a new entry in [`RELEASES`] and a table under `lines/`; no other
//! module names a release.

pub mod lines;

use crate::logline::PrefixStyle;
use crate::release::lines::Line;

/// What open streams get when the engine dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadStream {
    /// An error object as a `data:` event, then `[DONE]`, clean end, status 200.
    ErrorEventThenDone,
    /// Nothing, for ever.
    Hang,
}

/// What non-streamed requests get when the engine dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeadUnary {
    /// Status 500 with an error body.
    Status500,
    /// Status 200 with an error body.
    Status200ErrorBody,
    /// Nothing, for ever.
    Hang,
}

/// The API server's behaviour when its engine dies.
#[derive(Debug, Clone, Copy)]
pub struct EngineDeath {
    /// Open streams.
    pub stream: DeadStream,
    /// Non-streamed requests.
    pub unary: DeadUnary,
    /// How long `/health` answers 503 before the server goes; `None`: it answers
    /// 200 and the server never exits.
    pub unhealthy_ms: Option<u64>,
}

/// Fields of the stream chunks that differ between releases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkFields {
    /// `token_ids` and `prompt_token_ids`.
    pub token_ids: bool,
    /// `prompt_text` and `system_fingerprint`.
    pub fingerprint: bool,
}

/// Metric family names that changed.
#[derive(Debug, Clone, Copy)]
pub struct MetricNames {
    /// Gauge of KV cache use.
    pub kv_usage: &'static str,
    /// Histogram of the time between tokens.
    pub inter_token: &'static str,
}

/// One release.
#[derive(Debug)]
pub struct Release {
    /// `0.32.0`.
    pub version: &'static str,
    /// Prefix style of its lines.
    pub prefix: PrefixStyle,
    /// Name of the engine process in the prefix.
    pub engine_name: &'static str,
    /// `argv[0]` of the engine process.
    pub engine_title: &'static str,
    /// Log lines, see [`lines`].
    table: &'static str,
    /// Behaviour when the engine dies.
    pub engine_death: EngineDeath,
    /// `file:line` of "EngineCore failed to start.".
    pub failed_file: &'static str,
    /// `file:line` of the throughput statistics.
    pub stats_file: &'static str,
    /// Stream chunk fields.
    pub chunk: ChunkFields,
    /// Metric names.
    pub metrics: MetricNames,
    /// The message names the device (`device cuda:0 (…)`), from 0.13.
    pub free_memory_names_device: bool,
}

impl Release {
    /// The log lines, in the order they are printed.
    ///
    /// # Errors
    /// A malformed table (a mistake in this crate; a test reads all of them).
    pub fn lines(&self) -> Result<Vec<Line>, String> {
        lines::parse(self.table)
    }
}

/// The message of the exception that open requests end with.
pub const ENGINE_DEAD: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

const HANGS: EngineDeath = EngineDeath {
    stream: DeadStream::Hang,
    unary: DeadUnary::Hang,
    unhealthy_ms: None,
};
const LEAVES: EngineDeath = EngineDeath {
    stream: DeadStream::ErrorEventThenDone,
    unary: DeadUnary::Status500,
    unhealthy_ms: Some(300),
};
const OLD_METRICS: MetricNames = MetricNames {
    kv_usage: "vllm:gpu_cache_usage_perc",
    inter_token: "vllm:time_per_output_token_seconds",
};
const NEW_METRICS: MetricNames = MetricNames {
    kv_usage: "vllm:kv_cache_usage_perc",
    inter_token: "vllm:inter_token_latency_seconds",
};
const TITLE: &str = "VLLM::EngineCore";
/// The title older releases leave to their engine process.
const SPAWN_MAIN: &str = "python3 -c from multiprocessing.spawn import spawn_main; \
                          spawn_main(tracker_fd=5, pipe_handle=9) --multiprocessing-fork";

/// All releases the mock can act as, oldest first.
pub const RELEASES: &[Release] = &[
    Release {
        version: "0.9.2",
        prefix: PrefixStyle::None,
        engine_name: "EngineCore_0",
        engine_title: SPAWN_MAIN,
        table: include_str!("lines/0.9.2.txt"),
        engine_death: HANGS,
        failed_file: "core.py:588",
        stats_file: "loggers.py:118",
        chunk: ChunkFields {
            token_ids: false,
            fingerprint: false,
        },
        metrics: OLD_METRICS,
        free_memory_names_device: false,
    },
    Release {
        version: "0.16.0",
        prefix: PrefixStyle::Wrapper,
        engine_name: "EngineCore_DP0",
        engine_title: TITLE,
        table: include_str!("lines/0.16.0.txt"),
        engine_death: EngineDeath {
            unary: DeadUnary::Status200ErrorBody,
            ..LEAVES
        },
        failed_file: "core.py:955",
        stats_file: "loggers.py:259",
        chunk: ChunkFields {
            token_ids: true,
            fingerprint: false,
        },
        metrics: NEW_METRICS,
        free_memory_names_device: true,
    },
    Release {
        version: "0.29.0",
        prefix: PrefixStyle::Wrapper,
        engine_name: "EngineCore",
        engine_title: TITLE,
        table: include_str!("lines/0.29.0.txt"),
        engine_death: LEAVES,
        failed_file: "core.py:1500",
        stats_file: "loggers.py:310",
        chunk: ChunkFields {
            token_ids: true,
            fingerprint: true,
        },
        metrics: NEW_METRICS,
        free_memory_names_device: true,
    },
    Release {
        version: "0.32.0",
        prefix: PrefixStyle::Formatter,
        engine_name: "EngineCore",
        engine_title: TITLE,
        table: include_str!("lines/0.32.0.txt"),
        engine_death: LEAVES,
        failed_file: "core.py:1520",
        stats_file: "loggers.py:335",
        chunk: ChunkFields {
            token_ids: true,
            fingerprint: true,
        },
        metrics: NEW_METRICS,
        free_memory_names_device: true,
    },
    Release {
        version: "0.33.0",
        prefix: PrefixStyle::Formatter,
        engine_name: "EngineCore",
        engine_title: TITLE,
        table: include_str!("lines/0.33.0.txt"),
        engine_death: LEAVES,
        failed_file: "core.py:1500",
        stats_file: "loggers.py:338",
        chunk: ChunkFields {
            token_ids: true,
            fingerprint: true,
        },
        metrics: NEW_METRICS,
        free_memory_names_device: true,
    },
];

/// Finds a release by its exact version or by its `0.32` family.
///
/// # Errors
/// The known releases, when there is no such one.
pub fn find(version: &str) -> Result<&'static Release, String> {
    let wanted = version.trim().trim_start_matches('v');
    RELEASES
        .iter()
        .find(|r| {
            r.version == wanted
                || r.version
                    .rsplit_once('.')
                    .is_some_and(|(family, _)| family == wanted)
        })
        .ok_or_else(|| {
            let known: Vec<&str> = RELEASES.iter().map(|r| r.version).collect();
            format!(
                "the mock does not know vLLM release `{version}`; it knows {}",
                known.join(", ")
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::phases::Phase;
    use crate::release::lines::Occasion;

    #[test]
    fn families_are_found() {
        assert_eq!(find("0.32.0").unwrap().version, "0.32.0");
        assert_eq!(find("v0.9").unwrap().version, "0.9.2");
        assert!(find("0.1.0").unwrap_err().contains("0.33.0"));
    }

    #[test]
    fn every_release_prints_every_boundary_once_in_phase_order() {
        const KEYS: [&str; 12] = [
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
        for r in RELEASES {
            let lines = r.lines().unwrap();
            let started: Vec<(Phase, Option<&str>)> = lines
                .iter()
                .filter_map(|l| match l.occasion {
                    Occasion::After(phase) => Some((phase, l.key)),
                    Occasion::EngineDead | Occasion::Shutdown => None,
                })
                .collect();
            let keys: Vec<&str> = started.iter().filter_map(|l| l.1).collect();
            assert_eq!(keys, KEYS, "{}", r.version);
            assert!(
                started.windows(2).all(|w| w[0].0 <= w[1].0),
                "{}",
                r.version
            );
            assert!(
                lines.iter().any(|l| l.key == Some("shutdown")),
                "{}",
                r.version
            );
            let dead = lines.iter().any(|l| l.key == Some("failure.engine_dead"));
            assert_eq!(dead, r.engine_death.unhealthy_ms.is_some(), "{}", r.version);
        }
    }
}
