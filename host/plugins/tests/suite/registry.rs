//! Where plugins are found, and by which name.

use std::fs;

use blackstart_plugins::{PluginError, Registry, World};

use crate::support::Guest;

#[test]
fn plugins_are_found_in_folders_and_files_by_name() {
    let tmp = tempfile::tempdir().unwrap();
    let folder = tmp.path().join("plugins");
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("b.wasm"), Guest::gate("zeta").build()).unwrap();
    fs::write(folder.join("a.wasm"), Guest::fault("alpha").build()).unwrap();
    fs::write(folder.join("notes.txt"), b"not a plugin").unwrap();
    fs::write(folder.join("broken.wasm"), b"not a plugin").unwrap();
    let single = tmp.path().join("single.wasm");
    fs::write(&single, Guest::matcher("mid").build()).unwrap();

    let mut registry = Registry::empty();
    registry.add_folder(&folder).unwrap();
    let added = registry.add_file(&single, None).unwrap();
    assert_eq!(added.label().name, "mid");
    let names: Vec<&str> = registry
        .list()
        .iter()
        .map(|p| p.label().name.as_str())
        .collect();
    assert_eq!(names, ["alpha", "mid", "zeta"]);
    assert_eq!(
        registry
            .get("zeta", World::ValidityGate)
            .unwrap()
            .label()
            .version,
        "1.2.3"
    );

    // The same file twice is one plugin.
    registry.add_folder(&folder).unwrap();
    registry
        .add_file(&single, Some(&added.sha256_hex()))
        .unwrap();
    assert_eq!(registry.list().len(), 3);

    assert_eq!(registry.broken().len(), 1);
    let error = registry.get("omega", World::ValidityGate).unwrap_err();
    assert_eq!(error.help(), "known: zeta");
    let line = error.to_string();
    assert!(
        line.contains("`omega`") && line.contains("broken.wasm"),
        "{line}"
    );
    let error = registry.get("alpha", World::ValidityGate).unwrap_err();
    assert!(error.to_string().contains("is a fault-variant"), "{error}");
}

#[test]
fn two_plugins_of_one_name_are_an_error_that_names_both() {
    let tmp = tempfile::tempdir().unwrap();
    for name in ["one.wasm", "two.wasm"] {
        fs::write(tmp.path().join(name), Guest::gate("same").build()).unwrap();
    }
    let error = Registry::empty().add_folder(tmp.path()).unwrap_err();
    assert!(matches!(error, PluginError::Duplicate { .. }));
    let line = error.to_string();
    assert!(
        line.contains("`same`") && line.contains("one.wasm") && line.contains("two.wasm"),
        "{line}"
    );
}

#[test]
fn a_file_that_is_pinned_otherwise_is_not_added() {
    let tmp = tempfile::tempdir().unwrap();
    let path = tmp.path().join("g.wasm");
    fs::write(&path, Guest::gate("g").build()).unwrap();
    let mut registry = Registry::empty();
    assert!(registry.add_file(&path, Some("00")).is_err());
    assert!(registry.list().is_empty());
}

#[test]
fn a_folder_that_is_missing_is_an_error() {
    let error = Registry::empty()
        .add_folder("/nowhere/at/all".as_ref())
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/at/all"), "{error}");
}
