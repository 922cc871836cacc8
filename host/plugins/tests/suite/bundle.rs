//! The plugins inside the program, each loaded and asked for what it must answer.

use std::sync::Arc;

use blackstart_plugins::{
    Engine, FaultPlugin, GatePlugin, Grants, MatcherPlugin, Registry, World, bundled, check_config,
};

use crate::support::Recorder;

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
                    let plugin = FaultPlugin::instantiate(&engine, artifact, &wide(), host);
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
