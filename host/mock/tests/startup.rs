//! Start-up on real processes: lines, figures, phases, refusals before the port
//! opens, failing and slow starts.

#![allow(clippy::unwrap_used)] // A test may panic; that is how it fails.

mod support;

use std::net::TcpListener;

use serde_json::Value;
use support::{Mock, kill, refused, wait_for};

/// Phases of known length whose figures print exactly.
const SCRIPT: &str = "import=0.05,spawn=0.05,init=0.02,weights=0.31,model=0.04,compile=0.22,kv=0.03,graphs=1,warmup=0.05,server=0.05,routes=0.02";

fn ns_of(truth: &[Value], key: &str) -> u64 {
    truth
        .iter()
        .find(|t| t["event"] == "boundary" && t["key"] == key)
        .unwrap_or_else(|| panic!("no boundary {key}"))["ns"]
        .as_u64()
        .unwrap()
}

#[test]
fn every_release_prints_its_lines_and_keeps_its_script() {
    for (release, api, engine, expected) in [
        (
            "0.9.2",
            "",
            "",
            &[
                "[api_server.py:1395] vLLM API server version 0.9.2",
                "Starting to load model mock-8b...",
                "Model loading took 14.2900 GiB and 0.350000 seconds",
                "torch.compile takes 0.22 s in total",
                "GPU KV cache size: 2,097,152 tokens\n",
                "Maximum concurrency for 8,192 tokens per request: 256.00x",
                "took 1.30 seconds",
                "Starting vLLM API server 0 on http://127.0.0.1:",
                "\nINFO:     Application startup complete.",
            ][..],
        ),
        (
            "0.16.0",
            "(APIServer pid={api}) ",
            "(EngineCore_DP0 pid={engine}) ",
            &[
                "[utils.py:287]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.16.0\r\n",
                "Model loading took 14.29 GiB memory and 0.350000 seconds",
                "torch.compile takes 0.22 s in total",
                "took 1.30 seconds",
                "Starting vLLM API server 0 on",
                "(APIServer pid={api}) INFO:     Application startup complete.",
                "(EngineCore_DP0 pid={engine}) \rLoading safetensors",
            ],
        ),
        (
            "0.29.0",
            "(APIServer pid={api}) ",
            "(EngineCore pid={engine}) ",
            &[
                "torch.compile took 0.22 s in total",
                "GPU KV cache size: 2,097,152 tokens, Maximum concurrency for 8,192 tokens per request: 256.00x",
                "took 1.30 s (compilation: 0.22 s)",
                "Starting vLLM server on",
                "(APIServer pid={api}) INFO:     Application startup complete.",
            ],
        ),
        (
            "0.32.0",
            "(APIServer pid={api}) ",
            "(EngineCore pid={engine}) ",
            &[
                "[api_utils.py:347]  ▄▄ ▄█ █     █     █ ▀▄▀ █  version 0.32.0\r\n",
                "[backbone] Starting torch.compile",
                "[backbone] torch.compile took 0.22 s in total",
                "took 1.30 s (compilation: 0.22 s)",
                "\nINFO:     Application startup complete.",
                "\n\rLoading safetensors",
            ],
        ),
        (
            "0.33.0",
            "(APIServer pid={api}) ",
            "(EngineCore pid={engine}) ",
            &[
                "[startup.py:347]",
                "Loading model from scratch...",
                "\nINFO:     Application startup complete.",
            ],
        ),
    ] {
        let m = Mock::start(&["--release", release, "--phase", SCRIPT]);
        let log = m.log();
        let fill = |s: &str| {
            s.replace("{api}", &m.pid().to_string())
                .replace("{engine}", &m.engine_pid.to_string())
        };
        for text in expected {
            assert!(
                log.contains(&fill(text)),
                "{release}: `{}` is not in\n{log}",
                fill(text)
            );
        }
        for text in [
            "Initializing a V1 LLM engine (v",
            "Loading weights took 0.31 seconds",
            "Graph capturing finished in 1 secs, took 0.61 GiB",
        ] {
            let line = log
                .lines()
                .find(|l| l.contains(text))
                .unwrap_or_else(|| panic!("{release}: {text}"));
            assert!(
                line.starts_with(&format!("{}INFO ", fill(engine))),
                "{release}: {line}"
            );
        }
        let started = log
            .lines()
            .find(|l| l.contains("Available routes are:"))
            .unwrap();
        assert!(
            started.starts_with(&format!("{}INFO ", fill(api))),
            "{release}: {started}"
        );
        assert!(
            !log.contains("Time spent downloading"),
            "no download, no line"
        );

        // Boundaries in order and never before their scripted instants (a busy
        // machine can only make them later).
        let truth = m.truth();
        let start = truth
            .iter()
            .find(|t| t["event"] == "process_start")
            .unwrap()["ns"]
            .as_u64()
            .unwrap();
        let mut scripted_ms = 0;
        let mut last = start;
        for (key, ms) in [
            ("banner", 50),
            ("engine_init", 50),
            ("model_load_start", 20),
            ("weights_loaded", 310),
            ("model_loaded", 40),
            ("torch_compile", 220),
            ("kv_cache", 30),
            ("graph_capture", 1000),
            ("engine_ready", 50),
            ("server_start", 50),
            ("startup_complete", 20),
        ] {
            scripted_ms += ms;
            let ns = ns_of(&truth, key);
            assert!(ns >= last, "{release}: {key} out of order");
            assert!(
                ns - start >= scripted_ms * 1_000_000,
                "{release}: {key} before its time"
            );
            last = ns;
        }
        let weights = truth.iter().find(|t| t["key"] == "weights_loaded").unwrap();
        assert_eq!(weights["weights_loaded_s"], 0.31);
    }
}

#[test]
fn connections_are_refused_until_the_start_is_complete() {
    // A free port that this test keeps to itself as well as a test can.
    let port = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port();
    let dir = tempfile::tempdir().unwrap();
    let mut m = Mock::launch_in(dir, &["--port", &port.to_string(), "--phase", "weights=1"]);
    wait_for("the banner", || {
        m.log().contains("version 0.32.0").then_some(())
    });
    assert!(refused(port));
    wait_for("weights", || {
        m.log().contains("Loading weights took").then_some(())
    });
    assert!(refused(port));
    wait_for("ready", || (!m.events("ready").is_empty()).then_some(()));
    m.port = port;
    assert_eq!(m.get("/health").status, 200);
    let truth = m.truth();
    let ready = truth.iter().find(|t| t["event"] == "ready").unwrap()["ns"]
        .as_u64()
        .unwrap();
    assert!(ready > ns_of(&truth, "startup_complete"));

    // The port is taken: the second one says so and how to mend it.
    let mut second = m.second_life(&["--port", &port.to_string()]);
    let status = wait_for("the second's end", || second.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    assert!(
        m.errors().contains("choose another --port"),
        "{}",
        m.errors()
    );
    assert!(m.running());
}

#[test]
fn scripted_failures_of_a_start() {
    for (phase, how, says) in [
        (
            "graphs",
            "oom",
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB",
        ),
        ("kv", "kv", "No available memory for the cache blocks."),
        ("init", "nccl", "RuntimeError: NCCL error:"),
        ("import", "oom", "MemoryError"),
        ("server", "oom", "MemoryError"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let args = [
            "--startup-scale",
            "0.01",
            "--die-at-start",
            phase,
            "--die-as",
            how,
            "--exit-code",
            "7",
        ];
        let mut m = Mock::launch_in(dir, &args);
        assert_eq!(m.exit_code(), 7, "{phase}");
        let log = m.log();
        assert!(log.contains(says), "{phase}: {log}");
        if !["import", "server"].contains(&phase) {
            assert!(log.contains("EngineCore failed to start."), "{phase}");
            assert!(
                log.contains("Failed core proc(s): {'EngineCore': 7}"),
                "{phase}: {log}"
            );
        }
        assert!(m.events("ready").is_empty());
    }
}

#[test]
fn an_engine_killed_while_starting_fails_the_start() {
    let dir = tempfile::tempdir().unwrap();
    let mut m = Mock::launch_in(dir, &["--phase", "weights=20"]);
    let engine = wait_for("the engine", || {
        m.truth()
            .iter()
            .find(|t| t["event"] == "process_start" && t["role"] == "engine")
            .and_then(|t| t["pid"].as_i64())
    });
    kill(engine as i32, libc::SIGKILL);
    assert_eq!(m.exit_code(), 1);
    assert!(m.log().contains("Failed core proc(s): {'EngineCore': -9}"));
}

#[test]
fn sigterm_while_starting_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let mut m = Mock::launch_in(dir, &["--phase", "weights=20"]);
    let engine = wait_for("the engine", || {
        m.truth()
            .iter()
            .find(|t| t["event"] == "process_start" && t["role"] == "engine")
            .and_then(|t| t["pid"].as_i64())
    });
    kill(m.pid(), libc::SIGTERM);
    assert_eq!(m.exit_code(), 0);
    assert!(!support::is_ours(engine as i32));
}

#[test]
fn reloads_can_be_slower_and_only_chosen_starts_fail() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("state.json").display().to_string();
    let phases = "import=0,spawn=0,init=0,weights=0.1,model=0,compile=0,kv=0,graphs=0,warmup=0,server=0,routes=0";
    let args = [
        "--phase",
        phases,
        "--state-file",
        &state,
        "--slow-reload",
        "3",
    ];
    let figure = |m: &Mock| {
        let truth = m.truth();
        let last = truth
            .iter()
            .rev()
            .find(|t| t["key"] == "weights_loaded")
            .unwrap();
        last["weights_loaded_s"].as_f64().unwrap()
    };
    let near = |a: f64, b: f64| (a - b).abs() < 1e-9;
    let first = Mock::start_in(dir, &args);
    assert!(near(figure(&first), 0.1));
    let second = Mock::start_in(first.into_dir(), &args);
    assert!(near(figure(&second), 0.3));
    // An admin order goes before the standing factor, once.
    assert_eq!(
        second.fault(r#"{"mode":"slow_reload","factor":2}"#).status,
        200
    );
    let third = Mock::start_in(second.into_dir(), &args);
    assert!(near(figure(&third), 0.2));
    let dying: Vec<&str> = [
        args.as_slice(),
        &["--die-at-start", "weights", "--die-on-start", "4"],
    ]
    .concat();
    let mut fourth = Mock::launch_in(third.into_dir(), &dying);
    assert_eq!(fourth.exit_code(), 1);
    let fifth = Mock::start_in(fourth.into_dir(), &dying);
    let starts: Vec<u64> = fifth
        .events("process_start")
        .iter()
        .filter(|t| t["role"] == "api")
        .map(|t| t["start"].as_u64().unwrap())
        .collect();
    assert_eq!(starts, [1, 2, 3, 4, 5], "all lives in one file");
}

#[test]
fn wrong_options_are_one_clear_sentence() {
    let dir = tempfile::tempdir().unwrap();
    let mut m = Mock::launch_in(dir, &["--release", "9.9"]);
    assert_eq!(m.exit_code(), 3);
    assert!(
        m.errors()
            .contains("--release: the mock does not know vLLM release `9.9`; it knows 0.9.2")
    );
    assert_eq!(m.errors().lines().count(), 1);
}
