//! The plugins inside the program, each loaded and asked for what it must answer.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use blackstart_plugins::text::escape;
use blackstart_plugins::{
    ArmContext, Artifact, Boundary, EffectAction, Engine, FaultPlugin, GatePlugin, Grants,
    GuestError, MatcherPlugin, PluginError, REPLICA_GRANTS, Registry, Signal, Verdict, World,
    bundled, check_config, decode_line,
};
use serde_json::{Value, json};

use crate::support::{Facts, Recorder, engine};

/// Says by name that a test did not run; `true` when there is something to test.
fn have_bundle(test: &str) -> bool {
    if bundled().is_empty() {
        eprintln!(
            "skipped: {test}: no plugins are bundled; run `cargo xtask plugins` and build again"
        );
        return false;
    }
    true
}

fn wide() -> Grants {
    Grants::new(vec!["*".into()], vec!["http://127.0.0.1:9000/*".into()]).unwrap()
}

#[test]
fn every_bundled_plugin_loads_and_agrees_with_its_stamp() {
    if !have_bundle("every_bundled_plugin_loads_and_agrees_with_its_stamp") {
        return;
    }
    let tmp = tempfile::tempdir().unwrap();
    let registry = Registry::with_bundled().unwrap();
    assert_eq!(registry.list().len(), bundled().len());
    // Twice: compiled, and from the cache.
    for _ in 0..2 {
        let engine = Engine::builder()
            .cache(tmp.path().join("cache"))
            .build()
            .unwrap();
        for artifact in registry.list() {
            let info = match artifact.world() {
                World::FaultVariant => {
                    let host = Arc::new(Recorder::default());
                    let all = REPLICA_GRANTS.into_iter().fold(wide(), |grants, which| {
                        grants.with(which, vec!["*".into()]).unwrap()
                    });
                    let plugin = FaultPlugin::instantiate(&engine, artifact, &all, host);
                    plugin.unwrap().describe().plugin.clone()
                }
                World::LogMatcher => {
                    let plugin = MatcherPlugin::instantiate(&engine, artifact);
                    plugin.unwrap().describe().plugin.clone()
                }
                World::ValidityGate => {
                    let plugin = GatePlugin::instantiate(&engine, artifact);
                    plugin.unwrap().describe().plugin.clone()
                }
            };
            assert_eq!(info.name, artifact.label().name);
            // Its schema is usable, whatever it says of an odd table.
            check_config(&info, &serde_json::json!({"no-such-key": [1]})).unwrap();
        }
    }
}

/// The bundled plugin of this name, or a line that says why the test did not run.
fn named(test: &str, name: &str, world: World) -> Option<Artifact> {
    if !have_bundle(test) {
        return None;
    }
    let registry = Registry::with_bundled().unwrap();
    match registry.get(name, world) {
        Ok(artifact) => Some(artifact.clone()),
        Err(error) => {
            eprintln!("skipped: {test}: {error}");
            None
        }
    }
}

fn context(config: &str) -> ArmContext {
    ArmContext {
        config: config.into(),
        seed: 1,
        fire_at_ns: 1_000_000_000,
        expire_at_ns: 2_000_000_000,
        run_end_ns: 3_000_000_000,
        victims: vec!["vllm-0".into()],
    }
}

#[test]
fn process_kill_schedules_one_signal_and_nothing_that_is_not_granted() {
    let test = "process_kill_schedules_one_signal_and_nothing_that_is_not_granted";
    let Some(artifact) = named(test, "process-kill", World::FaultVariant) else {
        return;
    };
    let engine = engine();
    let host = Arc::new(Recorder::default());
    let mut fault = FaultPlugin::instantiate(&engine, &artifact, &wide(), host.clone()).unwrap();
    let armed = fault.arm(&context(r#"{"process":"engine"}"#)).unwrap();
    assert_eq!(armed.victims, ["vllm-0"]);
    let effects = host.effects.lock().unwrap();
    assert_eq!(effects.len(), 1);
    assert_eq!(effects[0].at_ns, 1_000_000_000);
    assert_eq!(
        effects[0].action,
        EffectAction::Signal {
            replica: "vllm-0".into(),
            process_role: "engine".into(),
            signal: Signal::Kill,
        }
    );

    let error = fault.arm(&context(r#"{"process":"no-such"}"#)).unwrap_err();
    let PluginError::Guest { error, .. } = &error else {
        panic!("{error}");
    };
    assert!(matches!(error, GuestError::InvalidConfig(_)), "{error}");

    let refused = FaultPlugin::instantiate(
        &engine,
        &artifact,
        &Grants::none(),
        Arc::new(Recorder::default()),
    );
    let error = refused.err().unwrap();
    assert!(error.to_string().contains("effect-process"), "{error}");
    assert!(error.help().contains("[fault.grant] process = ["));

    let narrow = Grants::new(vec!["vllm-1".into()], vec![]).unwrap();
    let host = Arc::new(Recorder::default());
    let mut fault = FaultPlugin::instantiate(&engine, &artifact, &narrow, host.clone()).unwrap();
    let error = fault.arm(&context(r#"{"process":"engine"}"#)).unwrap_err();
    assert!(error.to_string().contains("not granted"), "{error}");
    assert_eq!(host.effects.lock().unwrap().len(), 0);
}

#[test]
fn mock_fault_schedules_a_request_and_its_undoing() {
    let test = "mock_fault_schedules_a_request_and_its_undoing";
    let Some(artifact) = named(test, "mock-fault", World::FaultVariant) else {
        return;
    };
    let host = Arc::new(Recorder::default());
    let mut fault = FaultPlugin::instantiate(&engine(), &artifact, &wide(), host.clone()).unwrap();
    fault.arm(&context(r#"{"mode":"stall"}"#)).unwrap();
    let effects = host.effects.lock().unwrap();
    assert_eq!(effects.len(), 1);
    assert!(effects[0].until_ns.is_some());
    assert!(matches!(
        &effects[0].action,
        EffectAction::Http { request, on_expiry: Some(_) } if request.url.starts_with("http://127.0.0.1:9000/")
    ));
}

#[test]
fn a_gate_without_its_evidence_does_not_pass() {
    let test = "a_gate_without_its_evidence_does_not_pass";
    if !have_bundle(test) {
        return;
    }
    let engine = engine();
    for artifact in Registry::with_bundled()
        .unwrap()
        .of_world(World::ValidityGate)
    {
        let mut gate = GatePlugin::instantiate(&engine, artifact).unwrap();
        let finding = gate.evaluate("{}", Facts::new(0)).unwrap();
        assert_ne!(finding.verdict, Verdict::Pass, "{}", artifact.label());
    }
}

#[test]
fn the_vllm_matcher_finds_in_the_component_what_it_finds_natively() {
    let test = "the_vllm_matcher_finds_in_the_component_what_it_finds_natively";
    let Some(artifact) = named(test, "vllm", World::LogMatcher) else {
        return;
    };
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../plugins/match-vllm-core/tests/logs");
    let mut matcher = MatcherPlugin::instantiate(&engine(), &artifact).unwrap();
    let mut logs = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "log") {
            continue;
        }
        logs += 1;
        let log = fs::read(&path).unwrap();
        let log = log.strip_suffix(b"\n").unwrap_or(&log);
        let mut found = Vec::new();
        let lines = log.split(|&b| b == b'\n').map(decode_line);
        matcher
            .scan("vllm-0", "{}", lines, |b| found.push(as_json(&b)))
            .unwrap();
        let expected = fs::read_to_string(path.with_extension("expected.jsonl")).unwrap();
        let expected: Vec<Value> = expected
            .lines()
            .map(|line| escaped(serde_json::from_str(line).unwrap()))
            .collect();
        assert_eq!(found, expected, "{}", path.display());
    }
    assert!(logs > 0);
}

fn as_json(b: &Boundary) -> Value {
    let fields: serde_json::Map<String, Value> = b
        .fields
        .iter()
        .map(|f| (f.key.clone(), f.value.clone().into()))
        .collect();
    let measures: Vec<Value> = b
        .measures
        .iter()
        .map(|m| json!([m.name, m.value, m.unit]))
        .collect();
    json!({
        "line": b.line, "key": b.key, "process": b.process, "stamp": b.stamp,
        "measures": measures, "fields": fields,
    })
}

/// Texts as the host hands them on: without control characters.
fn escaped(value: Value) -> Value {
    match value {
        Value::String(text) => escape(&text).into_owned().into(),
        Value::Array(items) => items.into_iter().map(escaped).collect(),
        Value::Object(map) => map.into_iter().map(|(k, v)| (k, escaped(v))).collect(),
        other => other,
    }
}
