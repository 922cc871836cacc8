//! Recorded and synthetic logs against expectations written by hand: every boundary
//! with its line, process, stamp, figures and fields, and no other.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use blackstart_match_vllm::{Boundary, Session};
use serde_json::Value;

fn logs() -> Vec<(String, String, Vec<Value>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/logs");
    let mut cases = Vec::new();
    for entry in fs::read_dir(folder).expect("tests/logs exists") {
        let path = entry.expect("readable entry").path();
        if path.extension().is_none_or(|extension| extension != "log") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("readable log");
        let expected = fs::read_to_string(path.with_extension("expected.jsonl"))
            .unwrap_or_else(|error| panic!("{}: no expectations: {error}", path.display()));
        let expected = expected
            .lines()
            .map(|line| serde_json::from_str(line).expect("valid expectation"))
            .collect();
        let name = path
            .file_name()
            .expect("a file")
            .to_string_lossy()
            .into_owned();
        cases.push((name, text, expected));
    }
    cases.sort_by(|a: &(String, _, _), b| a.0.cmp(&b.0));
    cases
}

fn read(text: &str) -> Vec<Boundary> {
    let mut session = Session::new();
    let mut found = session.feed(text.strip_suffix('\n').unwrap_or(text));
    found.extend(session.finish());
    found
}

fn to_json(boundary: &Boundary) -> Value {
    let fields: BTreeMap<_, _> = boundary
        .fields
        .iter()
        .map(|field| (field.key, field.value.as_str()))
        .collect();
    assert_eq!(fields.len(), boundary.fields.len(), "a field comes once");
    let measures: Vec<_> = boundary
        .measures
        .iter()
        .map(|measure| serde_json::json!([measure.name, measure.value, measure.unit]))
        .collect();
    serde_json::json!({
        "line": boundary.line, "key": boundary.key, "process": boundary.process,
        "stamp": boundary.stamp, "measures": measures, "fields": fields,
    })
}

#[test]
fn every_boundary_and_no_other() {
    let cases = logs();
    assert_eq!(cases.len(), 16, "a log is missing");
    for (name, text, expected) in cases {
        let found: Vec<_> = read(&text).iter().map(to_json).collect();
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found, expected, "{name}");
        }
        assert_eq!(found.len(), expected.len(), "{name}: {found:#?}");
    }
}

/// Constants of the formats, searched in the raw text apart from the rules: each line
/// with one is a boundary of that key, unless the line is listed as a decoy.
#[test]
fn complete_by_independent_search() {
    const CONSTANTS: [(&str, &str); 22] = [
        ("vLLM API server version ", "banner"),
        ("vLLM server version ", "banner"),
        ("Initializing a V1 LLM engine", "engine_init"),
        ("Starting to load model", "model_load_start"),
        ("Loading model from scratch", "model_load_start"),
        ("Loading weights took", "weights_loaded"),
        ("Model loading took", "model_loaded"),
        ("torch.compile took", "torch_compile"),
        ("KV cache size:", "kv_cache"),
        ("Maximum concurrency for", "kv_cache"),
        ("Graph capturing finished", "graph_capture"),
        ("init engine (profile", "engine_ready"),
        ("Starting vLLM", "server_start"),
        ("Application startup complete", "startup_complete"),
        ("Shutting down", "shutdown"),
        ("Application shutdown complete", "shutdown"),
        ("[shutdown]", "shutdown"),
        ("engine core exited unexpectedly", "failure.engine_dead"),
        ("died unexpectedly", "failure.engine_dead"),
        ("EngineDeadError: ", "failure.engine_dead"),
        ("output_handler failed", "failure.engine_dead"),
        ("failed to start", "failure.engine_start"),
    ];
    let mut seen = 0;
    for (name, text, _) in logs() {
        let found = read(&text);
        for (line, raw) in text.split('\n').enumerate() {
            for (constant, key) in CONSTANTS {
                if !raw.contains(constant) {
                    continue;
                }
                let also_failure = constant == "[shutdown]" && raw.contains("unexpectedly");
                let key = if also_failure {
                    "failure.engine_dead"
                } else {
                    key
                };
                seen += 1;
                assert!(
                    found.iter().any(|b| b.line == line as u64 && b.key == key),
                    "{name}:{} has no {key}: {raw}",
                    line + 1
                );
            }
        }
    }
    // The count of `grep -o` over the same files and constants.
    assert_eq!(seen, EXPECTED_CONSTANTS);
}

const EXPECTED_CONSTANTS: usize = 208;

#[test]
fn figures_of_the_published_run() {
    let text = fs::read_to_string(
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/logs/published-0.29.0-gpu.log"),
    )
    .expect("readable log");
    // With the container runtime's stamp and, as the host hands it on, without.
    let bare: String = text
        .lines()
        .map(|line| format!("{}\n", line.split_once(' ').expect("a stamp").1))
        .collect();
    for text in [text, bare] {
        let figures: BTreeMap<_, _> = read(&text)
            .iter()
            .flat_map(|boundary| boundary.measures.clone())
            .map(|measure| (measure.name, measure.value))
            .collect();
        let published = BTreeMap::from([
            ("graph_capture_gib", 0.52),
            ("graph_capture_s", 5.0),
            ("init_engine_compilation_s", 0.19),
            ("init_engine_s", 8.28),
            ("model_loaded_gib", 14.29),
            ("model_loaded_s", 4.823372),
            ("torch_compile_s", 0.19),
            ("weights_loaded_s", 2.8),
        ]);
        assert_eq!(figures, published);
    }
}

#[test]
fn probe_names_the_release() {
    for (name, text, expected) in logs() {
        let version = expected
            .iter()
            .find_map(|boundary| boundary["fields"]["version"].as_str());
        let probe = blackstart_match_vllm::probe(&text);
        assert_eq!(probe.version.as_deref(), version, "{name}");
        assert_eq!(probe.confidence, 100, "{name}");
    }
}
