//! Guests built for other releases of the interfaces.

use std::sync::Arc;

use blackstart_plugins::{
    Artifact, FaultPlugin, GatePlugin, Grants, MatcherPlugin, PluginError, Refusal, Verdict,
};

use crate::support::{Facts, Guest, IMPORT_SCALAR, Recorder, append_section, engine, words};

#[test]
fn a_guest_of_a_later_release_of_the_same_line_links() {
    let engine = engine();
    let mut guest = Guest::gate("later");
    guest.import(IMPORT_SCALAR);
    let at = guest.put(&[0; 64]);
    let finding = guest.put(&words(&[0, 0, 0, 0, 0, 0]));
    let body = format!(
        "(call $scalar (i32.const 0) (i32.const 0) (i32.const {at})) (i32.const {finding})"
    );
    let artifact = guest.with("evaluate", &body).api("0.1.7").artifact();
    assert_eq!(artifact.api().to_string(), "0.1.7");
    assert!(artifact.imports_interface("evidence"));
    let mut gate = GatePlugin::instantiate(&engine, &artifact).unwrap();
    let finding = gate.evaluate("{}", Facts::new(0)).unwrap();
    assert_eq!(finding.verdict, Verdict::Pass);

    let fault = Guest::fault("later").api("0.1.7").artifact();
    let host = Arc::new(Recorder::default());
    FaultPlugin::instantiate(&engine, &fault, &Grants::none(), host).unwrap();
    let matcher = Guest::matcher("later").api("0.1.7").artifact();
    let mut matcher = MatcherPlugin::instantiate(&engine, &matcher).unwrap();
    let fed = matcher.scan("vllm-0", "{}", ["a", "R"], |_| {}).unwrap();
    assert_eq!(fed, 2);
}

#[test]
fn an_import_that_only_a_later_release_has_is_laid_to_the_release() {
    let stamp = r#"{"name":"a","version":"1.0.0","api":"0.1.4","world":"fault-variant"}"#;
    let mut bytes = wat::parse_str(
        r#"(component
            (import "blackstart:plugin/effect-kubernetes@0.1.4" (instance))
            (instance $i)
            (export "blackstart:plugin/fault@0.1.4" (instance $i)))"#,
    )
    .unwrap();
    append_section(&mut bytes, "blackstart-plugin", stamp.as_bytes());
    let error = Artifact::from_bytes("x.wasm", bytes).unwrap_err();
    let PluginError::Refused { reason, .. } = &error else {
        panic!("{error:?}");
    };
    assert!(matches!(**reason, Refusal::NewerApi { .. }), "{error}");
}
