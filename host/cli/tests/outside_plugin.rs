//! A fault of somebody else's: a crate outside the repository, built by one command, used by its path, with the host untouched.

#![allow(clippy::unwrap_used)]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use blackstart_record::EventKind;
use blackstart_testkit::{CampaignText, Instrument, free_port};
use sha2::{Digest, Sha256};

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// The target folder that this test was built in.
fn target_folder() -> PathBuf {
    let exe = Path::new(env!("CARGO_BIN_EXE_blackstart"));
    exe.ancestors().nth(2).unwrap().to_owned()
}

/// The fixture's crate, copied to a folder outside the repository.
fn crate_outside(instrument: &Instrument) -> PathBuf {
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/stutter");
    let to = instrument.path("stutter");
    assert!(!to.starts_with(repository()), "{}", to.display());
    std::fs::create_dir_all(to.join("src")).unwrap();
    let manifest = std::fs::read_to_string(from.join("Cargo.toml")).unwrap();
    let sdk = repository().join("plugins/sdk");
    let moved = manifest.replace("../../../../../plugins/sdk", sdk.to_str().unwrap());
    assert_ne!(moved, manifest, "the fixture names the SDK otherwise");
    std::fs::write(to.join("Cargo.toml"), moved).unwrap();
    std::fs::copy(from.join("src/lib.rs"), to.join("src/lib.rs")).unwrap();
    to
}

/// Builds it with the documented command. `None` = this machine has no guest toolchain.
fn build(krate: &Path, out: &Path) -> Option<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["xtask", "plugins", "--crate"])
        .arg(krate)
        .arg("--out")
        .arg(out)
        .current_dir(repository())
        // Where this test was built the guests' dependencies are built too. Cargo gives the folder's
        // lock back before it runs a test.
        .env("CARGO_TARGET_DIR", target_folder())
        .output()
        .unwrap();
    if output.status.success() {
        return Some(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let Some(at) = stderr.find("no compiler for wasm32-unknown-unknown") else {
        panic!("the guest does not build:\n{stderr}");
    };
    let why = stderr[at..].lines().next().unwrap_or_default();
    println!("skipped: outside_plugin: {why}");
    None
}

fn campaign(path: &Path, more: &str, grant: &str) -> CampaignText {
    let mut campaign = CampaignText::new("outside", free_port());
    campaign.fault = format!(
        "[fault]\nvariant = \"stutter\"\npath = {path:?}\nvictims = [\"r0\"]\n{more}\n[fault.config]\npauses = 3\neach_ms = 700\n\n[fault.grant]\n{grant}\n"
    );
    campaign
}

#[test]
fn a_fault_from_outside_runs_without_rebuilding_the_host() {
    let instrument = common::instrument();
    let host_before = std::fs::read(env!("CARGO_BIN_EXE_blackstart")).unwrap();
    let component = instrument.path("stutter.wasm");
    if build(&crate_outside(&instrument), &component).is_none() {
        return;
    }
    let digest = hex::encode(Sha256::digest(std::fs::read(&component).unwrap()));
    let granted = "process = [\"r0\"]";

    // No bypass: it gets nothing that is not granted, and only the bytes that are pinned run.
    let refused = common::run(&instrument, &campaign(&component, "", ""));
    refused.expect_code(4);
    assert!(
        refused.stderr.contains("effect-process"),
        "{}",
        refused.stderr
    );
    let other = "0".repeat(64);
    let pinned = campaign(&component, &format!("sha256 = \"{other}\"\n"), granted);
    let refused = common::run(&instrument, &pinned);
    refused.expect_code(4);
    assert!(refused.stderr.contains(&digest), "{}", refused.stderr);
    assert!(!instrument.path("results").exists());

    let _turn = common::turn();
    let pinned = campaign(&component, &format!("sha256 = \"{digest}\"\n"), granted);
    let finished = common::run(&instrument, &pinned);
    finished.expect_code(0);
    let results = finished.results();
    let analysis = common::analysis(&results, 1);
    assert_eq!(
        analysis["fault"]["proof"], "happened",
        "{}",
        analysis["fault"]
    );
    assert_eq!(analysis["fault"]["statement"], "3 pauses of 700 ms");
    let steps = |wanted: &str| {
        common::events(&results, 1)
            .into_iter()
            .filter(|e| matches!(&e.kind, EventKind::Effect(s) if s.step == wanted))
            .count()
    };
    assert_eq!(
        (steps("started"), steps("undone"), steps("failed")),
        (3, 3, 0)
    );
    // The load saw it: streams stood still.
    let longest = common::requests(&results, 1)
        .iter()
        .filter_map(|r| r.gap_max_ns)
        .max();
    assert!(
        longest > Some(500_000_000),
        "no stream stood still: {longest:?}"
    );

    let manifest = common::json(&results.join("manifest.json"));
    let identity = &manifest["plugins"]["stutter"];
    assert_eq!(identity["sha256"], digest);
    assert_eq!(identity["version"], "1.2.3");
    assert_eq!(identity["origin"], component.to_str().unwrap());
    let host_after = std::fs::read(env!("CARGO_BIN_EXE_blackstart")).unwrap();
    assert!(host_before == host_after, "the host was rebuilt");
}
