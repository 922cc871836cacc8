//! Finding a compiler and linker for the guest target.
//!
//! The target is `wasm32-unknown-unknown` on every route, so that a component imports what its
//! world grants and nothing else (the WASI targets drag in interfaces that no plugin may have).
//! The linker is `wasm-component-ld`, which comes with every toolchain that has the target: its
//! output already is a component.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::debian;
use crate::process::{is_executable, on_path, output, output_and_status, phase, run, say};

/// The guest target.
pub const TARGET: &str = "wasm32-unknown-unknown";

/// Longest wait for a compiler to say what it is.
const QUESTION_LIMIT: Duration = Duration::from_secs(60);

/// Longest wait for `rustup target add`: a machine that cannot reach the host must not hang.
const RUSTUP_LIMIT: Duration = Duration::from_secs(120);

/// A way to a compiler for the guest target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Route {
    /// The first of the others that works.
    Auto,
    /// The active compiler has the target already.
    Installed,
    /// `rustup target add`.
    Rustup,
    /// Debian's compiler and library sources, unpacked privately.
    Debian,
}

impl Route {
    fn name(self) -> &'static str {
        match self {
            Route::Auto => "auto",
            Route::Installed => "installed",
            Route::Rustup => "rustup",
            Route::Debian => "debian",
        }
    }
}

/// A compiler that can build guests.
#[derive(Debug)]
pub struct Toolchain {
    /// The compiler.
    pub rustc: PathBuf,
    /// Makes components.
    pub component_ld: PathBuf,
    /// Folder with the `wasm-ld` that `component_ld` calls.
    pub wasm_ld_dir: PathBuf,
    /// Folder with shared libraries that the linker needs, if they are not installed.
    pub libraries: Option<PathBuf>,
    /// Names compiler and standard library: cargo does not see it when a library that it did
    /// not build changes, so each has its own build folder.
    pub id: String,
}

/// What a compiler says about itself.
struct Compiler {
    version: String,
    sysroot: PathBuf,
    host: String,
    target_libraries: PathBuf,
}

/// Finds a toolchain, says on stderr which route it took and why not another.
///
/// # Errors
/// No route works; the message has each one's reason.
pub fn find(route: Route) -> Result<Toolchain> {
    let mut refused = Vec::new();
    for candidate in [Route::Installed, Route::Rustup, Route::Debian] {
        if route != Route::Auto && route != candidate {
            refused.push(format!("{}: not asked for", candidate.name()));
            continue;
        }
        let tried = match candidate {
            Route::Rustup => rustup(),
            Route::Debian => {
                debian::toolchain_root().and_then(|root| open(&root.join("rustc"), Some(&root)))
            }
            Route::Installed | Route::Auto => open(&active_rustc(), None),
        };
        match tried {
            Ok((toolchain, version)) => {
                let why = if refused.is_empty() {
                    String::new()
                } else {
                    format!(" ({})", refused.join("; "))
                };
                say(format!("route {}: {version}{why}", candidate.name()));
                return Ok(toolchain);
            }
            Err(error) => refused.push(format!("{}: {error:#}", candidate.name())),
        }
    }
    bail!(
        "no compiler for {TARGET} (route {}):\n  {}\nInstall the target for your compiler \
         (`rustup target add {TARGET}`), or use a Debian system with `apt-get` and run with \
         `--route debian`.",
        route.name(),
        refused.join("\n  ")
    )
}

fn active_rustc() -> PathBuf {
    std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from)
}

fn rustup() -> Result<(Toolchain, String)> {
    on_path("rustup").context("rustup is not on PATH")?;
    phase("rustup target add", || {
        run(
            Command::new("rustup").args(["target", "add", TARGET]),
            RUSTUP_LIMIT,
        )
    })?;
    open(&active_rustc(), None)
}

/// Checks that a compiler has the target's standard library and linker.
fn open(rustc: &Path, debian_root: Option<&Path>) -> Result<(Toolchain, String)> {
    let compiler = ask(rustc)?;
    let id =
        library_id(&compiler).with_context(|| format!("{} has no {TARGET}", compiler.version))?;
    let tools = compiler
        .sysroot
        .join("lib/rustlib")
        .join(&compiler.host)
        .join("bin");
    let component_ld = Some(tools.join("wasm-component-ld"))
        .filter(|file| is_executable(file))
        .or_else(|| on_path("wasm-component-ld"))
        .context("it has no wasm-component-ld (`cargo install wasm-component-ld`)")?;
    let wasm_ld = [
        Some(tools.join("gcc-ld/wasm-ld")),
        debian_root.and_then(debian::wasm_ld),
    ]
    .into_iter()
    .flatten()
    .find(|file| is_executable(file))
    .or_else(|| on_path("wasm-ld"))
    .context("it has no wasm-ld (`apt-get install lld`)")?;
    let toolchain = Toolchain {
        rustc: rustc.to_owned(),
        component_ld,
        wasm_ld_dir: wasm_ld.parent().map(Path::to_owned).unwrap_or_default(),
        libraries: debian_root.and_then(debian::shared_libraries),
        id,
    };
    Ok((toolchain, compiler.version))
}

fn ask(rustc: &Path) -> Result<Compiler> {
    let verbose = output(Command::new(rustc).arg("-vV"), QUESTION_LIMIT)?;
    let version = verbose.lines().next().unwrap_or_default().to_owned();
    let host = verbose
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("`rustc -vV` names no host")?
        .to_owned();
    let mut question = Command::new(rustc);
    question.args([
        "--print",
        "sysroot",
        "--print",
        "target-libdir",
        "--target",
        TARGET,
    ]);
    let (status, paths) = output_and_status(&mut question, QUESTION_LIMIT)?;
    let mut paths = paths.lines().map(PathBuf::from);
    match (paths.next(), paths.next()) {
        (Some(sysroot), Some(target_libraries)) if status.success() => Ok(Compiler {
            version,
            sysroot,
            host,
            target_libraries,
        }),
        _ => bail!("{version} does not know the target {TARGET}"),
    }
}

/// A fingerprint of the target's standard library; `None` if it is not there.
fn library_id(compiler: &Compiler) -> Option<String> {
    let mut libraries = Vec::new();
    for entry in std::fs::read_dir(&compiler.target_libraries).ok()? {
        let entry = entry.ok()?;
        libraries.push((
            entry.file_name().to_string_lossy().into_owned(),
            entry.metadata().ok()?.len(),
        ));
    }
    libraries.sort();
    let has = |name: &str| {
        libraries
            .iter()
            .any(|(file, _)| file.starts_with(&format!("lib{name}-")) && file.ends_with(".rlib"))
    };
    if !has("core") || !has("std") {
        return None;
    }
    let text = format!("{} {libraries:?}", compiler.version);
    Some(format!("{:016x}", fnv1a(text.as_bytes())))
}

/// FNV-1a, 64 bits: a name for a folder, not a defence.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_folder_name_follows_the_known_hash() {
        // Published test vectors of FNV-1a.
        assert_eq!(fnv1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn a_library_is_there_only_with_core_and_std() {
        let dir = std::env::temp_dir().join(format!("xtask-library-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a temporary folder");
        let compiler = |version: &str| Compiler {
            version: version.to_owned(),
            sysroot: PathBuf::new(),
            host: String::new(),
            target_libraries: dir.clone(),
        };
        assert_eq!(library_id(&compiler("1")), None);
        std::fs::write(dir.join("libcore-1.rlib"), "x").expect("written");
        assert_eq!(library_id(&compiler("1")), None);
        std::fs::write(dir.join("libstd-1.rmeta"), "x").expect("written");
        assert_eq!(library_id(&compiler("1")), None);
        std::fs::write(dir.join("libstd-1.rlib"), "x").expect("written");
        let first = library_id(&compiler("1"));
        assert!(first.is_some());
        assert_ne!(first, library_id(&compiler("2")));
        std::fs::write(dir.join("libstd-1.rlib"), "longer").expect("written");
        assert_ne!(first, library_id(&compiler("1")));
        std::fs::remove_dir_all(&dir).expect("removed");
    }

    #[test]
    fn a_compiler_that_is_not_there_is_a_reason_not_a_panic() {
        let error = open(Path::new("/nonexistent/rustc"), None).expect_err("nothing is there");
        assert!(
            format!("{error:#}").contains("/nonexistent/rustc"),
            "{error:#}"
        );
    }
}
