//! Dependencies point one way, as `docs/ARCHITECTURE.md` draws them.

#![allow(clippy::unwrap_used)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Which crates of this workspace each crate may use. A new crate must be given its place here.
const MAY_USE: [(&str, &[&str]); 18] = [
    ("clock", &[]),
    ("plan", &["clock"]),
    ("record", &["clock", "plan"]),
    ("config", &["plan"]),
    ("tls", &[]),
    ("load", &["clock", "plan", "record", "tls"]),
    ("targets", &["clock", "plan", "record"]),
    ("effects", &["clock", "plan", "record", "targets"]),
    ("observe", &["clock", "plan", "record", "tls"]),
    ("plugins", &["clock", "plan", "record"]),
    ("logs", &["record"]),
    ("analyze", &["plan", "record"]),
    ("report", &["plan", "record", "analyze"]),
    ("simulate", &["plan", "record", "analyze"]),
    ("require", &["plan", "record", "analyze", "report"]),
    ("mock", &["clock"]),
    ("testkit", &[]),
    ("xtask", &[]),
];

/// Crates that do input and output over a network, or wait for it.
const NETWORK: &[&str] = &[
    "tokio",
    "mio",
    "socket2",
    "hyper",
    "hyper-util",
    "reqwest",
    "h2",
    "rustls",
    "native-tls",
];

/// What a crate may not reach by any path of normal dependencies, and why.
const NEVER: [(&str, &[&str], &str); 11] = [
    (
        "load",
        &[
            "blackstart-plugins",
            "blackstart-config",
            "blackstart-logs",
            "wasmtime",
        ],
        "the load never sees plugins, logs or the campaign file",
    ),
    ("load", &["reqwest"], "a pooled client retries on its own"),
    ("analyze", NETWORK, "the analysis is pure"),
    (
        "analyze",
        &[
            "blackstart-clock",
            "blackstart-config",
            "blackstart-plugins",
            "rustix",
            "wasmtime",
        ],
        "the analysis has no clock and never sees the campaign file",
    ),
    ("report", NETWORK, "the report knows no network"),
    (
        "report",
        &["blackstart-clock", "blackstart-config", "rustix"],
        "the report computes nothing and has no clock",
    ),
    ("simulate", NETWORK, "a simulation is virtual"),
    (
        "simulate",
        &[
            "blackstart-clock",
            "blackstart-config",
            "rustix",
            "wasmtime",
        ],
        "a simulation has no clock and needs no plugin",
    ),
    ("plan", NETWORK, "the plan is pure"),
    (
        "plan",
        &["rustix", "tempfile", "wasmtime", "blackstart-record"],
        "the plan does nothing",
    ),
    ("config", NETWORK, "a campaign file is text"),
];

/// Words of the standard library that a crate without clock, files to write, or network never says.
const IMPURE: &[&str] = &[
    "Instant::now",
    "SystemTime::now",
    "std::net",
    "std::process",
    "std::thread",
    "std::env::",
];
/// Crates that have none of it.
const PURE: &[&str] = &["plan", "analyze", "report", "require", "simulate", "logs"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

/// Normal dependencies of each crate of the workspace, as cargo reads the manifests.
///
/// Cargo's own JSON, not a crate that reads it: as a dependency it would turn on features of others,
/// and a test build would compile the WebAssembly engine a second time.
fn declared() -> BTreeMap<String, BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version",
            "1",
        ])
        .current_dir(repository())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "cargo metadata: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    packages
        .iter()
        .map(|p| {
            let normal = p["dependencies"]
                .as_array()
                .unwrap()
                .iter()
                // A kind of null is a normal dependency, whatever its target.
                .filter(|d| d["kind"].is_null())
                .map(|d| d["name"].as_str().unwrap().to_owned())
                .collect();
            (p["name"].as_str().unwrap().to_owned(), normal)
        })
        .collect()
}

/// Dependencies of every package outside the workspace, from the lock file: what is really built,
/// without asking a registry.
fn locked() -> BTreeMap<String, BTreeSet<String>> {
    let text = std::fs::read_to_string(repository().join("Cargo.lock")).unwrap();
    let lock: toml::Table = text.parse().unwrap();
    let mut all: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in lock["package"].as_array().unwrap() {
        // Two versions of one package are one here: what either reaches counts.
        let of = all
            .entry(package["name"].as_str().unwrap().to_owned())
            .or_default();
        if let Some(dependencies) = package.get("dependencies") {
            of.extend(
                dependencies
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|d| d.as_str().unwrap().split(' ').next().unwrap().to_owned()),
            );
        }
    }
    all
}

fn short(name: &str) -> &str {
    match name {
        "blackstart" => "cli",
        other => other.strip_prefix("blackstart-").unwrap_or(other),
    }
}

fn full(name: &str) -> String {
    match name {
        "xtask" => name.to_owned(),
        other => format!("blackstart-{other}"),
    }
}

#[test]
fn each_crate_uses_only_what_lies_below_it() {
    let declared = declared();
    let table: BTreeMap<&str, &[&str]> = MAY_USE.into_iter().collect();
    for (name, dependencies) in &declared {
        let own: BTreeSet<&str> = dependencies
            .iter()
            .filter(|d| declared.contains_key(*d))
            .map(|d| short(d))
            .collect();
        if name == "blackstart" {
            for helper in ["testkit", "xtask"] {
                assert!(!own.contains(helper), "the program ships {helper}");
            }
            continue;
        }
        // Benchmarks may look at everything, and nothing looks at them.
        if name.ends_with("benches") {
            continue;
        }
        let allowed = table.get(short(name)).unwrap_or_else(|| {
            panic!("{name} has no place in MAY_USE: give it one, and one in docs/ARCHITECTURE.md")
        });
        for used in own {
            assert!(
                allowed.contains(&used),
                "{name} depends on {used}; it may use {allowed:?}"
            );
        }
    }
    for (name, _) in MAY_USE {
        assert!(
            declared.contains_key(&full(name)),
            "MAY_USE names {name}, which is gone"
        );
    }
}

#[test]
fn no_crate_reaches_what_it_must_never_know() {
    let (declared, locked) = (declared(), locked());
    for (name, never, why) in NEVER {
        let start = full(name);
        // Each package reached, and from where: an error then shows the path.
        let mut from: BTreeMap<String, String> = BTreeMap::new();
        let mut open = vec![start.clone()];
        while let Some(package) = open.pop() {
            let next = declared.get(&package).or_else(|| locked.get(&package));
            for d in next.into_iter().flatten() {
                if *d != start && !from.contains_key(d) {
                    from.insert(d.clone(), package.clone());
                    open.push(d.clone());
                }
            }
        }
        assert!(from.len() > 2, "{name}: dependencies were not read");
        for forbidden in never {
            if from.contains_key(*forbidden) {
                let mut path = vec![(*forbidden).to_owned()];
                while let Some(above) = from.get(path.last().unwrap()) {
                    path.push(above.clone());
                }
                path.reverse();
                panic!("{why}: {}", path.join(" → "));
            }
        }
    }
}

#[test]
fn pure_crates_have_no_clock_no_process_and_no_network() {
    for name in PURE {
        let folder = repository().join("host").join(name).join("src");
        let mut files = 0;
        for path in rust_files(&folder) {
            files += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            // Unit tests stand at the end of a file and may do as they like.
            let code = text.split("#[cfg(test)]").next().unwrap();
            for word in IMPURE {
                let line = code
                    .lines()
                    .position(|l| !l.trim_start().starts_with("//") && l.contains(word));
                assert!(
                    line.is_none(),
                    "{}:{}: `{word}` in a pure crate",
                    path.display(),
                    line.unwrap() + 1
                );
            }
        }
        assert!(files > 0, "{} holds no source", folder.display());
    }
}

#[test]
fn each_host_crate_says_in_one_line_what_it_is_for_and_stands_in_the_overview() {
    let overview = std::fs::read_to_string(repository().join("docs/ARCHITECTURE.md")).unwrap();
    let mut seen = 0;
    for entry in std::fs::read_dir(repository().join("host")).unwrap() {
        let folder = entry.unwrap().path();
        if !folder.join("Cargo.toml").exists() {
            continue;
        }
        seen += 1;
        let name = folder.file_name().unwrap().to_string_lossy().into_owned();
        let root = ["src/lib.rs", "src/main.rs"]
            .iter()
            .map(|f| folder.join(f))
            .find(|f| f.exists())
            .unwrap_or_else(|| panic!("{name} has neither src/lib.rs nor src/main.rs"));
        let text = std::fs::read_to_string(&root).unwrap();
        let mut lines = text.lines();
        let first = lines.next().unwrap_or_default();
        let purpose = first.strip_prefix("//! ").unwrap_or_default();
        assert!(
            purpose.len() > 10,
            "{}:1: no `//!` that says what it is for",
            root.display()
        );
        let second = lines.next().unwrap_or_default();
        assert!(
            !second.starts_with("//! "),
            "{}:2: the purpose takes more than one line",
            root.display()
        );
        assert!(
            overview.contains(&format!("`host/{name}`")),
            "docs/ARCHITECTURE.md does not say where host/{name} belongs"
        );
    }
    assert!(seen >= MAY_USE.len(), "only {seen} crates found in host/");
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|e| e == "rs")
            && path.file_name().is_none_or(|n| n != "tests.rs")
        {
            files.push(path);
        }
    }
    files
}

#[test]
fn the_build_tasks_show_what_cargo_does() {
    let config = repository_file(".cargo/config.toml");
    assert!(
        config.contains("xtask = ") && !config.contains("--quiet") && !config.contains(" -q"),
        "a build of many minutes must show its progress: {config}"
    );
}

fn repository_file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}
