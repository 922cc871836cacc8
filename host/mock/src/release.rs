//! What the mock knows of each vLLM release, kept as data: line texts and places,
//! prefix style, what a client sees when the engine dies, chunk fields, metric names.
//! A new release is a new entry in [`RELEASES`]; no other module names a release.

use crate::logline::{Kind, PrefixStyle};
use crate::phases::Phase;

/// The process that the log names as the printer of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// The API server.
    Api,
    /// The engine core.
    Engine,
    /// The worker where there is one, else the engine core.
    Worker,
}

/// One line printed at the end of a start phase. `{…}` is filled in by [`crate::boot`].
#[derive(Debug, Clone, Copy)]
pub struct Line {
    /// Printed when this phase ends.
    pub after: Phase,
    /// The printer.
    pub who: Who,
    /// Record, uvicorn or bare.
    pub kind: Kind,
    /// Text with placeholders.
    pub text: &'static str,
    /// Boundary key, for lines that are one.
    pub key: Option<&'static str>,
}

const fn rec(after: Phase, who: Who, file: &'static str, text: &'static str) -> Line {
    Line {
        after,
        who,
        kind: Kind::Record("INFO", file),
        text,
        key: None,
    }
}

const fn key(key: &'static str, line: Line) -> Line {
    Line {
        key: Some(key),
        ..line
    }
}

const fn uvicorn(text: &'static str) -> Line {
    Line {
        after: Phase::Routes,
        who: Who::Api,
        kind: Kind::Uvicorn("INFO"),
        text,
        key: None,
    }
}

const fn bare(after: Phase, who: Who, text: &'static str) -> Line {
    Line {
        after,
        who,
        kind: Kind::Bare,
        text,
        key: None,
    }
}

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
    /// Lines the API server prints.
    pub lines: &'static [Line],
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
    /// Start-up lines in order.
    pub startup: &'static [Line],
    /// Behaviour when the engine dies.
    pub engine_death: EngineDeath,
    /// Lines at SIGTERM, before uvicorn's own.
    pub shutdown: &'static [Line],
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

const LOGO: &str = "\n       █     █     █▄   ▄█\n ▄▄ ▄█ █     █     █ ▀▄▀ █  version {version}\n  \
                    █▄█▀ █     █     █     █  model   {model}\n   ▀▀  ▀▀▀▀▀ ▀▀▀▀▀ ▀     ▀\n";
const ARGS: &str = "non-default args: {'model_tag': '{model}', 'host': '{host}', 'port': {port}, \
                    'model': '{model}', 'max_model_len': {max_len}}";
const INIT: &str = "Initializing a V1 LLM engine (v{version}) with config: model='{model}', \
                    speculative_config=None, tokenizer='{model}', dtype=torch.bfloat16, \
                    max_seq_len={max_len}, tensor_parallel_size=1, served_model_name={model}";
const SHARDS: &str = "\rLoading safetensors checkpoint shards:   0% Completed | 0/2 [00:00<?, ?it/s]\
                      \rLoading safetensors checkpoint shards:  50% Completed | 1/2 [00:00<00:00,  4.58it/s]\
                      \rLoading safetensors checkpoint shards: 100% Completed | 2/2 [00:00<00:00,  4.61it/s]\n";
const CAPTURE: &str = "\rCapturing CUDA graphs (mixed prefill-decode, PIECEWISE): 100%|██████████| 35/35 \
                       [00:00<00:00, 72.10it/s]";
const DOWNLOAD: &str = "Time spent downloading weights for {model}: {download} seconds";

use Phase as P;
use Who as W;

const UVICORN_STARTED: Line = uvicorn("Started server process [{pid}]");
const UVICORN_WAITING: Line = uvicorn("Waiting for application startup.");
const UVICORN_COMPLETE: Line = key("startup_complete", uvicorn("Application startup complete."));

const V0_9_2: &[Line] = &[
    key(
        "banner",
        rec(
            P::Import,
            W::Api,
            "api_server.py:1395",
            "vLLM API server version {version}",
        ),
    ),
    rec(P::Import, W::Api, "cli_args.py:325", ARGS),
    key("engine_init", rec(P::Spawn, W::Engine, "core.py:69", INIT)),
    key(
        "model_load_start",
        rec(
            P::Init,
            W::Worker,
            "gpu_model_runner.py:1770",
            "Starting to load model {model}...",
        ),
    ),
    rec(
        P::Init,
        W::Worker,
        "gpu_model_runner.py:1775",
        "Loading model from scratch...",
    ),
    key(
        "weight_download",
        rec(P::Download, W::Worker, "weight_utils.py:308", DOWNLOAD),
    ),
    bare(P::Weights, W::Worker, SHARDS),
    key(
        "weights_loaded",
        rec(
            P::Weights,
            W::Worker,
            "default_loader.py:272",
            "Loading weights took {weights} seconds",
        ),
    ),
    key(
        "model_loaded",
        rec(
            P::Model,
            W::Worker,
            "gpu_model_runner.py:1801",
            "Model loading took {gib4} GiB and {load} seconds",
        ),
    ),
    rec(
        P::Compile,
        W::Worker,
        "backends.py:519",
        "Dynamo bytecode transform time: {dynamo} s",
    ),
    key(
        "torch_compile",
        rec(
            P::Compile,
            W::Worker,
            "monitor.py:34",
            "torch.compile takes {compile} s in total",
        ),
    ),
    rec(
        P::Kv,
        W::Worker,
        "gpu_worker.py:232",
        "Available KV cache memory: {kv_gib} GiB",
    ),
    key(
        "kv_cache",
        rec(
            P::Kv,
            W::Engine,
            "kv_cache_utils.py:716",
            "GPU KV cache size: {kv_tokens} tokens",
        ),
    ),
    rec(
        P::Kv,
        W::Engine,
        "kv_cache_utils.py:720",
        "Maximum concurrency for {max_len_commas} tokens per request: {concurrency}x",
    ),
    key(
        "graph_capture",
        rec(
            P::Graphs,
            W::Worker,
            "gpu_model_runner.py:2326",
            "Graph capturing finished in {graphs} secs, took {graphs_gib} GiB",
        ),
    ),
    key(
        "engine_ready",
        rec(
            P::Warmup,
            W::Engine,
            "core.py:172",
            "init engine (profile, create kv cache, warmup model) took {init} seconds",
        ),
    ),
    key(
        "server_start",
        rec(
            P::Server,
            W::Api,
            "api_server.py:1457",
            "Starting vLLM API server 0 on http://{host}:{port}",
        ),
    ),
    rec(P::Server, W::Api, "launcher.py:29", "Available routes are:"),
    rec(
        P::Server,
        W::Api,
        "launcher.py:37",
        "Route: /health, Methods: GET",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:37",
        "Route: /v1/chat/completions, Methods: POST",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:37",
        "Route: /v1/completions, Methods: POST",
    ),
    UVICORN_STARTED,
    UVICORN_WAITING,
    UVICORN_COMPLETE,
];

const V0_16: &[Line] = &[
    key("banner", rec(P::Import, W::Api, "utils.py:287", LOGO)),
    rec(P::Import, W::Api, "utils.py:223", ARGS),
    key("engine_init", rec(P::Spawn, W::Engine, "core.py:97", INIT)),
    key(
        "model_load_start",
        rec(
            P::Init,
            W::Worker,
            "gpu_model_runner.py:4021",
            "Starting to load model {model}...",
        ),
    ),
    key(
        "weight_download",
        rec(P::Download, W::Worker, "weight_utils.py:527", DOWNLOAD),
    ),
    bare(P::Weights, W::Worker, SHARDS),
    key(
        "weights_loaded",
        rec(
            P::Weights,
            W::Worker,
            "default_loader.py:293",
            "Loading weights took {weights} seconds",
        ),
    ),
    key(
        "model_loaded",
        rec(
            P::Model,
            W::Worker,
            "gpu_model_runner.py:4118",
            "Model loading took {gib} GiB memory and {load6} seconds",
        ),
    ),
    rec(
        P::Compile,
        W::Worker,
        "backends.py:916",
        "Dynamo bytecode transform time: {dynamo} s",
    ),
    key(
        "torch_compile",
        rec(
            P::Compile,
            W::Worker,
            "monitor.py:34",
            "torch.compile takes {compile} s in total",
        ),
    ),
    rec(
        P::Kv,
        W::Worker,
        "gpu_worker.py:424",
        "Available KV cache memory: {kv_gib} GiB",
    ),
    key(
        "kv_cache",
        rec(
            P::Kv,
            W::Engine,
            "kv_cache_utils.py:1307",
            "GPU KV cache size: {kv_tokens} tokens",
        ),
    ),
    rec(
        P::Kv,
        W::Engine,
        "kv_cache_utils.py:1312",
        "Maximum concurrency for {max_len_commas} tokens per request: {concurrency}x",
    ),
    bare(P::Graphs, W::Worker, CAPTURE),
    key(
        "graph_capture",
        rec(
            P::Graphs,
            W::Worker,
            "gpu_model_runner.py:5063",
            "Graph capturing finished in {graphs} secs, took {graphs_gib} GiB",
        ),
    ),
    key(
        "engine_ready",
        rec(
            P::Warmup,
            W::Engine,
            "core.py:278",
            "init engine (profile, create kv cache, warmup model) took {init} seconds",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "api_server.py:481",
        "Supported tasks: ['generate']",
    ),
    key(
        "server_start",
        rec(
            P::Server,
            W::Api,
            "api_server.py:486",
            "Starting vLLM API server 0 on http://{host}:{port}",
        ),
    ),
    rec(P::Server, W::Api, "launcher.py:38", "Available routes are:"),
    rec(
        P::Server,
        W::Api,
        "launcher.py:47",
        "Route: /health, Methods: GET",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:47",
        "Route: /v1/chat/completions, Methods: POST",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:47",
        "Route: /v1/completions, Methods: POST",
    ),
    UVICORN_STARTED,
    UVICORN_WAITING,
    UVICORN_COMPLETE,
];

const V0_29: &[Line] = &[
    key("banner", rec(P::Import, W::Api, "api_utils.py:347", LOGO)),
    rec(P::Import, W::Api, "api_utils.py:286", ARGS),
    key("engine_init", rec(P::Spawn, W::Engine, "core.py:140", INIT)),
    key(
        "model_load_start",
        rec(
            P::Init,
            W::Worker,
            "gpu_model_runner.py:5210",
            "Starting to load model {model}...",
        ),
    ),
    key(
        "weight_download",
        rec(P::Download, W::Worker, "weight_utils.py:720", DOWNLOAD),
    ),
    bare(P::Weights, W::Worker, SHARDS),
    key(
        "weights_loaded",
        rec(
            P::Weights,
            W::Worker,
            "default_loader.py:490",
            "Loading weights took {weights} seconds",
        ),
    ),
    key(
        "model_loaded",
        rec(
            P::Model,
            W::Worker,
            "gpu_model_runner.py:5305",
            "Model loading took {gib} GiB memory and {load6} seconds",
        ),
    ),
    rec(
        P::Compile,
        W::Worker,
        "backends.py:1105",
        "Dynamo bytecode transform time: {dynamo} s",
    ),
    key(
        "torch_compile",
        rec(
            P::Compile,
            W::Worker,
            "monitor.py:53",
            "torch.compile took {compile} s in total",
        ),
    ),
    rec(
        P::Kv,
        W::Worker,
        "gpu_worker.py:510",
        "Available KV cache memory: {kv_gib} GiB",
    ),
    key(
        "kv_cache",
        rec(
            P::Kv,
            W::Engine,
            "kv_cache_utils.py:2101",
            "GPU KV cache size: {kv_tokens} tokens, Maximum concurrency for {max_len_commas} tokens per request: {concurrency}x",
        ),
    ),
    bare(P::Graphs, W::Worker, CAPTURE),
    key(
        "graph_capture",
        rec(
            P::Graphs,
            W::Worker,
            "gpu_model_runner.py:6480",
            "Graph capturing finished in {graphs} secs, took {graphs_gib} GiB",
        ),
    ),
    key(
        "engine_ready",
        rec(
            P::Warmup,
            W::Engine,
            "core.py:390",
            "init engine (profile, create kv cache, warmup model) took {init} s (compilation: {compile} s)",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "entry.py:130",
        "Supported tasks: ['generate']",
    ),
    key(
        "server_start",
        rec(
            P::Server,
            W::Api,
            "entry.py:134",
            "Starting vLLM server on http://{host}:{port}",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:180",
        "Available routes are:",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:189",
        "Route: /health, Methods: GET",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:189",
        "Route: /v1/chat/completions, Methods: POST",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:189",
        "Route: /v1/completions, Methods: POST",
    ),
    UVICORN_STARTED,
    UVICORN_WAITING,
    UVICORN_COMPLETE,
];

const V0_32: &[Line] = &[
    key("banner", rec(P::Import, W::Api, "api_utils.py:347", LOGO)),
    rec(P::Import, W::Api, "api_utils.py:286", ARGS),
    key("engine_init", rec(P::Spawn, W::Engine, "core.py:133", INIT)),
    key(
        "model_load_start",
        rec(
            P::Init,
            W::Worker,
            "gpu_model_runner.py:5390",
            "Starting to load model {model}...",
        ),
    ),
    key(
        "weight_download",
        rec(P::Download, W::Worker, "weight_utils.py:760", DOWNLOAD),
    ),
    bare(P::Weights, W::Worker, SHARDS),
    key(
        "weights_loaded",
        rec(
            P::Weights,
            W::Worker,
            "default_loader.py:501",
            "Loading weights took {weights} seconds",
        ),
    ),
    key(
        "model_loaded",
        rec(
            P::Model,
            W::Worker,
            "gpu_model_runner.py:5480",
            "Model loading took {gib} GiB memory and {load6} seconds",
        ),
    ),
    rec(
        P::Model,
        W::Worker,
        "backends.py:1210",
        "[backbone] Starting torch.compile",
    ),
    rec(
        P::Compile,
        W::Worker,
        "backends.py:1282",
        "[backbone] Dynamo bytecode transform time: {dynamo} s",
    ),
    key(
        "torch_compile",
        rec(
            P::Compile,
            W::Worker,
            "monitor.py:67",
            "[backbone] torch.compile took {compile} s in total",
        ),
    ),
    rec(
        P::Kv,
        W::Worker,
        "gpu_worker.py:566",
        "Available KV cache memory: {kv_gib} GiB",
    ),
    key(
        "kv_cache",
        rec(
            P::Kv,
            W::Engine,
            "kv_cache_utils.py:2327",
            "GPU KV cache size: {kv_tokens} tokens, Maximum concurrency for {max_len_commas} tokens per request: {concurrency}x",
        ),
    ),
    bare(P::Graphs, W::Worker, CAPTURE),
    key(
        "graph_capture",
        rec(
            P::Graphs,
            W::Worker,
            "gpu_model_runner.py:6710",
            "Graph capturing finished in {graphs} secs, took {graphs_gib} GiB",
        ),
    ),
    key(
        "engine_ready",
        rec(
            P::Warmup,
            W::Engine,
            "core.py:402",
            "init engine (profile, create kv cache, warmup model) took {init} s (compilation: {compile} s)",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "entry.py:136",
        "Supported tasks: ['generate']",
    ),
    key(
        "server_start",
        rec(
            P::Server,
            W::Api,
            "entry.py:140",
            "Starting vLLM server on http://{host}:{port}",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:186",
        "Available routes are:",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:195",
        "Route: /health, Methods: GET",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:195",
        "Route: /v1/chat/completions, Methods: POST",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:195",
        "Route: /v1/completions, Methods: POST",
    ),
    UVICORN_STARTED,
    UVICORN_WAITING,
    UVICORN_COMPLETE,
];

const V0_33: &[Line] = &[
    key("banner", rec(P::Import, W::Api, "startup.py:347", LOGO)),
    rec(P::Import, W::Api, "startup.py:286", ARGS),
    key("engine_init", rec(P::Spawn, W::Engine, "core.py:140", INIT)),
    key(
        "model_load_start",
        rec(
            P::Init,
            W::Worker,
            "model_runner.py:372",
            "Loading model from scratch...",
        ),
    ),
    key(
        "weight_download",
        rec(P::Download, W::Worker, "weight_utils.py:760", DOWNLOAD),
    ),
    bare(P::Weights, W::Worker, SHARDS),
    key(
        "weights_loaded",
        rec(
            P::Weights,
            W::Worker,
            "default_loader.py:490",
            "Loading weights took {weights} seconds",
        ),
    ),
    key(
        "model_loaded",
        rec(
            P::Model,
            W::Worker,
            "model_runner.py:410",
            "Model loading took {gib} GiB memory and {load6} seconds",
        ),
    ),
    rec(
        P::Model,
        W::Worker,
        "backends.py:1214",
        "[backbone] Starting torch.compile",
    ),
    rec(
        P::Compile,
        W::Worker,
        "backends.py:1290",
        "[backbone] Dynamo bytecode transform time: {dynamo} s",
    ),
    key(
        "torch_compile",
        rec(
            P::Compile,
            W::Worker,
            "monitor.py:67",
            "[backbone] torch.compile took {compile} s in total",
        ),
    ),
    rec(
        P::Kv,
        W::Worker,
        "gpu_worker.py:571",
        "Available KV cache memory: {kv_gib} GiB",
    ),
    key(
        "kv_cache",
        rec(
            P::Kv,
            W::Engine,
            "kv_cache_utils.py:2340",
            "GPU KV cache size: {kv_tokens} tokens, Maximum concurrency for {max_len_commas} tokens per request: {concurrency}x",
        ),
    ),
    bare(P::Graphs, W::Worker, CAPTURE),
    key(
        "graph_capture",
        rec(
            P::Graphs,
            W::Worker,
            "model_runner.py:760",
            "Graph capturing finished in {graphs} secs, took {graphs_gib} GiB",
        ),
    ),
    key(
        "engine_ready",
        rec(
            P::Warmup,
            W::Engine,
            "core.py:405",
            "init engine (profile, create kv cache, warmup model) took {init} s (compilation: {compile} s)",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "entry.py:138",
        "Supported tasks: ['generate']",
    ),
    key(
        "server_start",
        rec(
            P::Server,
            W::Api,
            "entry.py:142",
            "Starting vLLM server on http://{host}:{port}",
        ),
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:188",
        "Available routes are:",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:197",
        "Route: /health, Methods: GET",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:197",
        "Route: /v1/chat/completions, Methods: POST",
    ),
    rec(
        P::Server,
        W::Api,
        "launcher.py:197",
        "Route: /v1/completions, Methods: POST",
    ),
    UVICORN_STARTED,
    UVICORN_WAITING,
    UVICORN_COMPLETE,
];

/// The message of the exception that open requests end with.
pub const ENGINE_DEAD: &str =
    "EngineCore encountered an issue. See stack trace (above) for the root cause.";

const OUTPUT_HANDLER: &str = "AsyncLLM output_handler failed.\nTraceback (most recent call last):\n\
    vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above) for the root cause.";

const fn api(level: &'static str, file: &'static str, text: &'static str) -> Line {
    Line {
        after: Phase::Routes,
        who: Who::Api,
        kind: Kind::Record(level, file),
        text,
        key: None,
    }
}

const DEAD_0_9: EngineDeath = EngineDeath {
    stream: DeadStream::Hang,
    unary: DeadUnary::Hang,
    unhealthy_ms: None,
    lines: &[],
};

const DEAD_0_16: EngineDeath = EngineDeath {
    stream: DeadStream::ErrorEventThenDone,
    unary: DeadUnary::Status200ErrorBody,
    unhealthy_ms: Some(300),
    lines: &[
        key(
            "failure.engine_dead",
            api(
                "ERROR",
                "core_client.py:616",
                "Engine core proc {engine} died unexpectedly, shutting down client.",
            ),
        ),
        api("ERROR", "async_llm.py:710", OUTPUT_HANDLER),
    ],
};

const DEAD_0_29: EngineDeath = EngineDeath {
    stream: DeadStream::ErrorEventThenDone,
    unary: DeadUnary::Status500,
    unhealthy_ms: Some(300),
    lines: &[
        key(
            "failure.engine_dead",
            api(
                "WARNING",
                "core_client.py:760",
                "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
            ),
        ),
        api(
            "INFO",
            "core_client.py:713",
            "[shutdown] MPClient: start timeout=default",
        ),
        api(
            "INFO",
            "core_client.py:715",
            "[shutdown] MPClient: stopping engine manager",
        ),
        api(
            "INFO",
            "core_client.py:717",
            "[shutdown] MPClient: engine manager stopped",
        ),
        api(
            "INFO",
            "core_client.py:720",
            "[shutdown] MPClient: complete",
        ),
        api("ERROR", "async_llm.py:812", OUTPUT_HANDLER),
    ],
};

const DEAD_0_32: EngineDeath = EngineDeath {
    lines: &[
        key(
            "failure.engine_dead",
            api(
                "WARNING",
                "core_client.py:817",
                "[shutdown] MPClient: engine core exited unexpectedly; starting cleanup",
            ),
        ),
        api(
            "INFO",
            "core_client.py:770",
            "[shutdown] MPClient: start timeout=default",
        ),
        api(
            "INFO",
            "core_client.py:772",
            "[shutdown] MPClient: stopping engine manager",
        ),
        api(
            "INFO",
            "core_client.py:774",
            "[shutdown] MPClient: engine manager stopped",
        ),
        api(
            "INFO",
            "core_client.py:775",
            "[shutdown] MPClient: cleaning up background resources",
        ),
        api(
            "INFO",
            "core_client.py:777",
            "[shutdown] MPClient: complete",
        ),
        api("ERROR", "async_llm.py:906", OUTPUT_HANDLER),
    ],
    ..DEAD_0_29
};

const STOP_OLD: &[Line] = &[key(
    "shutdown",
    api(
        "INFO",
        "launcher.py:80",
        "Shutting down FastAPI HTTP server.",
    ),
)];

const STOP_0_29: &[Line] = &[
    key(
        "shutdown",
        api(
            "INFO",
            "launcher.py:240",
            "[shutdown] API server: shutdown triggered",
        ),
    ),
    api(
        "INFO",
        "launcher.py:256",
        "[shutdown] API server: stopping engine client mode={mode} timeout={timeout}s",
    ),
    api(
        "INFO",
        "core_client.py:713",
        "[shutdown] MPClient: start timeout={timeout}s",
    ),
    api(
        "INFO",
        "core_client.py:720",
        "[shutdown] MPClient: complete",
    ),
];

const STOP_0_32: &[Line] = &[
    key(
        "shutdown",
        api(
            "INFO",
            "launcher.py:254",
            "[shutdown] API server: shutdown triggered",
        ),
    ),
    api(
        "INFO",
        "launcher.py:270",
        "[shutdown] API server: stopping engine client mode={mode} timeout={timeout}s",
    ),
    api(
        "INFO",
        "core_client.py:770",
        "[shutdown] MPClient: start timeout={timeout}s",
    ),
    api(
        "INFO",
        "core_client.py:777",
        "[shutdown] MPClient: complete",
    ),
    api(
        "INFO",
        "launcher.py:279",
        "[shutdown] API server: engine client stopped",
    ),
];

const OLD_METRICS: MetricNames = MetricNames {
    kv_usage: "vllm:gpu_cache_usage_perc",
    inter_token: "vllm:time_per_output_token_seconds",
};
const NEW_METRICS: MetricNames = MetricNames {
    kv_usage: "vllm:kv_cache_usage_perc",
    inter_token: "vllm:inter_token_latency_seconds",
};

/// The title older releases leave to their engine process.
const SPAWN_MAIN: &str = "python3 -c from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=5, pipe_handle=9) --multiprocessing-fork";

/// All releases the mock can act as, oldest first.
pub const RELEASES: &[Release] = &[
    Release {
        version: "0.9.2",
        prefix: PrefixStyle::None,
        engine_name: "EngineCore_0",
        engine_title: SPAWN_MAIN,
        startup: V0_9_2,
        engine_death: DEAD_0_9,
        shutdown: STOP_OLD,
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
        engine_title: "VLLM::EngineCore",
        startup: V0_16,
        engine_death: DEAD_0_16,
        shutdown: STOP_OLD,
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
        engine_title: "VLLM::EngineCore",
        startup: V0_29,
        engine_death: DEAD_0_29,
        shutdown: STOP_0_29,
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
        engine_title: "VLLM::EngineCore",
        startup: V0_32,
        engine_death: DEAD_0_32,
        shutdown: STOP_0_32,
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
        engine_title: "VLLM::EngineCore",
        startup: V0_33,
        engine_death: DEAD_0_32,
        shutdown: STOP_0_32,
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
            let keys: Vec<&str> = r.startup.iter().filter_map(|l| l.key).collect();
            assert_eq!(keys, KEYS, "{}", r.version);
            assert!(
                r.startup.windows(2).all(|w| w[0].after <= w[1].after),
                "{}",
                r.version
            );
        }
    }
}
