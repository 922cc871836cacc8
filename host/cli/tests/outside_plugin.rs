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

/// The code blocks of plugins/README.md that belong to the file named before them, or the last one.
fn readme_block(kind: &str, contains: &str) -> String {
    let readme = std::fs::read_to_string(repository().join("plugins/README.md")).unwrap();
    let fence = format!("```{kind}\n");
    let blocks: Vec<&str> = readme
        .split(&fence)
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .filter(|block| block.contains(contains))
        .collect();
    assert_eq!(blocks.len(), 1, "{kind} blocks with {contains:?}");
    blocks[0].to_owned()
}

#[test]
fn the_plugin_of_the_readme_builds_and_arms() {
    let instrument = common::instrument();
    let krate = instrument.path("pause");
    std::fs::create_dir_all(krate.join("src")).unwrap();
    let manifest = readme_block("toml", "crate-type");
    let sdk = repository().join("plugins/sdk");
    let moved = manifest.replace("../blackstart/plugins/sdk", sdk.to_str().unwrap());
    assert_ne!(moved, manifest, "the page names the SDK otherwise");
    std::fs::write(krate.join("Cargo.toml"), moved).unwrap();
    std::fs::write(krate.join("src/lib.rs"), readme_block("rust", "register!")).unwrap();
    // Where the page's campaign lines look for it: beside the campaign file.
    if build(&krate, &instrument.path("pause.wasm")).is_none() {
        return;
    }
    let mut campaign = CampaignText::new("readme", free_port());
    campaign.fault = readme_block("toml", "[fault]");
    let dry = |text: &str| {
        let file = instrument.write("campaign.toml", text);
        instrument.run(["run", file.to_str().unwrap(), "--dry-run"])
    };
    let finished = dry(&campaign.text());
    finished.expect_code(0);
    assert!(
        finished.stdout.contains("pause: r0 stopped for 2000 ms"),
        "{}",
        finished.stdout
    );

    // Its table is held to its schema, and its effects to the run.
    let wrong = dry(&campaign
        .text()
        .replace("duration_ms = 2000", "duration = 2000"));
    wrong.expect_code(3);
    assert!(
        wrong.stderr.contains("unknown key `duration`")
            && wrong.stderr.contains("did you mean `duration_ms`?"),
        "{}",
        wrong.stderr
    );
    let long = dry(&campaign
        .text()
        .replace("duration_ms = 2000", "duration_ms = 60000"));
    long.expect_code(4);
    assert!(
        long.stderr.contains("campaign.toml:") && long.stderr.contains("`phases.fault_window`"),
        "{}",
        long.stderr
    );
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
