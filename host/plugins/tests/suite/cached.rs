//! Compiled components on disk, through the engine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use blackstart_plugins::{Engine, GatePlugin, Verdict};

use crate::support::{Facts, Guest};

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    files
}

fn works(folder: &Path) {
    let engine = Engine::builder().cache(folder).build().unwrap();
    let mut gate = GatePlugin::instantiate(&engine, &Guest::gate("g").artifact()).unwrap();
    let finding = gate.evaluate("{}", Facts::new(0)).unwrap();
    assert_eq!(finding.verdict, Verdict::Pass);
}

#[test]
fn compiled_code_is_kept_and_taken_again() {
    let tmp = tempfile::tempdir().unwrap();
    let folder = tmp.path().join("cache");
    works(&folder);
    let kept = files(&folder);
    assert_eq!(kept.len(), 1);
    let name = kept[0].file_name().unwrap().to_str().unwrap().to_owned();
    assert!(
        name.starts_with(&Guest::gate("g").artifact().sha256_hex()),
        "{name}"
    );
    let written = fs::metadata(&kept[0]).unwrap().modified().unwrap();
    works(&folder);
    assert_eq!(files(&folder), kept);
    assert_eq!(fs::metadata(&kept[0]).unwrap().modified().unwrap(), written);
}

#[test]
fn damaged_code_is_compiled_again_and_replaced() {
    let tmp = tempfile::tempdir().unwrap();
    let folder = tmp.path().join("cache");
    works(&folder);
    let file = files(&folder).remove(0);
    let good = fs::read(&file).unwrap();
    for spoil in [
        |bytes: &mut Vec<u8>| bytes.truncate(100),
        |bytes: &mut Vec<u8>| bytes.clear(),
        |bytes: &mut Vec<u8>| *bytes.last_mut().unwrap() ^= 1,
        |bytes: &mut Vec<u8>| bytes[60] ^= 1,
    ] {
        let mut bad = good.clone();
        spoil(&mut bad);
        fs::write(&file, &bad).unwrap();
        works(&folder);
        assert_eq!(fs::read(&file).unwrap(), good);
    }
}

#[test]
fn a_folder_that_cannot_be_trusted_is_left_alone() {
    let tmp = tempfile::tempdir().unwrap();
    let open = tmp.path().join("open");
    fs::create_dir(&open).unwrap();
    fs::set_permissions(&open, PermissionsExt::from_mode(0o777)).unwrap();
    works(&open);
    assert_eq!(files(&open), Vec::<PathBuf>::new());
    let engine = Engine::builder().cache(&open).build().unwrap();
    assert_eq!(engine.cache_folder(), None);

    let file = tmp.path().join("file");
    fs::write(&file, b"x").unwrap();
    works(&file);
    assert_eq!(fs::read(&file).unwrap(), b"x");
}
