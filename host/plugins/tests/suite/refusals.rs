//! Files that are not accepted: each with one clear line and a mend.

use blackstart_plugins::{
    Artifact, FaultPlugin, GatePlugin, Grants, MatcherPlugin, PluginError, Refusal, World,
};
use std::sync::Arc;

use crate::support::{
    Guest, IMPORT_SCALAR, Recorder, append_section, engine, requesting, signalling,
};

/// The reason why these bytes are refused.
fn refused(bytes: Vec<u8>) -> (PluginError, Refusal) {
    reason(Artifact::from_bytes("x.wasm", bytes).unwrap_err())
}

fn reason(error: PluginError) -> (PluginError, Refusal) {
    let line = error.to_string();
    assert!(!line.contains('\n'), "{line}");
    assert!(!error.help().is_empty() && !error.help().contains('\n'));
    match &error {
        PluginError::Refused { reason, .. } => {
            let reason = (**reason).clone();
            (error, reason)
        }
        other => panic!("{other:?}"),
    }
}

fn stamp(name: &str, api: &str, world: &str) -> String {
    format!(r#"{{"name":"{name}","version":"1.2.3","api":"{api}","world":"{world}"}}"#)
}

#[test]
fn bytes_that_are_no_component() {
    assert_eq!(refused(vec![]).1, Refusal::NotWasm);
    assert_eq!(refused(b"MZ\x90\0".to_vec()).1, Refusal::NotWasm);
    assert_eq!(
        refused(wat::parse_str("(module)").unwrap()).1,
        Refusal::CoreModule
    );
    assert_eq!(
        refused(wat::parse_str("(component)").unwrap()).1,
        Refusal::NoStamp
    );
    let good = Guest::fault("good").build();
    for cut in [9, 20, good.len() / 2, good.len() - 1] {
        let (error, reason) = refused(good[..cut].to_vec());
        assert!(matches!(reason, Refusal::Malformed(_)), "{cut}: {error}");
    }
}

#[test]
fn damaged_components_are_refused_or_run_as_well_as_any_guest_does() {
    let good = Guest::fault("good").build();
    let engine = engine();
    // Every seventh byte: the whole would take minutes.
    for at in (8..good.len()).step_by(7) {
        let mut bad = good.clone();
        bad[at] ^= 0x55;
        if let Ok(artifact) = Artifact::from_bytes("x.wasm", bad) {
            let _ = FaultPlugin::instantiate(
                &engine,
                &artifact,
                &Grants::none(),
                Arc::new(Recorder::default()),
            );
        }
    }
    let artifact = Guest::fault("good").artifact();
    FaultPlugin::instantiate(
        &engine,
        &artifact,
        &Grants::none(),
        Arc::new(Recorder::default()),
    )
    .unwrap();
}

#[test]
fn a_stamp_that_is_missing_or_wrong() {
    let (error, reason) = refused(Guest::fault("a").stamped(None).build());
    assert_eq!(reason, Refusal::NoStamp);
    assert!(error.help().contains("register!"));
    let (_, reason) = refused(Guest::fault("a").stamped(Some("{")).build());
    assert!(matches!(reason, Refusal::BadStamp(_)));
    let other = stamp("b", "0.1.0", "fault-variant");
    let mut twice = Guest::fault("a").stamped(None).build();
    append_section(&mut twice, "blackstart-plugin", other.as_bytes());
    append_section(&mut twice, "blackstart-plugin", b"{}");
    assert!(matches!(refused(twice).1, Refusal::BadStamp(_)));
}

#[test]
fn the_components_own_stamp_goes_before_a_modules() {
    let mut bytes = Guest::fault("inner").build();
    let outer = stamp("outer", "0.1.0", "fault-variant");
    append_section(&mut bytes, "blackstart-plugin", outer.as_bytes());
    let artifact = Artifact::from_bytes("x.wasm", bytes).unwrap();
    assert_eq!(artifact.label().name, "outer");
}

#[test]
fn another_api() {
    let (error, reason) = refused(Guest::fault("a").api("0.2.0").build());
    assert!(matches!(reason, Refusal::NewerApi { .. }));
    assert_eq!(
        error.to_string(),
        "x.wasm: plugin a 1.2.3 needs plugin API 0.2.0; this host has 0.1.0"
    );
    assert!(error.help().contains("newer blackstart"));
    let old = stamp("a", "0.0.9", "fault-variant");
    let (_, reason) = refused(Guest::fault("a").stamped(Some(&old)).build());
    assert!(matches!(reason, Refusal::OlderApi { .. }));
}

#[test]
fn another_world_than_the_stamp_or_the_place_says() {
    let lying = stamp("a", "0.1.0", "validity-gate");
    let (error, reason) = refused(Guest::fault("a").stamped(Some(&lying)).build());
    assert!(matches!(reason, Refusal::WorldMismatch { .. }));
    assert!(error.to_string().contains("validity-gate") && error.to_string().contains("fault"));

    let mut none = wat::parse_str("(component)").unwrap();
    append_section(&mut none, "blackstart-plugin", lying.as_bytes());
    assert!(matches!(refused(none).1, Refusal::NoWorld { .. }));

    let engine = engine();
    let gate = Guest::gate("g").artifact();
    let error = MatcherPlugin::instantiate(&engine, &gate).err().unwrap();
    assert_eq!(
        error.to_string(),
        "test.wasm: plugin g 1.2.3 is a validity-gate; a log-matcher is needed here"
    );
}

#[test]
fn imports_that_no_host_has_or_that_the_world_never_gets() {
    let stamp = stamp("a", "0.1.0", "fault-variant");
    for (import, expected) in [
        ("wasi:cli/environment@0.2.0", "unknown"),
        ("blackstart:plugin/effect-kubernetes@0.1.0", "unknown"),
        ("blackstart:plugin/log@0.2.0", "unknown"),
        ("blackstart:plugin/evidence@0.1.0", "not in world"),
    ] {
        let text = format!(
            r#"(component
                (import "{import}" (instance))
                (instance $i)
                (export "blackstart:plugin/fault@0.1.0" (instance $i)))"#
        );
        let mut bytes = wat::parse_str(&text).unwrap();
        append_section(&mut bytes, "blackstart-plugin", stamp.as_bytes());
        let (error, reason) = refused(bytes);
        match expected {
            "unknown" => assert!(matches!(reason, Refusal::UnknownImport { .. }), "{error}"),
            _ => assert!(matches!(reason, Refusal::NotInWorld { .. }), "{error}"),
        }
        assert!(error.to_string().contains(import), "{error}");
        if import.starts_with("wasi:") {
            assert!(error.help().contains("wasm32-unknown-unknown"));
        }
    }
}

#[test]
fn an_interface_that_is_not_granted() {
    let engine = engine();
    let start = |guest: &Guest, grants: &Grants| {
        FaultPlugin::instantiate(
            &engine,
            &guest.artifact(),
            grants,
            Arc::new(Recorder::default()),
        )
        .map(drop)
    };
    let process = Grants::new(vec!["vllm-*".into()], vec![]).unwrap();
    let http = Grants::new(vec![], vec!["http://127.0.0.1:9000/admin/*".into()]).unwrap();
    let signals = signalling("s", "vllm-0", "api", 1, None);
    let requests = requesting("r", "http://127.0.0.1:9000/admin/x", ("a", "b"), None, None);
    for (guest, others, interface, line) in [
        (
            &signals,
            [&Grants::none(), &http],
            "effect-process",
            "[fault.grant] process = [",
        ),
        (
            &requests,
            [&Grants::none(), &process],
            "effect-http",
            "[fault.grant] http = [",
        ),
    ] {
        for grants in others {
            let (error, reason) = reason(start(guest, grants).unwrap_err());
            assert!(matches!(reason, Refusal::NotGranted { .. }), "{error}");
            assert!(error.to_string().contains(interface), "{error}");
            assert!(error.help().contains(line), "{}", error.help());
        }
    }
    start(&signals, &process).unwrap();
    start(&requests, &http).unwrap();
}

#[test]
fn a_component_whose_interfaces_have_other_types() {
    let engine = engine();
    let stamp = stamp("a", "0.1.0", "validity-gate");
    let mut bytes = wat::parse_str(
        r#"(component
            (instance $i)
            (export "blackstart:plugin/gate@0.1.0" (instance $i)))"#,
    )
    .unwrap();
    append_section(&mut bytes, "blackstart-plugin", stamp.as_bytes());
    let artifact = Artifact::from_bytes("x.wasm", bytes).unwrap();
    let (error, refusal) = reason(GatePlugin::instantiate(&engine, &artifact).err().unwrap());
    assert!(matches!(refusal, Refusal::Link { .. }), "{error}");
}

#[test]
fn a_manifest_that_lies() {
    let engine = engine();
    let lying = stamp("honest", "0.1.0", "validity-gate");
    let artifact = Guest::gate("other").stamped(Some(&lying)).artifact();
    let error = GatePlugin::instantiate(&engine, &artifact).err().unwrap();
    assert_eq!(
        error.to_string(),
        "test.wasm: plugin honest 1.2.3 calls itself other 1.2.3 in `describe`"
    );
}

#[test]
fn files() {
    let tmp = tempfile::tempdir().unwrap();
    let missing = Artifact::from_path(&tmp.path().join("none.wasm")).unwrap_err();
    let (error, refusal) = reason(missing);
    assert!(matches!(refusal, Refusal::Unreadable(_)));
    assert!(error.to_string().contains("none.wasm"));
    let folder = Artifact::from_path(tmp.path()).unwrap_err();
    assert!(matches!(reason(folder).1, Refusal::Unreadable(_)));

    let large = tmp.path().join("large.wasm");
    let file = std::fs::File::create(&large).unwrap();
    file.set_len(blackstart_plugins::limits::MAX_ARTIFACT_BYTES + 1)
        .unwrap();
    let error = Artifact::from_path(&large).unwrap_err();
    assert!(matches!(reason(error).1, Refusal::TooLarge { .. }));

    let path = tmp.path().join("good.wasm");
    std::fs::write(&path, Guest::gate("good").build()).unwrap();
    let artifact = Artifact::from_path(&path).unwrap();
    assert_eq!(artifact.world(), World::ValidityGate);
    assert_eq!(artifact.origin(), path.to_str().unwrap());
    let pin = artifact.sha256_hex();
    artifact.check_pin(&pin.to_uppercase()).unwrap();
    let (error, refusal) = reason(artifact.check_pin(&"0".repeat(64)).unwrap_err());
    assert!(matches!(refusal, Refusal::PinMismatch { .. }));
    assert!(error.to_string().contains(&pin));
}

#[test]
fn a_component_of_fifty_megabytes_is_read_like_any_other() {
    let mut bytes = Guest::gate("heavy").build();
    append_section(&mut bytes, "ballast", &vec![0; 50 << 20]);
    let artifact = Artifact::from_bytes("x.wasm", bytes).unwrap();
    GatePlugin::instantiate(&engine(), &artifact).unwrap();
}

#[test]
fn imports_are_listed() {
    let mut guest = Guest::gate("g");
    guest.import(IMPORT_SCALAR);
    let guest = guest.with(
        "evaluate",
        "(call $scalar (i32.const 0) (i32.const 0) (i32.const 0)) unreachable",
    );
    let artifact = guest.artifact();
    assert!(artifact.imports_interface("evidence"));
    assert!(!artifact.imports_interface("log"));
    assert!(
        artifact
            .imports()
            .contains(&"blackstart:plugin/evidence@0.1.0".to_owned())
    );
}
