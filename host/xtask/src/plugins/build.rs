//! One cargo invocation for all guests, and what comes out of it.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;

use super::toolchain::{TARGET, Toolchain};
use crate::process::{check, output_and_status};

/// One profile for every component, wherever its crate is. It is not in the guests' manifests:
/// there it would slow down their native tests, and each author would have to repeat it.
const PROFILE: [(&str, &str); 5] = [
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "3"),
    ("CARGO_PROFILE_RELEASE_LTO", "true"),
    ("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1"),
    ("CARGO_PROFILE_RELEASE_PANIC", "abort"),
    ("CARGO_PROFILE_RELEASE_STRIP", "true"),
];

/// Longest wait for the guests to build (a minute on two idle cores, from nothing).
const BUILD_LIMIT: Duration = Duration::from_secs(3600);

/// First bytes of every component: magic, version 13, layer 1.
const COMPONENT_PREAMBLE: [u8; 8] = *b"\0asm\x0d\0\x01\0";

/// Custom section in which the SDK stamps name and version.
const STAMP_SECTION: &[u8] = b"blackstart-plugin";

/// What to build with, and where.
pub struct Job<'a> {
    /// Compiler and linker.
    pub toolchain: &'a Toolchain,
    /// The repository's root.
    pub repository: &'a Path,
    /// The host workspace's target folder.
    pub target_dir: &'a Path,
}

/// A component that was written, or that was there already.
pub struct Component {
    /// Where it is.
    pub file: PathBuf,
    /// Its size.
    pub bytes: u64,
    /// Whether it differs from what was there.
    pub changed: bool,
}

/// A guest's `cdylib` as cargo reports it.
#[derive(Debug, PartialEq)]
struct Artifact {
    package: String,
    file: PathBuf,
}

impl Job<'_> {
    /// Builds every `cdylib` of the guest workspace to `DIR/<package>.wasm`.
    ///
    /// # Errors
    /// A guest that does not build or makes no stamped component.
    pub fn all_plugins(&self, dir: &Path) -> Result<Vec<Component>> {
        let workspace = self.repository.join("plugins");
        let artifacts = self.cargo(&workspace, &["build", "--workspace"], &[])?;
        ensure!(
            !artifacts.is_empty(),
            "no crate in {} is a cdylib",
            workspace.display()
        );
        let dir = std::path::absolute(dir)?;
        artifacts
            .iter()
            .map(|artifact| publish(artifact, &dir.join(format!("{}.wasm", artifact.package))))
            .collect()
    }

    /// Builds one crate, which may be outside the repository, to a file.
    ///
    /// # Errors
    /// The crate does not build, or is not exactly one plugin.
    pub fn one_crate(&self, krate: &Path, out: &Path) -> Result<Component> {
        let krate = krate
            .canonicalize()
            .with_context(|| format!("there is no crate at {}", krate.display()))?;
        ensure!(
            krate.join("Cargo.toml").is_file(),
            "there is no Cargo.toml in {}",
            krate.display()
        );
        self.lend_lock_file(&krate)?;
        // For this crate alone: flags for all would build every dependency once more.
        let own = [remap(&krate, "/guest")];
        let artifacts = self.cargo(&krate, &["rustc", "--lib"], &own)?;
        match artifacts.as_slice() {
            [artifact] => publish(artifact, &std::path::absolute(out)?),
            [] => bail!(
                "{} is no plugin: its Cargo.toml needs `[lib]` with `crate-type = [\"cdylib\"]`",
                krate.display()
            ),
            many => bail!(
                "{} are {} plugins: name the folder of one",
                krate.display(),
                many.len()
            ),
        }
    }

    /// A crate without a lock file starts with that of the bundled plugins: the same versions,
    /// which are already fetched and built. Cargo drops the entries it does not need.
    fn lend_lock_file(&self, krate: &Path) -> Result<()> {
        let theirs = krate.join("Cargo.lock");
        let ours = self.repository.join("plugins/Cargo.lock");
        let manifest = fs::read_to_string(krate.join("Cargo.toml"))?;
        // A member of someone else's workspace has its lock file elsewhere.
        let own_workspace = manifest
            .lines()
            .any(|line| line.trim_start().starts_with("[workspace"));
        if own_workspace && !theirs.exists() && ours.exists() {
            fs::copy(&ours, &theirs)
                .with_context(|| format!("cannot write {}", theirs.display()))?;
        }
        Ok(())
    }

    fn cargo(&self, dir: &Path, what: &[&str], own: &[String]) -> Result<Vec<Artifact>> {
        let mut command = cargo();
        command
            .args(what)
            .args(["--release", "--target", TARGET])
            .arg("--message-format=json-render-diagnostics")
            .current_dir(dir)
            .stdout(Stdio::piped())
            .envs(PROFILE)
            .env("RUSTC", &self.toolchain.rustc)
            .env("CARGO_TARGET_DIR", self.build_dir())
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags()?)
            // Not in the flags: the linker's place must not reach the symbol names.
            .env(
                "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER",
                &self.toolchain.component_ld,
            )
            .env(
                "PATH",
                prepended("PATH", Some(&self.toolchain.wasm_ld_dir))?,
            );
        if self.toolchain.libraries.is_some() {
            let libraries = prepended("LD_LIBRARY_PATH", self.toolchain.libraries.as_deref())?;
            command.env("LD_LIBRARY_PATH", libraries);
        }
        if !own.is_empty() {
            command.arg("--").args(own);
        }
        let (status, messages) = output_and_status(&mut command, BUILD_LIMIT)?;
        check(&command, status)
            .with_context(|| format!("the guests in {} do not build", dir.display()))?;
        artifacts(&messages)
    }

    fn build_dir(&self) -> PathBuf {
        self.target_dir
            .join("plugins-build")
            .join(&self.toolchain.id)
    }

    /// Flags for the guests alone: with `--target`, build scripts and macros do not get them.
    fn flags(&self) -> Result<String> {
        let flags = [
            "-Ctarget-feature=+simd128".to_owned(),
            "-Clinker-flavor=wasm-ld".to_owned(),
            // The same bytes wherever the repository and cargo's folder are.
            remap(&cargo_registry()?, "/cargo"),
            remap(self.repository, "/blackstart"),
        ];
        Ok(flags.join("\x1f"))
    }
}

/// A flag for rustc: a path that must not be in the component, and what stands there instead.
pub fn remap(from: &Path, to: &str) -> String {
    format!("--remap-path-prefix={}={to}", from.display())
}

/// Cargo, free of what was meant for the host's own build.
pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for host_only in ["RUSTFLAGS", "CARGO_BUILD_TARGET", "CARGO_BUILD_RUSTFLAGS"] {
        command.env_remove(host_only);
    }
    command
}

/// Where cargo unpacks sources of the registry.
///
/// # Errors
/// Neither `CARGO_HOME` nor `HOME` is set.
pub fn cargo_registry() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let home = set("CARGO_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cargo")))
        .context("neither CARGO_HOME nor HOME is set")?;
    Ok(std::path::absolute(home)?.join("registry/src"))
}

fn prepended(variable: &str, first: Option<&Path>) -> Result<std::ffi::OsString> {
    let old = std::env::var_os(variable).unwrap_or_default();
    let old = std::env::split_paths(&old).filter(|p| !p.as_os_str().is_empty());
    let all = first.map(Path::to_owned).into_iter().chain(old);
    std::env::join_paths(all)
        .with_context(|| format!("a folder for {variable} has a `:` in its name"))
}

/// The `cdylib`s among cargo's messages, in a fixed order.
fn artifacts(messages: &str) -> Result<Vec<Artifact>> {
    #[derive(Deserialize)]
    struct Message {
        reason: String,
        package_id: Option<String>,
        target: Option<Target>,
        #[serde(default)]
        filenames: Vec<PathBuf>,
    }
    #[derive(Deserialize)]
    struct Target {
        crate_types: Vec<String>,
    }
    let mut found = Vec::new();
    for line in messages.lines().filter(|line| line.starts_with('{')) {
        let message: Message =
            serde_json::from_str(line).context("cargo's message is not as expected")?;
        let (Some(id), Some(target)) = (message.package_id, message.target) else {
            continue;
        };
        if message.reason != "compiler-artifact"
            || !target.crate_types.iter().any(|t| t == "cdylib")
        {
            continue;
        }
        let package = package_name(&id)
            .with_context(|| format!("a package without a name: {id}"))?
            .to_owned();
        let wasm = message
            .filenames
            .into_iter()
            .find(|f| f.extension().is_some_and(|e| e == "wasm"));
        let file = wasm.with_context(|| format!("{package} made no .wasm file"))?;
        found.push(Artifact { package, file });
    }
    found.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(found)
}

/// `path+file:///x/y#name@1.0.0`, or `path+file:///x/name#1.0.0` where the folder has the
/// package's name.
fn package_name(id: &str) -> Option<&str> {
    let (source, fragment) = id.rsplit_once('#')?;
    match fragment.split_once('@') {
        Some((name, _)) => Some(name),
        None => source.trim_end_matches('/').rsplit('/').next(),
    }
    .filter(|name| !name.is_empty())
}

/// Checks a component and lays it at `to` in one step, so that no reader sees half of it. What
/// has not changed is not touched.
fn publish(artifact: &Artifact, to: &Path) -> Result<Component> {
    let bytes = fs::read(&artifact.file)
        .with_context(|| format!("cannot read {}", artifact.file.display()))?;
    let package = &artifact.package;
    ensure!(
        bytes.starts_with(&COMPONENT_PREAMBLE),
        "{package} became no component: does the crate call `blackstart_sdk::register!`, and is its \
         linker wasm-component-ld?"
    );
    ensure!(
        bytes
            .windows(STAMP_SECTION.len())
            .any(|window| window == STAMP_SECTION),
        "{package} carries no identity stamp: register the plugin with `blackstart_sdk::register!`"
    );
    let changed = fs::read(to).map_or(true, |there| there != bytes);
    if changed {
        write_at_once(to, &bytes).with_context(|| format!("cannot write {}", to.display()))?;
    }
    Ok(Component {
        file: to.to_owned(),
        bytes: bytes.len() as u64,
        changed,
    })
}

fn write_at_once(to: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = to.parent() {
        fs::create_dir_all(dir)?;
    }
    let mut part = to.as_os_str().to_owned();
    part.push(format!(".{}.part", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(&part, to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_names_are_read_from_both_forms_of_id() {
        assert_eq!(
            package_name("path+file:///w/plugins/fault-kill#process-kill@0.1.0"),
            Some("process-kill")
        );
        assert_eq!(
            package_name("path+file:///w/plugins/gate-queue#0.1.0"),
            Some("gate-queue")
        );
        assert_eq!(package_name("process-kill 0.1.0"), None);
    }

    #[test]
    fn only_cdylibs_are_plugins_and_their_order_is_fixed() {
        let artifact = |name: &str, kind: &str| {
            format!(
                r#"{{"reason":"compiler-artifact","package_id":"path+file:///w/{name}#0.1.0","target":{{"crate_types":["{kind}"]}},"filenames":["/t/{name}.wasm"]}}"#
            )
        };
        let messages = [
            artifact("b", "cdylib"),
            artifact("sdk", "lib"),
            "a stray line".to_owned(),
            artifact("a", "cdylib"),
            r#"{"reason":"build-finished","success":true}"#.to_owned(),
        ];
        let found = artifacts(&messages.join("\n")).expect("they are read");
        let names: Vec<_> = found.iter().map(|a| a.package.as_str()).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(artifacts(r#"{"reason":1}"#).is_err());
    }

    #[test]
    fn only_a_stamped_component_is_published_and_only_when_it_changed() {
        let dir = std::env::temp_dir().join(format!("xtask-publish-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a temporary folder");
        let artifact = Artifact {
            package: "p".to_owned(),
            file: dir.join("in.wasm"),
        };
        let out = dir.join("deep/er/p.wasm");
        let attempt = |bytes: &[u8]| {
            fs::write(&artifact.file, bytes).expect("written");
            publish(&artifact, &out)
        };
        // A core module, a component without a stamp, something else.
        assert!(attempt(b"\0asm\x01\0\0\0blackstart-plugin").is_err());
        assert!(attempt(b"\0asm\x0d\0\x01\0").is_err());
        assert!(attempt(b"").is_err());
        assert!(!out.exists());
        let good = b"\0asm\x0d\0\x01\0..blackstart-plugin{}";
        assert!(attempt(good).expect("published").changed);
        assert!(!attempt(good).expect("published").changed);
        assert_eq!(fs::read(&out).expect("it is there"), good);
        fs::remove_dir_all(&dir).expect("removed");
    }
}
