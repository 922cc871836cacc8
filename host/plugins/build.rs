//! Embeds the bundled plugins: every `*.wasm` in `<target dir>/plugins`, or in
//! `BLACKSTART_PLUGIN_DIR`. They are copied to the build's own folder first, so that
//! the embedded bytes and their digests belong together.

use std::error::Error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::{env, fs};

use sha2::{Digest, Sha256};

/// Names the folder of plugins to embed, instead of `<target dir>/plugins`.
const OVERRIDE: &str = "BLACKSTART_PLUGIN_DIR";

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo::rerun-if-env-changed={OVERRIDE}");
    println!("cargo::rerun-if-env-changed=CARGO_TARGET_DIR");
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").ok_or("cargo sets OUT_DIR")?);
    let folder = match env::var_os(OVERRIDE) {
        Some(folder) => PathBuf::from(folder),
        None => {
            let folder = target_dir(&out)?.join("plugins");
            // A folder that is missing would make cargo run this at every build.
            fs::create_dir_all(&folder)?;
            folder
        }
    };
    println!("cargo::rerun-if-changed={}", folder.display());
    let files = components(&folder)?;
    if files.is_empty() {
        println!(
            "cargo::warning=no plugins in {}: run `cargo xtask plugins` first",
            folder.display()
        );
    }
    let copies = out.join("bundled");
    if copies.exists() {
        fs::remove_dir_all(&copies)?;
    }
    fs::create_dir_all(&copies)?;
    let mut table = String::from("static BUNDLED: &[Bundled] = &[\n");
    for file in files {
        println!("cargo::rerun-if-changed={}", file.display());
        let bytes = fs::read(&file)?;
        let name = file
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or("a plugin's file name must be UTF-8")?;
        let copy = copies.join(name);
        fs::write(&copy, &bytes)?;
        writeln!(
            table,
            "    Bundled {{ file_name: {name:?}, bytes: include_bytes!({:?}), sha256: {:?} }},",
            copy.to_str().ok_or("OUT_DIR must be UTF-8")?,
            <[u8; 32]>::from(Sha256::digest(&bytes)),
        )?;
    }
    table.push_str("];\n");
    fs::write(out.join("bundled.rs"), table)?;
    Ok(())
}

/// The target directory: as the environment has it, else the folder above the profile
/// that holds `OUT_DIR` (`<target>/[<triple>/]<profile>/build/<package>/out`).
fn target_dir(out: &Path) -> Result<PathBuf, Box<dyn Error>> {
    let profile = out
        .ancestors()
        .nth(3)
        .ok_or("OUT_DIR lies in a target directory")?;
    if let Some(target) = env::var_os("CARGO_TARGET_DIR") {
        let target = PathBuf::from(target);
        if target.is_absolute() {
            return Ok(target);
        }
    }
    let above = profile.parent().ok_or("a profile lies in a folder")?;
    let triple = env::var_os("TARGET").ok_or("cargo sets TARGET")?;
    if above.file_name() == Some(triple.as_os_str()) {
        return Ok(above.parent().ok_or("a triple lies in a folder")?.into());
    }
    Ok(above.into())
}

fn components(folder: &Path) -> Result<Vec<PathBuf>, Box<dyn Error>> {
    if !folder.is_dir() {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|e| e == "wasm") && path.is_file() {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}
