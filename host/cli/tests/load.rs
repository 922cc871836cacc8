//! `blackstart load` against the bundled mock server, as a person runs it.

#![allow(clippy::unwrap_used)]

mod common;

use std::collections::{BTreeMap, HashSet};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Duration;

use blackstart_record::{
    EventKind, Gap, Outcome, RequestRecord, for_each_gap, read_events, read_requests_parquet,
};
use blackstart_testkit::{
    Authority, Farewell, Identity, Instrument, Running, TlsFront, TruthLine, free_port, read_truth,
    wait_for,
};
use rustix::process::Signal;
use serde_json::Value;

use common::{GONE_WITHIN, instrument, json, turn};

/// A mock server without start-up phases, its admin interface on its own port.
fn mock(instrument: &Instrument, port: u16, more: &[&str]) -> Running {
    let port_text = port.to_string();
    let mut args = vec![
        "mock",
        "--port",
        &port_text,
        "--startup-scale",
        "0",
        "--admin-on-main",
        "--no-access-log",
        "--truth",
        "truth.jsonl",
    ];
    args.extend(more);
    let mut running = instrument.start(args);
    running.wait_while_it_runs("an open port", || {
        TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
    });
    running
}

fn url(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

fn admin(port: u16, body: &str) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let request = format!(
        "POST /admin/fault HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

/// The one JSON object on standard output.
fn summary(stdout: &str) -> Value {
    let mut lines = stdout.lines();
    let summary = serde_json::from_str(lines.next().expect("a line")).expect("JSON");
    assert_eq!(lines.next(), None, "one line on stdout");
    summary
}

fn requests(dir: &Path) -> Vec<RequestRecord> {
    read_requests_parquet(&dir.join("requests.parquet")).unwrap()
}

/// The kept gaps by request.
fn every_gap(dir: &Path) -> BTreeMap<u64, Vec<Gap>> {
    let mut found: BTreeMap<u64, Vec<Gap>> = BTreeMap::new();
    for_each_gap(&dir.join("gaps.parquet"), |rows| {
        for gap in rows {
            found.entry(gap.index).or_default().push(gap);
        }
    })
    .unwrap();
    found
}

/// Run time 0 on the monotonic clock.
fn epoch(dir: &Path) -> i64 {
    read_events(&dir.join("events.jsonl"))
        .unwrap()
        .events
        .into_iter()
        .find_map(|e| match e.kind {
            EventKind::Epoch { monotonic_ns, .. } => Some(monotonic_ns),
            _ => None,
        })
        .unwrap()
}

/// Holds a summary to its published schema.
fn expect_schema(summary: &Value) {
    let schema =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../report/schema/load-summary.schema.json");
    let validator = jsonschema::validator_for(&json(&schema)).unwrap();
    let problems: Vec<String> = validator
        .iter_errors(summary)
        .map(|e| format!("{}: {e}", e.instance_path()))
        .collect();
    assert!(problems.is_empty(), "{problems:#?}");
}

/// What the mock says of each request of the load, by the request's index.
fn by_index(truth: &[TruthLine], event: &str) -> BTreeMap<u64, TruthLine> {
    let mut found = BTreeMap::new();
    for line in truth.iter().filter(|l| l["event"] == event) {
        let id = line["id"].as_str().unwrap_or_default();
        if let Some(index) = id.strip_prefix("load-").and_then(|i| i.rsplit('-').next()) {
            let twice = found.insert(index.parse().unwrap(), line.clone());
            assert!(twice.is_none(), "request {index} came twice");
        }
    }
    found
}

#[test]
fn a_load_adds_up_with_what_the_server_counted() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "20", "--itl-ms", "2"]);
    let run = |seed: &str, out: &str| {
        instrument.run([
            "load",
            "--url",
            &url(port),
            "--rate",
            "60",
            "--duration",
            "2s",
            "--max-tokens",
            "8",
            "--ignore-eos",
            "--seed",
            seed,
            "--json",
            "--out",
            out,
        ])
    };
    let finished = run("7", "first");
    finished.expect_code(0);
    let summary = summary(&finished.stdout);
    let dir = instrument.path("first");
    let records = requests(&dir);
    let (arrived, ended) = {
        let truth = read_truth(&instrument.path("truth.jsonl"));
        (by_index(&truth, "request"), by_index(&truth, "request_end"))
    };
    assert_eq!(summary["scheduled"], records.len());
    assert_eq!(summary["completed"], records.len());
    assert_eq!((arrived.len(), ended.len()), (records.len(), records.len()));
    assert_eq!(summary["partial"], false);
    assert_eq!(summary["tokens"]["events"], 8 * records.len());
    assert_eq!(
        summary["tokens"]["server_completion_tokens"],
        8 * records.len()
    );
    assert_eq!(summary["inter_chunk_ms"]["count"], 7 * records.len());
    assert_eq!(summary["out"], "first");
    assert_eq!(json(&dir.join("summary.json"))["e2e_ms"], summary["e2e_ms"]);
    expect_schema(&summary);
    expect_schema(&json(&dir.join("summary.json")));
    for latencies in ["ttft_ms", "inter_chunk_ms", "e2e_ms"] {
        let buckets = summary[latencies]["buckets"].as_array().unwrap();
        let counted: u64 = buckets.iter().map(|b| b["count"].as_u64().unwrap()).sum();
        assert_eq!(summary[latencies]["count"], counted, "{latencies}");
    }
    let epoch = epoch(&dir);
    for r in &records {
        // Nothing is sent before its time, by the server's own stamp; and the first token is not seen
        // before the server gave it away.
        let arrival = arrived[&r.index]["ns"].as_i64().unwrap() - epoch;
        assert!(arrival >= r.intended_ns, "{r:?} {arrival}");
        let given = ended[&r.index]["first_token_ns"].as_i64().unwrap() - epoch;
        assert!(r.first_token_ns.unwrap() >= given, "{r:?} {given}");
    }
    for text in ["TTFT of ", "send skew", "canary", "goodput", "p50"] {
        assert!(
            finished.stderr.contains(text),
            "{text}\n{}",
            finished.stderr
        );
    }
    // The same seed gives the same schedule; another one another.
    run("7", "second").expect_code(0);
    run("8", "third").expect_code(0);
    let hash = |dir: &str| json(&instrument.path(dir).join("load.json"))["schedule_sha256"].clone();
    assert_eq!(hash("first"), hash("second"));
    assert_ne!(hash("first"), hash("third"));
    // Again from the records alone.
    let again = instrument.run(["analyze", "first"]);
    again.expect_code(0);
    assert_eq!(json(&dir.join("summary.json"))["e2e_ms"], summary["e2e_ms"]);
}

/// Under a cap a stall of the server keeps requests waiting in the client. A generator that counts
/// from the actual send hides that; the mock's own stamps against the schedule are the truth.
#[test]
fn the_wait_under_a_cap_counts() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "20", "--itl-ms", "10"]);
    let mut load = instrument.start([
        "load",
        "--url",
        &url(port),
        "--rate",
        "20",
        "--arrivals",
        "constant",
        "--concurrency",
        "8",
        "--duration",
        "8s",
        "--max-tokens",
        "16",
        "--ignore-eos",
        "--json",
        "--out",
        "out",
    ]);
    let truth = instrument.path("truth.jsonl");
    load.wait_while_it_runs("some requests", || {
        (by_index(&read_truth(&truth), "request").len() >= 20).then_some(())
    });
    admin(port, r#"{"mode":"stall"}"#);
    std::thread::sleep(Duration::from_secs(3));
    admin(port, r#"{"mode":"none"}"#);
    let finished = load.finish();
    finished.expect_code(0);
    let summary = summary(&finished.stdout);
    let dir = instrument.path("out");
    let (records, epoch) = (requests(&dir), epoch(&dir));
    let ended = by_index(&read_truth(&truth), "request_end");
    assert_eq!(summary["completed"], summary["scheduled"]);
    let waits: Vec<f64> = records
        .iter()
        .map(|r| {
            let given = ended[&r.index]["first_token_ns"].as_i64().unwrap() - epoch;
            (given - r.intended_ns) as f64 / 1e6
        })
        .collect();
    let mean = waits.iter().sum::<f64>() / waits.len() as f64;
    let reported = summary["ttft_ms"]["mean"].as_f64().unwrap();
    assert!(
        (reported / mean - 1.0).abs() < 0.05,
        "mean TTFT reported {reported} ms, by the server's stamps {mean} ms"
    );
    // The stall is far longer than any answer: it must dominate the mean.
    assert!(mean > 300.0, "{mean}");
    assert!(records.iter().any(|r| r.admitted_ns.is_some()));
}

/// The server dies under load and comes back: every request has one outcome, the server's count of
/// completions is the client's, and none was sent twice.
#[test]
fn a_killed_server_leaves_counts_that_agree() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let more = ["--ttft-ms", "20", "--itl-ms", "2"];
    let first = mock(&instrument, port, &more);
    let mut load = instrument.start([
        "load",
        "--url",
        &url(port),
        "--rate",
        "200",
        "--duration",
        "8s",
        "--max-tokens",
        "16",
        "--ignore-eos",
        "--json",
        "--out",
        "out",
    ]);
    let truth = instrument.path("truth.jsonl");
    load.wait_while_it_runs("some requests", || {
        (by_index(&read_truth(&truth), "request").len() >= 300).then_some(())
    });
    first.signal(Signal::KILL);
    std::thread::sleep(Duration::from_secs(3));
    let _second = mock(&instrument, port, &more);
    let finished = load.finish();
    finished.expect_code(0);
    let summary = summary(&finished.stdout);
    let records = requests(&instrument.path("out"));
    let truth = read_truth(&truth);
    // `by_index` fails on any request that came twice.
    let arrived = by_index(&truth, "request");
    let ended = by_index(&truth, "request_end");
    let completed: HashSet<u64> = records
        .iter()
        .filter(|r| r.outcome == Outcome::Completed)
        .map(|r| r.index)
        .collect();
    let given: HashSet<u64> = ended
        .iter()
        .filter(|(_, l)| l["tokens"] == 16)
        .map(|(index, _)| *index)
        .collect();
    assert_eq!(completed, given);
    let count = |name: &str| summary[name].as_u64().unwrap();
    assert_eq!(count("completed"), completed.len() as u64);
    assert_eq!(
        count("scheduled"),
        count("completed") + count("errored") + count("censored")
    );
    assert_eq!(count("scheduled"), records.len() as u64);
    // Some were in flight at the kill, and about 3 s of 200 a second met nobody.
    assert!(count("errored") >= 300, "{summary}");
    assert!(
        arrived
            .keys()
            .all(|i| records[*i as usize].dispatched_ns.is_some())
    );
}

/// A data set with timestamps is a trace: sent when it says, what it says.
#[test]
fn a_trace_is_replayed() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5", "--itl-ms", "1"]);
    instrument.write(
        "trace.jsonl",
        concat!(
            "{\"prompt\":\"a\",\"timestamp\":100.0,\"max_tokens\":2}\n",
            "{\"messages\":[{\"role\":\"user\",\"content\":\"b\"}],\"timestamp\":100.25,\"max_tokens\":5}\n",
            "{\"prompt\":\"c\",\"timestamp\":101.0,\"max_tokens\":3}\n",
        ),
    );
    let finished = instrument.run([
        "load",
        "--url",
        &url(port),
        "--arrivals",
        "trace",
        "--prompt-file",
        "trace.jsonl",
        "--ignore-eos",
        "--json",
        "--out",
        "out",
    ]);
    finished.expect_code(0);
    let records = requests(&instrument.path("out"));
    let times: Vec<i64> = records.iter().map(|r| r.intended_ns).collect();
    assert_eq!(times, [0, 250_000_000, 1_000_000_000]);
    let tokens: Vec<_> = records.iter().map(|r| r.completion_tokens).collect();
    assert_eq!(tokens, [Some(2), Some(5), Some(3)]);
    assert_eq!(summary(&finished.stdout)["completed"], 3);
    let spec = json(&instrument.path("out").join("load.json"));
    assert_eq!(spec["prompts"]["requests"], 3);
    let finished = instrument.run([
        "load",
        "--url",
        &url(port),
        "--arrivals",
        "trace",
        "--rate",
        "1",
        "--prompt-file",
        "trace.jsonl",
    ]);
    finished.expect_code(3);
    assert!(
        finished.stderr.contains("leave --rate out"),
        "{}",
        finished.stderr
    );
    instrument.write("text.txt", "a text to send");
    let finished = instrument.run([
        "load",
        "--url",
        &url(port),
        "--rate",
        "20",
        "--duration",
        "1s",
        "--prompt-file",
        "text.txt",
        "--json",
    ]);
    finished.expect_code(0);
    let finished = instrument.run([
        "load",
        "--url",
        &url(port),
        "--arrivals",
        "trace",
        "--prompt-file",
        "text.txt",
    ]);
    finished.expect_code(3);
    assert!(
        finished.stderr.contains("`timestamp`"),
        "{}",
        finished.stderr
    );
}

/// Conversations: the schedule is the seed's, turns wait for each other, parts are whole conversations.
#[test]
fn conversations_are_one_load_on_any_number_of_machines() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "60", "--itl-ms", "2"]);
    let start = std::time::SystemTime::now() + Duration::from_secs(3);
    let start = start
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let address = url(port);
    let args = |more: &[&str]| {
        let mut args: Vec<String> = [
            "load",
            "--url",
            &address,
            "--rate",
            "20",
            "--duration",
            "2s",
            "--turns",
            "3",
            "--think-time",
            "100ms",
            "--max-tokens",
            "4",
            "--ignore-eos",
            "--seed",
            "3",
            "--threads",
            "2",
            "--no-canary",
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(more.iter().map(|a| (*a).to_owned()));
        args
    };
    let running: Vec<Running> = (0..2)
        .map(|n| {
            let (share, out) = (format!("{n}/2"), format!("part-{n}"));
            instrument.start(args(&[
                "--shard",
                &share,
                "--start-at",
                &start,
                "--out",
                &out,
            ]))
        })
        .collect();
    for part in running {
        part.finish().expect_code(0);
    }
    instrument
        .run(["merge", "part-0", "part-1", "--out", "joined"])
        .expect_code(0);
    let finished = instrument.run(args(&["--json", "--out", "alone"]));
    finished.expect_code(0);
    let (joined, alone) = (
        requests(&instrument.path("joined")),
        requests(&instrument.path("alone")),
    );
    let places = |records: &[RequestRecord]| -> Vec<_> {
        records
            .iter()
            .map(|r| (r.index, r.intended_ns, r.conversation, r.turn))
            .collect()
    };
    assert_eq!(places(&joined), places(&alone));
    assert!(alone.iter().all(|r| r.outcome == Outcome::Completed));
    // Many of the later turns are due before the one before them has its answer.
    assert!(alone.iter().any(|r| r.admitted_ns.is_some()));
    let by_turn: BTreeMap<_, _> = alone
        .iter()
        .map(|r| ((r.conversation.unwrap(), r.turn.unwrap()), r))
        .collect();
    for ((conversation, turn), r) in &by_turn {
        if let Some(before) = turn.checked_sub(1) {
            let before = by_turn[&(*conversation, before)];
            assert!(r.intended_ns >= before.intended_ns);
            assert!(r.dispatched_ns.unwrap() >= before.ended_ns, "{r:?}");
            // A longer history is a longer prompt, by the server's own count.
            assert!(r.prompt_tokens > before.prompt_tokens, "{r:?}");
        }
    }
    let summary = summary(&finished.stdout);
    expect_schema(&summary);
    let firsts = by_turn.keys().filter(|(_, turn)| *turn == 0).count();
    assert_eq!(summary["turns"]["conversations"], firsts);
    assert_eq!(summary["turns"]["later"], alone.len() - firsts);
    assert_eq!(summary["turns"]["first_ttft_ms"]["count"], firsts);
    for text in ["1st turn", "conversations of up to 3 turns", "later turns"] {
        assert!(
            finished.stderr.contains(text),
            "{text}\n{}",
            finished.stderr
        );
    }
    // The schedule again, from what `load.json` says alone.
    let spec: blackstart_plan::LoadSpec =
        blackstart_record::read_json(&instrument.path("alone").join("load.json")).unwrap();
    let blackstart_plan::Pace::Open {
        profile, requests, ..
    } = &spec.pace
    else {
        panic!("{spec:?}");
    };
    let again = blackstart_plan::conversation_schedule(
        spec.load.arrivals,
        profile,
        spec.conversations.unwrap(),
        |_| u32::MAX,
        *requests,
        spec.seed,
    )
    .unwrap();
    assert_eq!(spec.schedule_sha256, Some(again.schedule.sha256()));
    // A closed loop walks through them too, and a data set may say what is said.
    instrument.write("talk.jsonl", "{\"turns\":[\"a\",\"b\"]}\n");
    let finished = instrument.run([
        "load",
        "--url",
        &address,
        "--concurrency",
        "2",
        "--requests",
        "8",
        "--prompt-file",
        "talk.jsonl",
        "--max-tokens",
        "2",
        "--no-canary",
        "--json",
    ]);
    finished.expect_code(0);
    let closed = self::summary(&finished.stdout);
    assert_eq!(closed["completed"], 8);
    assert_eq!(closed["turns"]["later_waited"], 0);
}

/// Parts of a schedule, sent by several instruments that know nothing of each other, are one load.
#[test]
fn parts_join_without_loss() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5", "--itl-ms", "1"]);
    let start = std::time::SystemTime::now() + Duration::from_secs(4);
    let start = start
        .duration_since(std::time::UNIX_EPOCH)
        .unwrap()
        .as_secs()
        .to_string();
    let address = url(port);
    let args = |more: &[&str]| {
        let mut args: Vec<String> = [
            "load",
            "--url",
            &address,
            "--rate",
            "60",
            "--duration",
            "2s",
            "--max-tokens",
            "4",
            "--ignore-eos",
            "--seed",
            "3",
        ]
        .map(str::to_owned)
        .to_vec();
        args.extend(more.iter().map(|a| (*a).to_owned()));
        args
    };
    let running: Vec<Running> = (0..3)
        .map(|n| {
            let (share, out) = (format!("{n}/3"), format!("part-{n}"));
            instrument.start(args(&[
                "--shard",
                &share,
                "--start-at",
                &start,
                "--every-gap",
                "--out",
                &out,
            ]))
        })
        .collect();
    for part in running {
        part.finish().expect_code(0);
    }
    let merge = |dirs: &[&str], out: &str| {
        let args = ["merge"].into_iter().chain(dirs.iter().copied());
        instrument.run(args.chain(["--out", out]))
    };
    merge(&["part-2", "part-0", "part-1"], "joined").expect_code(0);
    let joined = requests(&instrument.path("joined"));
    let mut parts: Vec<RequestRecord> = (0..3)
        .flat_map(|n| requests(&instrument.path(&format!("part-{n}"))))
        .collect();
    parts.sort_by_key(|r| r.index);
    assert_eq!(joined, parts);
    let sum = |field: &str| -> u64 {
        (0..3)
            .map(|n| json(&instrument.path(&format!("part-{n}/summary.json"))))
            .map(|s| s["inter_chunk_ms"][field].as_u64().unwrap())
            .sum()
    };
    let summary = json(&instrument.path("joined/summary.json"));
    assert_eq!(
        summary["inter_chunk_ms"]["count"].as_u64(),
        Some(sum("count"))
    );
    assert_eq!(summary["completed"], joined.len());
    let gaps = every_gap(&instrument.path("joined"));
    assert!(joined.iter().all(|r| gaps[&r.index].len() == 3));
    // The schedule is that of one instrument with this seed.
    instrument.run(args(&["--out", "alone"])).expect_code(0);
    let alone: Vec<i64> = requests(&instrument.path("alone"))
        .iter()
        .map(|r| r.intended_ns)
        .collect();
    assert_eq!(
        joined.iter().map(|r| r.intended_ns).collect::<Vec<_>>(),
        alone
    );
    instrument.run(["analyze", "joined"]).expect_code(0);
    // What does not belong together is not joined.
    let mut fewer = requests(&instrument.path("part-1"));
    fewer.pop();
    std::fs::create_dir(instrument.path("short")).unwrap();
    for file in ["load.json", "events.jsonl", "gaps.hlog.zst", "gaps.parquet"] {
        let copy = instrument.path("short").join(file);
        std::fs::copy(instrument.path("part-1").join(file), copy).unwrap();
    }
    blackstart_record::write_requests_parquet(&instrument.path("short/requests.parquet"), &fewer)
        .unwrap();
    for (dirs, text) in [
        (&["part-0", "part-1"][..], "part 2/3 is missing"),
        (&["part-0", "part-1", "part-1"], "part 1/3 is there twice"),
        (&["part-0", "part-1", "alone"], "not parts of one load"),
        (&["part-0", "part-1", "nothing"], "holds no load"),
        (&["part-0", "short", "part-2"], "schedule"),
    ] {
        let finished = merge(dirs, "refused");
        finished.expect_code(2);
        assert!(
            finished.stderr.contains(text),
            "{dirs:?}\n{}",
            finished.stderr
        );
        assert!(!instrument.path("refused").exists(), "{dirs:?}");
    }
    // Nor what somebody tampered with, where no seal says so.
    std::fs::remove_file(instrument.path("part-1/manifest.json")).unwrap();
    let tamper = |file: &str, from: &str, to: &str| {
        let path = instrument.path("part-1").join(file);
        let text = std::fs::read_to_string(&path).unwrap();
        let at = text.find(from).unwrap() + from.len();
        let digits = text[at..]
            .find(|c: char| !c.is_ascii_digit() && c != ' ')
            .unwrap();
        let tampered = format!("{}{to}{}", &text[..at], &text[at + digits..]);
        std::fs::write(&path, tampered).unwrap();
        let finished = merge(&["part-0", "part-1", "part-2"], "refused");
        finished.expect_code(2);
        assert!(
            finished.stderr.contains(file) && finished.stderr.contains("damaged"),
            "{}",
            finished.stderr
        );
        assert!(!instrument.path("refused").exists());
        std::fs::write(&path, text).unwrap();
    };
    tamper("events.jsonl", "\"unix_ns\":", "-9223372036854775808");
    tamper("load.json", "\"of\":", "0");
    let late = instrument.run(args(&["--shard", "0/2", "--start-at", "1000"]));
    late.expect_code(3);
    assert!(
        late.stderr.contains("ago by this machine"),
        "{}",
        late.stderr
    );
}

#[test]
fn a_server_that_hangs_for_ever_does_not_hang_the_load() {
    let _turn = turn();
    let instrument = instrument();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = url(listener.local_addr().unwrap().port());
    let finished = instrument.run([
        "load",
        "--url",
        &url,
        "--model",
        "m",
        "--rate",
        "20",
        "--duration",
        "1s",
        "--timeout",
        "500ms",
        "--json",
        "--no-canary",
    ]);
    // Nothing completed: nothing of the service was measured.
    finished.expect_code(2);
    let summary = summary(&finished.stdout);
    assert_eq!(summary["censored"], summary["scheduled"]);
    assert_eq!(summary["censored_by_kind"]["timeout"], summary["scheduled"]);
    assert_eq!(summary["ttft_ms"]["mean"], Value::Null);
    expect_schema(&summary);
    assert_eq!(summary["out"], Value::Null);
    // Silence is told apart from a slow end, where that is asked.
    let finished = instrument.run([
        "load",
        "--url",
        &url,
        "--model",
        "m",
        "--concurrency",
        "2",
        "--requests",
        "4",
        "--idle-timeout",
        "200ms",
        "--json",
        "--no-canary",
    ]);
    // Nothing completed: nothing of the service was measured.
    finished.expect_code(2);
    assert_eq!(
        self::summary(&finished.stdout)["censored_by_kind"]["idle"],
        4
    );
}

#[test]
fn an_interrupt_leaves_partial_results_that_say_so() {
    let _turn = turn();
    for signal in [Signal::INT, Signal::TERM] {
        let instrument = instrument();
        let port = free_port();
        let _server = mock(&instrument, port, &["--ttft-ms", "20"]);
        let mut load = instrument.start([
            "load",
            "--url",
            &url(port),
            "--rate",
            "40",
            "--duration",
            "10m",
            "--max-tokens",
            "4",
            "--json",
            "--out",
            "out",
        ]);
        let truth = instrument.path("truth.jsonl");
        load.wait_while_it_runs("some requests", || {
            (by_index(&read_truth(&truth), "request_end").len() >= 40).then_some(())
        });
        load.signal(signal);
        let finished = load.finish();
        finished.expect_code(130);
        let summary = summary(&finished.stdout);
        assert_eq!(summary["partial"], true);
        assert!(finished.stderr.contains("PARTIAL"), "{}", finished.stderr);
        let records = requests(&instrument.path("out"));
        // Every request of the schedule has its outcome, also those that were never due.
        assert_eq!(summary["scheduled"], records.len());
        assert!(summary["completed"].as_u64().unwrap() > 0);
        // What was not due yet is in no figure.
        let due = records.len() as u64 - summary["never_due"].as_u64().unwrap();
        let good = summary["good"].as_f64().unwrap();
        assert_eq!(summary["goodput"].as_f64(), Some(good / due as f64));
        assert!(due < 1000, "{due}");
        let offered = summary["offered_rate"].as_f64().unwrap();
        assert!((10.0..160.0).contains(&offered), "{offered}");
    }
}

#[test]
fn a_killed_instrument_leaves_records_that_analyze_reads() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let server = mock(&instrument, port, &["--ttft-ms", "20"]);
    let mut load = instrument.start([
        "load",
        "--url",
        &url(port),
        "--rate",
        "40",
        "--duration",
        "10m",
        "--max-tokens",
        "4",
        "--every-gap",
        "--out",
        "out",
    ]);
    let truth = instrument.path("truth.jsonl");
    load.wait_while_it_runs("some ends", || {
        (by_index(&read_truth(&truth), "request_end").len() >= 80).then_some(())
    });
    // Nobody touches the records of a load that is still running.
    for (args, code) in [
        (&["analyze", "out"][..], 3),
        (&["merge", "out", "--out", "joined"], 2),
    ] {
        let refused = instrument.run(args.iter().copied());
        refused.expect_code(code);
        assert!(
            refused.stderr.contains("still running"),
            "{}",
            refused.stderr
        );
    }
    // What is under way from here on has no record when the instrument dies.
    admin(port, r#"{"mode":"stall"}"#);
    std::thread::sleep(Duration::from_millis(2_500));
    load.signal(Signal::KILL);
    assert_eq!(load.finish().code, None);
    std::fs::create_dir(instrument.path("damaged")).unwrap();
    for file in ["load.json", "events.jsonl", "requests.journal"] {
        let copy = instrument.path("damaged").join(file);
        std::fs::copy(instrument.path("out").join(file), copy).unwrap();
    }
    let finished = instrument.run(["analyze", "out"]);
    finished.expect_code(2);
    assert!(
        finished.stderr.contains("KILLED") && !finished.stderr.contains("DAMAGED"),
        "{}",
        finished.stderr
    );
    let summary = json(&instrument.path("out").join("summary.json"));
    expect_schema(&summary);
    assert_eq!(summary["partial"], true);
    let killed = &summary["killed"];
    assert!(killed["filled_in"].as_u64().unwrap() > 20_000, "{killed}");
    assert!(killed["due"].as_u64().unwrap() > 20, "{killed}");
    assert_eq!(killed["damaged"], false);
    // Whoever looks later is told the same.
    let again = instrument.run(["analyze", "out"]);
    again.expect_code(2);
    let line = |text: &str| {
        let found = text.lines().find(|l| l.starts_with("KILLED"));
        found.map(str::to_owned)
    };
    assert_eq!(line(&again.stderr), line(&finished.stderr));
    assert_eq!(json(&instrument.path("out/summary.json")), summary);
    let verified = instrument.run(["verify", "out"]);
    verified.expect_code(0);
    assert!(
        verified.stderr.contains("KILLED") && verified.stdout.contains("schedule_sha256"),
        "{}\n{}",
        verified.stdout,
        verified.stderr
    );
    // Every request of the schedule has one outcome, also those that the instrument took with it.
    let mut records = requests(&instrument.path("out"));
    records.sort_by_key(|r| r.index);
    assert_eq!(summary["scheduled"], records.len());
    assert!((0_u64..).zip(&records).all(|(k, r)| r.index == k));
    let count = |field: &str| summary[field].as_u64().unwrap();
    let due = count("scheduled") - count("never_due");
    assert!(count("never_due") > 20_000, "{summary}");
    assert!(count("censored") > count("never_due") + 20, "{summary}");
    assert_eq!(
        summary["goodput"].as_f64(),
        Some(count("good") as f64 / due as f64)
    );
    // It is a part like any other.
    instrument
        .run(["merge", "out", "--out", "joined"])
        .expect_code(2);
    assert_eq!(
        json(&instrument.path("joined/summary.json"))["scheduled"],
        summary["scheduled"]
    );
    assert_eq!(
        json(&instrument.path("joined/summary.json"))["killed"],
        summary["killed"]
    );
    // A journal that was damaged behind its writer's back says so.
    let journal = instrument.path("damaged/requests.journal");
    let mut bytes = std::fs::read(&journal).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    std::fs::write(&journal, &bytes).unwrap();
    let finished = instrument.run(["analyze", "damaged"]);
    finished.expect_code(2);
    assert!(finished.stderr.contains("DAMAGED"), "{}", finished.stderr);
    let again = instrument.run(["analyze", "damaged"]);
    assert!(again.stderr.contains("DAMAGED"), "{}", again.stderr);
    let left = json(&instrument.path("damaged/summary.json"));
    assert_eq!(left["killed"]["damaged"], true);
    assert!(left["killed"]["unread_bytes"].as_u64().unwrap() > 0);
    assert!(summary["completed"].as_u64().unwrap() > 0, "{summary}");
    // Every request that is known has all its gaps.
    let gaps = every_gap(&instrument.path("out"));
    for r in requests(&instrument.path("out")) {
        if r.dispatched_ns.is_none() {
            // Filled in: of its answer nothing is known but the gaps.
            continue;
        }
        let own = gaps.get(&r.index).map_or(&[][..], Vec::as_slice);
        assert_eq!(own.len() as u32, r.content_events.saturating_sub(1));
        assert_eq!(own.iter().map(|g| g.gap_ns).max(), r.gap_max_ns, "{r:?}");
    }
    // Damaged records fail as a check does.
    let table = instrument.path("out/requests.parquet");
    let bytes = std::fs::read(&table).unwrap();
    std::fs::write(&table, &bytes[..bytes.len() / 2]).unwrap();
    let finished = instrument.run(["analyze", "out"]);
    finished.expect_code(2);
    assert!(
        finished.stderr.contains("requests.parquet"),
        "{}",
        finished.stderr
    );
    server.signal(Signal::TERM);
    server.finish();
    instrument.expect_nothing_left(GONE_WITHIN);
}

#[test]
fn a_load_over_https() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5", "--itl-ms", "1"]);
    let authority = Authority::new();
    let here = authority.issue(&["127.0.0.1"]);
    let front = TlsFront::start(&here, ([127, 0, 0, 1], port).into(), Farewell::Proper);
    instrument.write("ca.pem", authority.pem());
    let run = |more: &[&str]| {
        let url = front.url();
        let mut args = vec!["load", "--url", &url, "--rate", "40", "--duration", "1s"];
        args.extend(["--max-tokens", "4", "--ignore-eos", "--json"]);
        args.extend(more);
        instrument.run(args)
    };
    // Already the list of models is refused, and so are requests.
    let finished = run(&[]);
    finished.expect_code(5);
    assert!(
        finished.stderr.contains("--ca-file FILE"),
        "{}",
        finished.stderr
    );
    assert!(
        !finished.stderr.contains("is the server up"),
        "it is: {}",
        finished.stderr
    );
    let finished = run(&["--model", "mock-8b"]);
    finished.expect_code(5);
    let figures = summary(&finished.stdout);
    assert_eq!(figures["errored_by_class"]["tls"], figures["scheduled"]);
    let example = figures["error_examples"]["tls"].as_str().unwrap();
    assert!(example.contains("--ca-file FILE"), "{example}");

    let finished = run(&["--ca-file", "ca.pem", "--out", "verified"]);
    finished.expect_code(0);
    let figures = summary(&finished.stdout);
    assert_eq!(figures["completed"], figures["scheduled"]);
    assert_eq!(figures["tls"]["insecure"], false);
    assert!(!finished.stderr.contains("INSECURE"));
    // Where the kernel gives no stamps it says so.
    let lag = &figures["read_lag_us"];
    let line = if lag["not_measured"].is_null() {
        assert_eq!(lag["requests"], figures["completed"]);
        "read lag   p50 "
    } else {
        "read lag   not measured: "
    };
    assert!(finished.stderr.contains(line), "{}", finished.stderr);
    let records = requests(&instrument.path("verified"));
    assert!(records.iter().any(|r| r.connection_reused));
    let spec = json(&instrument.path("verified/load.json"));
    let digest = spec["tls"]["ca_file_sha256"].as_str().unwrap();
    assert_eq!(digest.len(), 64);

    let finished = run(&["--insecure", "--out", "unverified"]);
    finished.expect_code(0);
    let figures = summary(&finished.stdout);
    assert_eq!(figures["completed"], figures["scheduled"]);
    assert_eq!(figures["tls"]["insecure"], true);
    // Before and after.
    assert_eq!(finished.stderr.matches("INSECURE").count(), 2);
    let again = instrument.run(["analyze", "unverified"]);
    again.expect_code(0);
    assert_eq!(again.stderr.matches("INSECURE").count(), 1);
}

/// `SSL_CERT_FILE` in the place of the platform's certificates, with a server's own in it.
#[test]
fn a_certificate_of_its_own_is_trusted_by_the_platforms_variable() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5"]);
    let own = Identity::of_its_own(&["127.0.0.1"]);
    let front = TlsFront::start(&own, ([127, 0, 0, 1], port).into(), Farewell::Proper);
    let run = |pem: &str| {
        let file = instrument.write("platform.pem", pem);
        let url = front.url();
        let mut command = instrument.command([
            "load",
            "--url",
            &url,
            "--rate",
            "20",
            "--duration",
            "500ms",
            "--max-tokens",
            "2",
            "--no-canary",
        ]);
        command
            .env("SSL_CERT_FILE", file)
            .env_remove("SSL_CERT_DIR");
        instrument.start_command(command).finish()
    };
    run(own.pem()).expect_code(0);
    let refused = run(Identity::of_its_own(&["127.0.0.1"]).pem());
    refused.expect_code(5);
    assert!(refused.stderr.contains("--ca-file"), "{}", refused.stderr);
}

#[test]
fn a_terminal_that_shows_only_ascii_gets_nothing_else() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5"]);
    let url = url(port);
    let run = |args: &[&str], locale: &str| {
        let mut command = instrument.command(args);
        command.env("LC_ALL", locale);
        let finished = instrument.start_command(command).finish();
        finished.stdout + &finished.stderr
    };
    let load = ["load", "--url", &url, "--rate", "20", "--duration", "500ms"];
    for args in [
        &load[..],
        &["load", "--help"],
        &["--help"],
        &["load", "--url", &url],
        &["plugin", "list"],
    ] {
        let text = run(args, "C");
        assert!(text.is_ascii(), "{args:?}: {text}");
        assert!(!text.is_empty());
    }
    let text = run(&load, "C.UTF-8");
    assert!(text.contains("µs"), "{text}");
}

#[test]
fn a_key_that_no_header_may_hold_is_refused_and_never_shown() {
    let instrument = instrument();
    let nobody = url(free_port());
    const KEY: &str = "sk-very-secret-0815";
    let run = |option: &str, value: &str, content: &str| {
        let mut command =
            instrument.command(["load", "--url", &nobody, "--rate", "1", option, value]);
        command.env("MY_KEY", content);
        let finished = instrument.start_command(command).finish();
        finished.expect_code(3);
        assert!(!finished.stderr.contains("secret"), "{}", finished.stderr);
        finished.stderr
    };
    let text = run("--api-key-env", "MY_KEY", "sk-very-secret\n0815");
    assert!(
        text.contains("MY_KEY") && text.contains("a line break"),
        "{text}"
    );
    let text = run("--api-key-env", KEY, "");
    assert!(text.contains("not shown"), "{text}");
    instrument.write("key.txt", "sk-very-secret-é");
    let text = run("--api-key-file", "key.txt", "");
    assert!(
        text.contains("key.txt") && text.contains("outside ASCII"),
        "{text}"
    );
}

#[test]
fn what_is_no_load_is_told_from_one() {
    let instrument = instrument();
    std::fs::create_dir_all(instrument.path("empty/part")).unwrap();
    instrument.write("empty/part/load.json", "{}");
    for command in ["analyze", "verify"] {
        let finished = instrument.run([command, "absent"]);
        finished.expect_code(3);
        let finished = instrument.run([command, "empty"]);
        finished.expect_code(3);
        assert!(
            finished.stderr.contains("holds no results")
                && finished
                    .stderr
                    .contains("give one of those in it: empty/part"),
            "{}",
            finished.stderr
        );
    }
    let finished = instrument.run(["analyze", "absent"]);
    assert!(
        finished.stderr.contains("there is no such folder"),
        "{}",
        finished.stderr
    );
}

/// Nothing is announced that is then not done.
#[test]
fn a_load_that_is_refused_is_not_announced() {
    let instrument = instrument();
    let nobody = url(free_port());
    let finished = instrument.run([
        "load",
        "--url",
        &nobody,
        "--model",
        "m",
        "--rate",
        "1",
        "--threads",
        "0",
    ]);
    finished.expect_code(3);
    assert!(
        !finished.stderr.contains("load       "),
        "{}",
        finished.stderr
    );
}

#[test]
fn a_key_is_nowhere_to_be_found() {
    let _turn = turn();
    let instrument = instrument();
    let port = free_port();
    let _server = mock(&instrument, port, &["--ttft-ms", "5"]);
    const KEY: &str = "sk-very-secret-0815";
    let mut command = instrument.command([
        "load",
        "--url",
        &url(port),
        "--rate",
        "20",
        "--duration",
        "1s",
        "--max-tokens",
        "2",
        "--api-key-env",
        "MY_KEY",
        "--json",
        "--out",
        "out",
    ]);
    command.env("MY_KEY", KEY);
    let finished = instrument.start_command(command).finish();
    finished.expect_code(0);
    assert!(!(finished.stdout + &finished.stderr).contains(KEY));
    for entry in std::fs::read_dir(instrument.path("out")).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        assert!(!bytes.windows(KEY.len()).any(|w| w == KEY.as_bytes()));
    }
}

#[test]
fn a_late_refusal_leaves_no_folder() {
    let instrument = instrument();
    let nobody = url(free_port());
    for (option, value) in [
        ("--threads", "0"),
        ("--timeout", "30h"),
        ("--concurrency", "1000000"),
        ("--start-at", "1000"),
    ] {
        let finished = instrument.run([
            "load", "--url", &nobody, "--model", "m", "--rate", "1", option, value, "--out", "out",
        ]);
        finished.expect_code(3);
        assert!(
            !finished.stderr.contains("holds something"),
            "{option}\n{}",
            finished.stderr
        );
        assert!(!instrument.path("out").exists(), "{option}");
    }
}

#[test]
fn mistakes_are_named() {
    let instrument = instrument();
    std::fs::create_dir(instrument.path("full")).unwrap();
    instrument.write("full/thing", "x");
    instrument.write("bad.jsonl", "{\"prompt\":\"a\"}\n{\"prompt\" \"b\"}\n");
    instrument.write("misspelt.jsonl", "{\"prompt\":\"a\",\"max_token\":3}\n");
    let nobody = url(free_port());
    for (args, code, text) in [
        (vec!["--rate", "1"], 3, "--url"),
        (
            vec![
                "--url", &nobody, "--rate", "1", "--model", "m", "--turns", "0",
            ],
            3,
            "choose 1 to 128",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--think-time", "1s"],
            3,
            "give --turns",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--turns",
                "2",
                "--think-time",
                "gamma:1s",
            ],
            3,
            "constant:5s",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--concurrency",
                "1",
                "--turns",
                "2",
                "--think-time",
                "1s",
            ],
            3,
            "no think times",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--turns",
                "2",
                "--endpoint",
                "completions",
            ],
            3,
            "--endpoint chat",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--every-gap"],
            3,
            "--out <DIR>",
        ),
        (
            vec!["--url", &nobody],
            3,
            "give --rate, --concurrency or both",
        ),
        (vec!["--url", &nobody, "--rate", "1"], 5, "refused"),
        (vec!["--url", &nobody, "--rate", "x"], 3, "a ramp 5..50"),
        (
            vec!["--url", &nobody, "--rate", "1", "--arrivals", "gamma"],
            3,
            "gamma:BURSTINESS",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--duration", "1 week"],
            3,
            "is not a duration",
        ),
        (
            vec!["--url", &nobody, "--rate", "1e9", "--model", "m"],
            3,
            "lower the rate",
        ),
        (
            vec!["--url", &nobody, "--rate", "1e9", "--model", "m"],
            3,
            "shorten --duration",
        ),
        (
            vec!["--url", &nobody, "--rate", "0", "--model", "m"],
            3,
            "not a positive number",
        ),
        (
            vec!["--url", &nobody, "--rate", "-5"],
            3,
            "a rate is not negative",
        ),
        (vec!["--url", &nobody, "--rate", "5.."], 3, "two ends"),
        (
            vec!["--url", &nobody, "--rate", "1", "--max-tokens", "0"],
            3,
            "--max-tokens 0: ",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--requests", "0"],
            3,
            "--requests 0 asks for nothing",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--prompt-words", "1"],
            3,
            "--prompt-words 1: 3 words make each prompt its own; choose 3 to",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--timeout", "0s"],
            3,
            "--timeout 0s: choose more than nothing",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--slo-ttft", "0s"],
            3,
            "--slo-ttft 0s: no request could be good",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--start-at",
                "2020-01-31T12:00:00Z",
            ],
            3,
            "--start-at 2020-01-31T12:00:00Z: that was ",
        ),
        (
            vec!["--url", "http://no-such-host.invalid:1", "--rate", "1"],
            5,
            "cannot resolve its host",
        ),
        (
            vec![
                "--url",
                "http://no-such-host.invalid:1",
                "--rate",
                "1",
                "--model",
                "m",
            ],
            5,
            "cannot resolve its host",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--prompt-file",
                "bad.jsonl",
            ],
            3,
            "bad.jsonl: line 2, column 11: expected",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--prompt-file",
                "misspelt.jsonl",
            ],
            3,
            "line 1: unknown key `max_token`; did you mean `max_tokens`?",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--header",
                "x-max-tokens: 3",
            ],
            5,
            "refused",
        ),
        (
            vec!["--url", "http://127.0.0.1:1/v1", "--rate", "1"],
            3,
            "leave `/v1` out",
        ),
        (
            vec![
                "--url",
                "https://127.0.0.1",
                "--rate",
                "1",
                "--ca-file",
                "absent.pem",
            ],
            3,
            "--ca-file absent.pem: ",
        ),
        (
            vec![
                "--url",
                "https://127.0.0.1",
                "--rate",
                "1",
                "--ca-file",
                "full/thing",
            ],
            3,
            "holds no PEM certificate",
        ),
        (
            vec!["--url", &nobody, "--rate", "1", "--insecure"],
            3,
            "--insecure is for an https:// address",
        ),
        (
            vec!["--url", "127.0.0.1:8000", "--rate", "1"],
            3,
            "http://host:port",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "9",
                "--duration",
                "1s",
                "--model",
                "m",
                "--no-canary",
            ],
            5,
            "connect: ",
        ),
        (
            vec!["--url", "ftp://h", "--rate", "1", "--model", "m"],
            3,
            "http://host:port",
        ),
        (
            vec!["--url", &nobody, "--concurrency", "0", "--model", "m"],
            3,
            "choose 1 to",
        ),
        (
            vec![
                "--url", &nobody, "--rate", "1", "--model", "m", "--out", "full",
            ],
            3,
            "holds something already",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--api-key-env",
                "NO_SUCH_VARIABLE",
            ],
            3,
            "NO_SUCH_VARIABLE",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--header",
                "Authorization: Bearer sk-1",
            ],
            3,
            "--api-key-env",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--header",
                "X-Goog-Api-Key: sk-1",
            ],
            3,
            "--api-key-env",
        ),
        (
            vec!["--url", "http://me:sk-1@127.0.0.1:1", "--rate", "1"],
            3,
            "a user name or password",
        ),
        (
            vec!["--url", "https://me:sk-1@127.0.0.1:1", "--rate", "1"],
            3,
            "a user name or password",
        ),
        (
            vec![
                "--url",
                &nobody,
                "--rate",
                "1",
                "--threads",
                "0",
                "--model",
                "m",
            ],
            3,
            "choose 1 to 64",
        ),
    ] {
        let finished = instrument.run(["load"].into_iter().chain(args.iter().copied()));
        assert_eq!(finished.code, Some(code), "{args:?}\n{}", finished.stderr);
        assert!(
            finished.stderr.contains(text),
            "{args:?}\n{}",
            finished.stderr
        );
        assert!(
            !finished.stderr.contains("sk-1"),
            "{args:?}\n{}",
            finished.stderr
        );
    }
    wait_for("nothing left", || {
        instrument.processes().is_empty().then_some(())
    });
}
