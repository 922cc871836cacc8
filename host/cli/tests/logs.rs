//! `blackstart logs --json`: every recorded log, as scripts read it.

#![allow(clippy::unwrap_used)]

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use blackstart_testkit::{Finished, Instrument};
use serde_json::Value;

fn instrument() -> Instrument {
    Instrument::new(env!("CARGO_BIN_EXE_blackstart"))
}

fn fixtures() -> Vec<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/match-vllm-core/tests/logs");
    let mut logs: Vec<PathBuf> = std::fs::read_dir(&folder)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "log"))
        .collect();
    logs.sort();
    assert!(
        logs.len() >= 16,
        "{} logs in {}",
        logs.len(),
        folder.display()
    );
    logs
}

fn fixture(name: &str) -> PathBuf {
    fixtures()
        .into_iter()
        .find(|p| p.file_name().unwrap() == name)
        .unwrap()
}

fn rows(finished: &Finished) -> Vec<Value> {
    finished.expect_code(0);
    finished
        .stdout
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect()
}

fn logs(instrument: &Instrument, file: &str) -> Vec<Value> {
    rows(&instrument.run(["logs", "--json", file]))
}

/// Figures that the contract names.
const FIGURES: [&str; 12] = [
    "weights_loaded_s",
    "model_loaded_gib",
    "model_loaded_s",
    "torch_compile_s",
    "graph_capture_s",
    "graph_capture_gib",
    "init_engine_s",
    "init_engine_compilation_s",
    "kv_cache_tokens",
    "kv_cache_gib",
    "max_concurrency",
    "weight_download_s",
];

#[test]
fn every_recorded_log_gives_its_boundaries_and_no_other() {
    let instrument = instrument();
    let mut boundaries = 0;
    for path in fixtures() {
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        std::fs::copy(&path, instrument.path(&name)).unwrap();
        let expected: Vec<Value> = std::fs::read_to_string(path.with_extension("expected.jsonl"))
            .unwrap()
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        let found = logs(&instrument, &name);
        assert_eq!(found.len(), expected.len(), "{name}: {found:#?}");
        for (found, expected) in found.iter().zip(&expected) {
            // A matcher counts lines from 0, people from 1.
            assert_eq!(
                found["line"].as_u64(),
                expected["line"].as_u64().map(|l| l + 1),
                "{name}: {found}"
            );
            for same in ["key", "process", "fields"] {
                assert_eq!(found[same], expected[same], "{name}: {found}");
            }
            let measures: BTreeMap<String, f64> = expected["measures"]
                .as_array()
                .unwrap()
                .iter()
                .map(|m| (m[0].as_str().unwrap().to_owned(), m[1].as_f64().unwrap()))
                .collect();
            let of: BTreeMap<String, f64> =
                serde_json::from_value(found["measures"].clone()).unwrap();
            assert_eq!(of, measures, "{name}: {found}");
            boundaries += 1;
        }
    }
    assert!(boundaries > 200, "only {boundaries} boundaries compared");
}

#[test]
fn each_row_keeps_the_contract() {
    let instrument = instrument();
    for path in fixtures() {
        let file = path.to_str().unwrap();
        let mut last = (0, 0);
        for row in logs(&instrument, file) {
            let keys: Vec<&str> = row
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            let mut sorted = [
                "file", "line", "life", "key", "process", "at", "stamp", "measures", "fields",
            ];
            sorted.sort_unstable();
            let mut keys_sorted = keys.clone();
            keys_sorted.sort_unstable();
            assert_eq!(keys_sorted, sorted, "{row}");
            assert_eq!(row["file"], file);
            let at = (row["life"].as_u64().unwrap(), row["line"].as_u64().unwrap());
            assert!(at >= last && at.0 >= 1 && at.1 >= 1, "out of order: {row}");
            last = at;
            let stamp = row["stamp"].as_str().unwrap();
            assert!(
                ["docker", "kubernetes", "line", "none"].contains(&stamp),
                "{row}"
            );
            match row["at"].as_str() {
                Some(at) => {
                    let parsed: jiff::Timestamp =
                        at.parse().unwrap_or_else(|e| panic!("{at}: {e}"));
                    assert!(parsed.as_second() > 1_700_000_000, "{row}");
                    assert_ne!(stamp, "none", "{row}");
                }
                None => assert_eq!(stamp, "none", "an unstamped instant has no clock: {row}"),
            }
            for name in row["measures"].as_object().unwrap().keys() {
                assert!(
                    FIGURES.contains(&name.as_str()),
                    "{name} is no figure of the contract: {row}"
                );
            }
            if row["key"] == "banner" {
                assert!(
                    row["fields"]["version"]
                        .as_str()
                        .is_some_and(|v| v.starts_with("0.")),
                    "{row}"
                );
            }
        }
    }
}

fn without_file(rows: Vec<Value>) -> Vec<Value> {
    rows.into_iter()
        .map(|mut r| {
            r.as_object_mut().unwrap().remove("file");
            r
        })
        .collect()
}

#[test]
fn compressed_logs_and_standard_input_read_like_the_plain_file() {
    let instrument = instrument();
    let text = std::fs::read(fixture("real-0.32.0-cpu-served.log")).unwrap();
    // A line's own clock has no year, so the file's age must be the same for all.
    let modified = std::time::SystemTime::now();
    let aged = |name: &str, bytes: &[u8]| {
        let path = instrument.write(name, bytes);
        std::fs::File::options()
            .append(true)
            .open(path)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    };
    aged("plain.log", &text);
    let plain = without_file(logs(&instrument, "plain.log"));
    assert!(plain.len() > 10);

    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(&text).unwrap();
    aged("log.gz", &gzip.finish().unwrap());
    aged("log.zst", &zstd::encode_all(&text[..], 3).unwrap());
    for name in ["log.gz", "log.zst"] {
        assert_eq!(without_file(logs(&instrument, name)), plain, "{name}");
    }

    let mut command = instrument.command(["logs", "--json", "-"]);
    command.stdin(Stdio::from(
        std::fs::File::open(instrument.path("log.gz")).unwrap(),
    ));
    let piped = rows(&instrument.start_command(command).finish());
    assert!(piped.iter().all(|r| r["file"] == "-"), "{piped:?}");
    assert_eq!(without_file(piped), plain);
}

#[test]
fn a_container_runtimes_stamps_are_the_clock() {
    let instrument = instrument();
    let text = std::fs::read_to_string(fixture("real-0.32.0-cpu-served.log")).unwrap();
    let bare = without_file(logs(
        &instrument,
        instrument.write("bare.log", &text).to_str().unwrap(),
    ));
    // As `docker logs --timestamps` prints: one stamp a line, here one millisecond apart.
    let start: jiff::Timestamp = "2026-05-01T10:00:00Z".parse().unwrap();
    let stamped: String = text
        .split_inclusive('\n')
        .enumerate()
        .map(|(i, line)| {
            let at = start + jiff::SignedDuration::from_millis(i64::try_from(i).unwrap());
            format!("{at:.9} {line}")
        })
        .collect();
    let rows = without_file(logs(
        &instrument,
        instrument.write("docker.log", stamped).to_str().unwrap(),
    ));
    assert_eq!(rows.len(), bare.len());
    for (row, bare) in rows.iter().zip(&bare) {
        assert_eq!(row["stamp"], "docker", "{row}");
        let line = i64::try_from(row["line"].as_u64().unwrap()).unwrap();
        let expected = start + jiff::SignedDuration::from_millis(line - 1);
        assert_eq!(
            row["at"]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .unwrap(),
            expected,
            "{row}"
        );
        for same in ["line", "life", "key", "process", "measures", "fields"] {
            assert_eq!(row[same], bare[same]);
        }
    }
}

#[test]
fn a_file_that_is_no_log_is_refused_by_name_and_the_others_are_read() {
    let instrument = instrument();
    instrument.write("noise.log", "lorem ipsum\ndolor sit amet\n");
    let good = fixture("real-0.32.0-cpu-served.log");
    let finished = instrument.run(["logs", "--json", "noise.log", good.to_str().unwrap()]);
    assert_ne!(finished.code, Some(0), "an unread file is no success");
    assert!(
        finished.stderr.contains("error: noise.log: no log matcher"),
        "{}",
        finished.stderr
    );
    assert!(
        finished.stdout.contains("\"banner\""),
        "the other file was not read"
    );
    let missing = instrument.run(["logs", "--json", "missing.log"]);
    missing.expect_code(3);
    assert!(missing.stderr.contains("missing.log"), "{}", missing.stderr);
}

#[test]
fn a_log_of_endless_starts_is_read_in_bounded_memory_and_says_what_is_left_out() {
    let instrument = instrument();
    let served = std::fs::read_to_string(fixture("real-0.32.0-cpu-served.log")).unwrap();
    let banner = rows(&instrument.run([
        "logs",
        "--json",
        fixture("real-0.32.0-cpu-served.log").to_str().unwrap(),
    ]))
    .iter()
    .find(|r| r["key"] == "banner")
    .unwrap()["line"]
        .as_u64()
        .unwrap();
    let line = served
        .lines()
        .nth(usize::try_from(banner).unwrap() - 1)
        .unwrap();
    const STARTS: u32 = 400_000;
    instrument.write("loop.log", format!("{line}\n").repeat(STARTS as usize));
    let finished = instrument.run(["logs", "loop.log"]);
    finished.expect_code(0);
    assert!(
        finished
            .stderr
            .contains("warning: loop.log: too many boundaries to keep"),
        "{}",
        finished.stderr
    );
    for says in [
        "\n  start 1 ".to_owned(),
        format!("\n  start {STARTS} "),
        "boundaries left out, from line".to_owned(),
        format!("{STARTS} lines, {STARTS} matched"),
    ] {
        assert!(finished.stdout.contains(&says), "no {says:?}");
    }
    assert!(finished.stdout.lines().count() < 2_000_000);
}

#[test]
fn stamps_before_the_lines_are_not_said_to_be_a_container_runtimes() {
    let instrument = instrument();
    let text = std::fs::read_to_string(fixture("real-0.32.0-cpu-served.log")).unwrap();
    let stamped: String = text
        .lines()
        .map(|line| format!("2026-05-01T10:00:00.000000001Z {line}\n"))
        .collect();
    instrument.write("server-r0.log", stamped);
    let finished = instrument.run(["logs", "server-r0.log"]);
    finished.expect_code(0);
    assert!(
        finished.stdout.contains("· the stamps before the lines")
            && !finished.stdout.contains("container"),
        "{}",
        finished.stdout
    );
}
