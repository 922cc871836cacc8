//! How the mock dies, compared with what was recorded of real releases.

#![allow(clippy::unwrap_used)] // A test may panic; that is how it fails.

mod support;

use std::io::{BufReader, ErrorKind, Read};
use std::time::Duration;

use support::{
    Mock, chat, completion, is_ours, kill, read_answer, read_events, refused, wait_for, wait_gone,
    with_defaults,
};

const SLOW: &[&str] = &[
    "--startup-scale",
    "0.01",
    "--ttft-ms",
    "5",
    "--itl-ms",
    "20",
];

fn start(more: &[&str]) -> Mock {
    Mock::start(&with_defaults(SLOW, more))
}

/// The rest of a stream whose head was read.
fn rest(mut reader: BufReader<std::net::TcpStream>) -> (String, Option<ErrorKind>) {
    let mut bytes = Vec::new();
    let error = reader.read_to_end(&mut bytes).err().map(|e| e.kind());
    (String::from_utf8_lossy(&bytes).into_owned(), error)
}

#[test]
fn engine_killed_0_32() {
    let mut m = start(&["--release", "0.32.0", "--unhealthy-ms", "1500"]);
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "s", &chat(500)));
    let mut unary = m.post("/v1/completions", "u", &completion(500));
    read_events(&mut stream, 3);
    kill(m.engine_pid, libc::SIGKILL);
    let (text, error) = rest(stream);
    let events: Vec<&str> = text
        .lines()
        .filter_map(|l| l.strip_prefix("data: "))
        .collect();
    assert_eq!(error, None, "clean end");
    assert_eq!(
        &events[events.len() - 2..],
        [
            r#"{"error": {"message": "EngineCore encountered an issue. See stack trace (above) for the root cause.", "type": "InternalServerError", "param": null, "code": 500}}"#,
            "[DONE]"
        ]
    );
    let u = read_answer(&mut unary);
    assert_eq!(u.status, 500);
    assert_eq!(
        u.body,
        r#"{"error":{"message":"EngineCore encountered an issue. See stack trace (above) for the root cause.","type":"InternalServerError","param":null,"code":500}}"#
    );
    // Within the time before it goes.
    assert_eq!(m.get("/health").status, 503);
    assert_eq!(m.exit_code(), 0);
    assert!(refused(m.port));
    assert!(
        m.log()
            .contains("[core_client.py:817] [shutdown] MPClient: engine core exited unexpectedly")
    );
    assert!(m.log().contains("INFO:     Application shutdown complete."));
    assert_eq!(m.end_of("s")["end"], "engine_dead");
    assert_eq!(m.events("engine_gone")[0]["status"], -libc::SIGKILL);
}

#[test]
fn engine_killed_0_16_answers_200_with_an_error_body() {
    let mut m = start(&["--release", "0.16.0"]);
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "", &chat(500)));
    let mut unary = m.post("/v1/completions", "u", &completion(500));
    read_events(&mut stream, 3);
    wait_for("arrival", || (m.events("request").len() == 2).then_some(()));
    kill(m.engine_pid, libc::SIGKILL);
    let (text, error) = rest(stream);
    assert!(
        error.is_none() && text.contains(r#"data: {"error": {"#) && text.contains("data: [DONE]")
    );
    let u = read_answer(&mut unary);
    assert_eq!((u.status, &u.json()["error"]["code"]), (200, &500.into()));
    assert_eq!(m.exit_code(), 0);
    assert!(
        m.log()
            .contains("Engine core proc EngineCore_DP0 died unexpectedly, shutting down client.")
    );
}

#[test]
fn engine_killed_0_9_2_hangs_for_ever() {
    let mut m = start(&["--release", "0.9.2"]);
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "", &chat(500)));
    read_events(&mut stream, 3);
    let mut unary = m.post("/v1/completions", "", &completion(500));
    kill(m.engine_pid, libc::SIGKILL);
    wait_gone(m.engine_pid);
    wait_for("the note of it", || {
        (!m.events("engine_gone").is_empty()).then_some(())
    });
    stream
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    assert_eq!(rest(stream).1, Some(ErrorKind::WouldBlock));
    unary
        .set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let u = read_answer(&mut unary);
    assert_eq!(
        (u.status, u.error),
        (0, Some(ErrorKind::WouldBlock)),
        "not even headers"
    );
    let mut new = m.post("/v1/completions", "", &completion(1));
    new.set_read_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    assert_eq!(read_answer(&mut new).error, Some(ErrorKind::WouldBlock));
    assert_eq!(m.get("/health").status, 200);
    assert!(m.running());
}

#[test]
fn worker_killed_takes_the_engine_with_it() {
    let mut m = start(&["--worker"]);
    let worker = m.events("worker_start")[0]["worker_pid"].as_i64().unwrap() as i32;
    let title = std::fs::read(format!("/proc/{worker}/cmdline")).unwrap();
    assert!(title.starts_with(b"VLLM::Worker\0"));
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "", &chat(500)));
    read_events(&mut stream, 3);
    kill(worker, libc::SIGKILL);
    assert!(rest(stream).0.contains("data: [DONE]"));
    assert_eq!(m.exit_code(), 0);
    assert!(
        m.log()
            .contains("Worker proc VllmWorker-0 died unexpectedly (exit code: -9)")
    );
    assert!(!is_ours(m.engine_pid));
}

#[test]
fn api_killed_leaves_an_orphan_that_keeps_the_device() {
    let dir = tempfile::tempdir().unwrap();
    let lock = dir.path().join("gpu0").display().to_string();
    let args = [SLOW, &["--device-lock", &lock, "--worker"]].concat();
    let mut m = Mock::start_in(dir, &args);
    let worker = m.events("worker_start")[0]["worker_pid"].as_i64().unwrap() as i32;
    let title = std::fs::read(format!("/proc/{}/cmdline", m.engine_pid)).unwrap();
    assert!(title.starts_with(b"VLLM::EngineCore\0"));
    assert_eq!(
        std::fs::read_to_string(format!("/proc/{}/comm", m.engine_pid))
            .unwrap()
            .trim(),
        "VLLM::EngineCor"
    );
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "lost", &chat(500)));
    read_events(&mut stream, 3);
    kill(m.pid(), libc::SIGKILL);
    let (text, _) = rest(stream);
    assert!(!text.contains("[DONE]"));
    assert_eq!(m.exit_code(), -libc::SIGKILL);
    assert!(refused(m.port));
    wait_for("the engine's note", || {
        (!m.events("engine_orphaned").is_empty()).then_some(())
    });
    assert!(is_ours(m.engine_pid) && is_ours(worker), "both live on");
    // The truth has the request's arrival and no end.
    assert!(m.events("request").iter().any(|r| r["id"] == "lost"));
    assert!(!m.events("request_end").iter().any(|r| r["id"] == "lost"));

    // A new start finds the memory taken, as vLLM says it.
    let mut second = m.second_life(&args);
    let status = wait_for("the second start's failure", || second.try_wait().unwrap());
    assert_eq!(status.code(), Some(1));
    let log = m.log();
    assert!(log.contains("Free memory on device cuda:0 (7.43/79.11 GiB) on startup is less than desired GPU memory utilization"));
    assert!(log.contains("Engine core initialization failed. See root cause above. Failed core proc(s): {'EngineCore': 1}"));

    // With the orphan gone within the wait, a third one starts.
    let patient = [args.as_slice(), &["--device-lock-wait", "20"]].concat();
    let mut third = m.second_life(&patient);
    std::thread::sleep(Duration::from_millis(200));
    kill(m.engine_pid, libc::SIGKILL);
    let pid = third.id();
    wait_for("the third start", || {
        m.events("ready")
            .iter()
            .any(|e| e["pid"] == pid)
            .then_some(())
    });
    wait_gone(worker);
    kill(pid as i32, libc::SIGTERM);
    assert_eq!(
        wait_for("its end", || third.try_wait().unwrap()).code(),
        Some(0)
    );
}

#[test]
fn sigterm_aborts_in_good_order() {
    for release in ["0.9.2", "0.16.0", "0.29.0", "0.32.0", "0.33.0"] {
        let mut m = start(&["--release", release]);
        let mut stream = BufReader::new(m.post("/v1/chat/completions", "s", &chat(500)));
        let mut unary = m.post("/v1/completions", "u", &completion(500));
        read_events(&mut stream, 3);
        wait_for("arrival", || (m.events("request").len() == 2).then_some(()));
        kill(m.pid(), libc::SIGTERM);
        let (text, error) = rest(stream);
        assert_eq!(error, None);
        let events: Vec<&str> = text
            .lines()
            .filter_map(|l| l.strip_prefix("data: "))
            .collect();
        let n = events.len();
        assert!(
            events[n - 3].contains(r#""finish_reason":"abort""#),
            "{release}: {events:?}"
        );
        assert!(events[n - 2].contains(r#""choices":[],"usage":"#));
        assert_eq!(events[n - 1], "[DONE]");
        let u = read_answer(&mut unary);
        assert_eq!(
            (u.status, &u.json()["choices"][0]["finish_reason"]),
            (200, &"abort".into())
        );
        assert_eq!(m.exit_code(), 0);
        assert!(
            !is_ours(m.engine_pid),
            "{release}: no orphan after an orderly end"
        );
        assert_eq!(m.end_of("s")["end"], "aborted");
    }
}

#[test]
fn sigterm_with_a_drain_lets_requests_finish() {
    let mut m = start(&["--shutdown-timeout", "20"]);
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "s", &chat(30)));
    read_events(&mut stream, 3);
    kill(m.pid(), libc::SIGTERM);
    let (text, _) = rest(stream);
    assert!(text.contains(r#""finish_reason":"length""#) && text.contains("[DONE]"));
    assert_eq!(m.exit_code(), 0);
    assert_eq!(m.end_of("s")["tokens"], 30);
}

#[test]
fn a_drain_that_overruns_goes_silent_until_the_client_leaves() {
    let mut m = start(&["--shutdown-timeout", "0.3"]);
    let stream = m.post("/v1/chat/completions", "s", &chat(5000));
    let mut reader = BufReader::new(stream);
    read_events(&mut reader, 3);
    kill(m.pid(), libc::SIGTERM);
    wait_for("the overrun", || {
        (!m.events("drain_overrun").is_empty()).then_some(())
    });
    reader
        .get_ref()
        .set_read_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let (text, error) = rest(reader);
    assert!(error == Some(ErrorKind::WouldBlock) && !text.contains("[DONE]"));
    assert_eq!(m.exit_code(), 0, "it goes once the client has gone");
}

#[test]
fn frozen_engine_is_silence_with_a_healthy_face_and_no_burst() {
    let m = start(&[]);
    let mut stream = BufReader::new(m.post("/v1/chat/completions", "s", &chat(40)));
    read_events(&mut stream, 3);
    kill(m.engine_pid, libc::SIGSTOP);
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(m.get("/health").status, 200);
    kill(m.engine_pid, libc::SIGCONT);
    assert!(rest(stream).0.contains("data: [DONE]"));
    let end = m.end_of("s");
    let span =
        end["last_token_due_ns"].as_u64().unwrap() - end["first_token_due_ns"].as_u64().unwrap();
    // 39 steps of 20 ms, none of them skipped, and the gap.
    assert!(span >= 39 * 20_000_000 + 300_000_000, "{span}");
    assert_eq!(m.events("engine_frozen").len(), 1);
}
