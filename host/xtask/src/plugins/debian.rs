//! A guest toolchain from Debian packages, for machines that have the package mirror but not
//! Rust's own download host.
//!
//! Debian's `rustc-web` and the library sources of the very same version are unpacked (not
//! installed) into a private folder, and the standard library is built once with `-Zbuild-std`.
//! All of it happens in `debian.part`, under a lock; the rename to `debian` makes it valid. An
//! interruption at any point leaves nothing that a later run would trust.

use std::fs::{self, File, TryLockError};
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::build::{cargo, cargo_registry, remap};
use super::toolchain::TARGET;
use crate::process::{check, on_path, output, output_and_status, phase, run, say, spawn, wait};

/// Longest wait for another process that makes the same toolchain.
const LOCK_LIMIT: Duration = Duration::from_secs(1800);
/// How often the lock is tried.
const LOCK_POLL: Duration = Duration::from_millis(200);
/// Longest wait for a question to apt.
const QUESTION_LIMIT: Duration = Duration::from_secs(120);
/// Longest wait for a download (0.2 GB in all).
const FETCH_LIMIT: Duration = Duration::from_secs(900);
/// Longest wait for a package to be unpacked.
const UNPACK_LIMIT: Duration = Duration::from_secs(600);
/// Longest wait for the standard library to be built (half a minute on two idle cores).
const STD_LIMIT: Duration = Duration::from_secs(1800);

/// A compiler that finds its libraries by itself, so that neither cargo nor build scripts need
/// a word about it. `readlink` lets the folder be moved.
const RUSTC_WRAPPER: &str = r#"#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
for lib in "$here"/usr/lib/*-linux-gnu; do
  LD_LIBRARY_PATH=$lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$here/usr/bin/rustc" "$@"
"#;

/// The unpacked toolchain's folder; makes it if it is not there.
///
/// # Errors
/// This is no Debian, the packages cannot be had, or the library does not build.
pub fn toolchain_root() -> Result<PathBuf> {
    let cache = cache_dir()?;
    let root = cache.join("debian");
    if root.is_dir() {
        return Ok(root);
    }
    for tool in ["apt-get", "apt-cache", "dpkg", "tar"] {
        on_path(tool).with_context(|| format!("{tool} is not on PATH: this is no Debian"))?;
    }
    fs::create_dir_all(&cache).with_context(|| {
        format!(
            "cannot create {}; set XDG_CACHE_HOME to a writable folder",
            cache.display()
        )
    })?;
    let lock = lock(&cache)?;
    // Another process may have made it while this one waited.
    if !root.is_dir() {
        let part = cache.join("debian.part");
        make(&part).with_context(|| format!("in {}", part.display()))?;
        fs::rename(&part, &root)?;
    }
    drop(lock);
    Ok(root)
}

/// The linker that the packages brought.
pub fn wasm_ld(root: &Path) -> Option<PathBuf> {
    entries(&root.join("usr/lib"))
        .into_iter()
        .map(|dir| dir.join("bin/wasm-ld"))
        .find(|file| file.exists())
}

/// Shared libraries that the linker needs.
pub fn shared_libraries(root: &Path) -> Option<PathBuf> {
    entries(&root.join("usr/lib"))
        .into_iter()
        .find(|dir| dir.to_string_lossy().ends_with("-linux-gnu"))
}

fn cache_dir() -> Result<PathBuf> {
    let set = |name| {
        std::env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let base = set("XDG_CACHE_HOME")
        .or_else(|| set("HOME").map(|home| home.join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set: where may the toolchain be kept?")?;
    Ok(std::path::absolute(base)?.join("blackstart/guest-toolchain"))
}

fn lock(cache: &Path) -> Result<File> {
    let path = cache.join("lock");
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let start = Instant::now();
    let mut said = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).with_context(|| format!("cannot lock {}", path.display()));
            }
        }
        if !said {
            say("another process is making the toolchain: waiting for it");
            said = true;
        }
        if start.elapsed() > LOCK_LIMIT {
            bail!(
                "{} was locked for {} s by another process",
                path.display(),
                LOCK_LIMIT.as_secs()
            );
        }
        std::thread::sleep(LOCK_POLL);
    }
}

fn make(part: &Path) -> Result<()> {
    if part.exists() {
        fs::remove_dir_all(part).context("cannot remove what an interrupted run left")?;
    }
    let debs = part.join("deb");
    fs::create_dir_all(&debs)?;
    phase("debian fetch", || fetch(&debs))?;
    phase("debian unpack", || unpack(&debs, part))?;
    fs::remove_dir_all(&debs)?;
    phase("debian std", || build_std(part))
}

/// Package names carry versions: apt is asked, not memory.
fn packages() -> Result<Vec<String>> {
    let std = depends_on("libstd-rust-web-dev", "libstd-rust-web-")?;
    let llvm = depends_on(&std, "libllvm")?;
    let lld = format!("lld-{}", llvm.trim_start_matches("libllvm"));
    let fixed = [
        "rustc-web",
        "libstd-rust-web-dev",
        "rust-web-src",
        "rust-web-llvm",
    ];
    let mut names: Vec<String> = fixed.map(str::to_owned).to_vec();
    names.extend([std, llvm, lld]);
    Ok(names)
}

fn depends_on(package: &str, prefix: &str) -> Result<String> {
    let text = output(
        Command::new("apt-cache").args(["depends", package]),
        QUESTION_LIMIT,
    )?;
    first_dependency(&text, prefix).with_context(|| {
        format!("the package {package} depends on no {prefix}*: Debian's packaging has changed")
    })
}

fn first_dependency(text: &str, prefix: &str) -> Option<String> {
    text.lines()
        .filter_map(|line| line.trim().strip_prefix("Depends: "))
        .find(|name| {
            name.strip_prefix(prefix)
                .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
        })
        .map(str::to_owned)
}

fn fetch(debs: &Path) -> Result<()> {
    if !known("rustc-web")? {
        run(Command::new("apt-get").args(["update", "-qq"]), FETCH_LIMIT)
            .context("the package lists are missing; run `apt-get update` as root")?;
        if !known("rustc-web")? {
            bail!("this distribution has no package rustc-web");
        }
    }
    let mut download = Command::new("apt-get");
    // As root, apt would fetch as a user that may not write here.
    download.args(["download", "-qq", "-o", "APT::Sandbox::User=root"]);
    run(download.args(packages()?).current_dir(debs), FETCH_LIMIT)
}

fn known(package: &str) -> Result<bool> {
    let mut question = Command::new("apt-cache");
    question
        .args(["show", "--no-all-versions", package])
        .stderr(Stdio::null());
    let (status, text) = output_and_status(&mut question, QUESTION_LIMIT)?;
    Ok(status.success() && !text.is_empty())
}

fn unpack(debs: &Path, root: &Path) -> Result<()> {
    for deb in entries(debs) {
        let name = deb
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut tar = Command::new("tar");
        tar.arg("-x").arg("-C").arg(root);
        if name.starts_with("rust-web-src_") {
            // The library only: 69 MB of 434.
            tar.args([
                "--wildcards",
                "./usr/src/rustc-*/library/*",
                "./usr/lib/rustlib/src*",
            ]);
        } else {
            tar.args([
                "--exclude",
                "./usr/share/*",
                "--exclude",
                "./usr/bin/rustdoc",
                "--exclude",
                "./usr/libexec/*",
            ]);
        }
        let mut dpkg = Command::new("dpkg");
        dpkg.arg("--fsys-tarfile")
            .arg(&deb)
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut source = spawn(&mut dpkg)?;
        let pipe = source.stdout.take().context("dpkg has no stdout")?;
        let mut sink = spawn(tar.stdin(pipe))?;
        let unpacked = wait(&tar, &mut sink, UNPACK_LIMIT);
        let read = wait(&dpkg, &mut source, UNPACK_LIMIT);
        check(&tar, unpacked?).with_context(|| format!("unpacking {name}"))?;
        check(&dpkg, read?).with_context(|| format!("reading {name}"))?;
    }
    let wrapper = root.join("rustc");
    File::create(&wrapper)?.write_all(RUSTC_WRAPPER.as_bytes())?;
    fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// Builds the standard library and lays it where the compiler looks for an installed target.
fn build_std(root: &Path) -> Result<()> {
    let rustc = root.join("rustc");
    let work = root.join("stdbuild");
    fs::create_dir_all(work.join("src"))?;
    fs::write(work.join("src/lib.rs"), "#![no_std]\n")?;
    fs::write(
        work.join("Cargo.toml"),
        "[package]\nname = \"stdbuild\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
         [profile.release]\npanic = \"abort\"\n[workspace]\n",
    )?;
    let flags = [
        // Guests are linked with LTO, which needs it.
        "-Cembed-bitcode=yes".to_owned(),
        remap(&root.join("usr/lib/rustlib/src/rust"), "/rust"),
        remap(&cargo_registry()?, "/cargo"),
        remap(&work, "/std"),
    ];
    let mut build = cargo();
    build
        .args([
            "build",
            "--quiet",
            "--release",
            "--target",
            TARGET,
            "-Zbuild-std=std,panic_abort",
        ])
        .current_dir(&work)
        .env("CARGO_ENCODED_RUSTFLAGS", flags.join("\x1f"))
        .env("CARGO_TARGET_DIR", work.join("target"))
        .env("RUSTC", &rustc)
        // The packaged compiler is a stable one; its own library may use what is unstable.
        .env("RUSTC_BOOTSTRAP", "1");
    run(&mut build, STD_LIMIT).context("the standard library does not build")?;

    let mut question = Command::new(&rustc);
    question.args(["--print", "target-libdir", "--target", TARGET]);
    let libraries = PathBuf::from(output(&mut question, QUESTION_LIMIT)?.trim());
    fs::create_dir_all(&libraries)?;
    for file in entries(&work.join("target").join(TARGET).join("release/deps")) {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let library = name.ends_with(".rlib") || name.ends_with(".rmeta");
        if library && !name.starts_with("libstdbuild") {
            fs::copy(&file, libraries.join(&name))?;
        }
    }
    fs::remove_dir_all(&work)?;
    Ok(())
}

/// A folder's entries in a fixed order; none if it cannot be read.
fn entries(dir: &Path) -> Vec<PathBuf> {
    let mut found: Vec<_> = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_versioned_package_is_taken_from_apts_answer() {
        let answer = "libstd-rust-web-dev\n  Depends: libstd-rust-web-1.96\n  Depends: libc6\n |Suggests: x\n";
        let std = first_dependency(answer, "libstd-rust-web-");
        assert_eq!(std.as_deref(), Some("libstd-rust-web-1.96"));
        let answer = "libstd-rust-web-1.96\n  Depends: libgcc-s1\n  Depends: libllvm21\n";
        assert_eq!(
            first_dependency(answer, "libllvm").as_deref(),
            Some("libllvm21")
        );
        // A virtual or unversioned package is not it.
        assert_eq!(
            first_dependency("  Depends: libllvm-any\n", "libllvm"),
            None
        );
        assert_eq!(first_dependency("", "libllvm"), None);
    }
}
