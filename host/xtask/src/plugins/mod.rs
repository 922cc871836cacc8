//! `cargo xtask plugins`: guest crates to WebAssembly components.
//!
//! [`toolchain`] finds a compiler for the guest target, [`debian`] makes one from Debian
//! packages where there is none, [`build`] runs cargo once and collects the components.

mod build;
mod debian;
mod toolchain;

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use crate::process::say;
use toolchain::Route;

/// Options of `cargo xtask plugins`.
#[derive(clap::Args)]
pub struct Args {
    /// How to find a compiler for wasm32-unknown-unknown. `auto` takes the first that works:
    /// the installed target, `rustup target add`, Debian packages unpacked privately.
    #[arg(long, value_enum, default_value_t = Route::Auto, env = "BLACKSTART_GUEST_ROUTE")]
    route: Route,

    /// Where the components go: a folder (default: `plugins` in the target folder), or with
    /// `--crate` a file.
    #[arg(long, value_name = "PATH")]
    out: Option<PathBuf>,

    /// Build this one crate, which may be outside the repository, instead of the bundled
    /// plugins.
    #[arg(long = "crate", value_name = "DIR", requires = "out")]
    krate: Option<PathBuf>,
}

/// Builds the bundled plugins as `cargo xtask plugins` without options does.
///
/// # Errors
/// As [`run`].
pub fn run_default() -> Result<()> {
    #[derive(clap::Parser)]
    struct Defaults {
        #[command(flatten)]
        args: Args,
    }
    // Through clap, so that the environment variable counts here too.
    run(&<Defaults as clap::Parser>::try_parse_from(["plugins"])?.args)
}

/// The target folder of the host workspace.
///
/// # Errors
/// When it cannot be found.
pub fn target_folder() -> Result<PathBuf> {
    target_dir(&repository()?)
}

/// Builds what the options ask for.
///
/// # Errors
/// No toolchain, a guest that does not build, or a folder that cannot be written.
pub fn run(args: &Args) -> Result<()> {
    let start = Instant::now();
    let repository = repository()?;
    let target_dir = target_dir(&repository)?;
    let toolchain = toolchain::find(args.route)?;
    let job = build::Job {
        toolchain: &toolchain,
        repository: &repository,
        target_dir: &target_dir,
    };
    let built = match (&args.krate, &args.out) {
        (Some(krate), Some(out)) => vec![job.one_crate(krate, out)?],
        (Some(_), None) => bail!("--crate needs --out FILE.wasm"),
        (None, Some(out)) => job.all_plugins(out)?,
        (None, None) => {
            let out = target_dir.join("plugins");
            let built = job.all_plugins(&out)?;
            remove_stale(&out, &built)?;
            built
        }
    };
    for component in &built {
        say(format!(
            "{} {} KiB{}",
            component.file.display(),
            component.bytes.div_ceil(1024),
            if component.changed { "" } else { ", unchanged" }
        ));
    }
    say(format!(
        "{} in {:.1} s",
        if built.len() == 1 {
            "1 component".to_owned()
        } else {
            format!("{} components", built.len())
        },
        start.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// The repository's root: two levels above this crate.
pub fn repository() -> Result<PathBuf> {
    // `cargo xtask` says where this crate is now. What was true when it was compiled serves where
    // the program is started by itself; two clones with one target folder share the program.
    let here = match std::env::var("CARGO_PKG_NAME").as_deref() {
        Ok(env!("CARGO_PKG_NAME")) => std::env::var_os("CARGO_MANIFEST_DIR").map(PathBuf::from),
        _ => None,
    };
    let here = here.unwrap_or_else(|| PathBuf::from(env!("CARGO_MANIFEST_DIR")));
    let root = here
        .ancestors()
        .nth(2)
        .context("this crate is not in host/xtask")?;
    root.canonicalize()
        .with_context(|| format!("the repository is not at {}", root.display()))
}

/// The host workspace's target folder.
fn target_dir(repository: &Path) -> Result<PathBuf> {
    let dir = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => repository.join("target"),
    };
    Ok(std::path::absolute(dir)?)
}

/// A plugin that was renamed or removed must not be found by the host any more. Only our own
/// folder is cleaned, never one that `--out` names.
fn remove_stale(dir: &Path, built: &[build::Component]) -> Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let file = entry?.path();
        let stale = file.extension().is_some_and(|e| e == "wasm")
            && !built.iter().any(|component| component.file == file);
        if stale {
            say(format!(
                "{} belongs to no plugin any more: removed",
                file.display()
            ));
            std::fs::remove_file(&file)?;
        }
    }
    Ok(())
}
