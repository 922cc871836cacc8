//! Compiled components on disk.
//!
//! Compiled code is native code: loading a file that somebody else wrote would run
//! whatever they put in it. So the folder must belong to the effective user, be a
//! real folder, and be closed to everyone else; so must each file in it; files are
//! opened relative to the folder that was checked, never through a symlink; the
//! bytes that were digested are the bytes that are loaded. Any doubt means that the
//! component is compiled again, never an error.

use std::fs::File;
use std::hash::{Hash, Hasher};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, FileType, Mode, OFlags};
use sha2::{Digest, Sha256};

/// First bytes of a cache file; the digest of the rest follows them.
const MAGIC: &[u8; 16] = b"blackstart-cwasm";
const HEADER_BYTES: usize = MAGIC.len() + 32;
/// Largest compiled component that is kept or read, in bytes.
const MAX_FILE_BYTES: u64 = 512 << 20;
/// Most files the folder keeps; the oldest go first.
const MAX_FILES: usize = 256;
/// Ending of a cache file's name.
const SUFFIX: &str = ".cwasm";

/// A folder of compiled components that has been found safe to load from.
#[derive(Debug)]
pub struct Cache {
    path: PathBuf,
    folder: OwnedFd,
}

impl Cache {
    /// Opens the folder, creating it with mode 0700 when it is missing. `Err` says
    /// in one sentence why it cannot be trusted or used.
    pub fn open(path: &Path) -> Result<Cache, String> {
        let shown = path.display();
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        match fs::mkdir(path, Mode::RWXU) {
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(e) => return Err(format!("{shown}: {e}")),
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let folder = fs::open(path, flags, Mode::empty())
            .map_err(|e| format!("{shown} is not a folder of its own: {e}"))?;
        let stat = fs::fstat(&folder).map_err(|e| format!("{shown}: {e}"))?;
        if stat.st_uid != rustix::process::geteuid().as_raw() {
            return Err(format!("{shown} belongs to another user"));
        }
        if stat.st_mode & 0o777 != 0o700 {
            return Err(format!("{shown} is open to other users (needs mode 0700)"));
        }
        Ok(Cache {
            path: path.to_owned(),
            folder,
        })
    }

    /// Where the folder is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads compiled code for `key`; `None` when there is none that can be trusted.
    pub(crate) fn load(&self, key: &Key) -> Option<Vec<u8>> {
        match self.read(key) {
            Ok(found) => found,
            Err(why) => {
                tracing::debug!(file = %key.0, why, "compiled component not taken from the cache");
                None
            }
        }
    }

    fn read(&self, key: &Key) -> Result<Option<Vec<u8>>, &'static str> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd = match fs::openat(&self.folder, &key.0, flags, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(_) => return Err("cannot be opened as a plain file"),
        };
        let stat = fs::fstat(&fd).map_err(|_| "cannot be examined")?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err("not a plain file");
        }
        if stat.st_uid != rustix::process::geteuid().as_raw() || stat.st_mode & 0o077 != 0 {
            return Err("open to other users");
        }
        let size = u64::try_from(stat.st_size).map_err(|_| "has no size")?;
        if size > MAX_FILE_BYTES {
            return Err("too large");
        }
        let mut bytes = Vec::with_capacity(size as usize + 1);
        File::from(fd)
            .take(MAX_FILE_BYTES)
            .read_to_end(&mut bytes)
            .map_err(|_| "cannot be read")?;
        if bytes.len() < HEADER_BYTES || &bytes[..MAGIC.len()] != MAGIC {
            return Err("not a cache file");
        }
        let digest = Sha256::digest(&bytes[HEADER_BYTES..]);
        if digest[..] != bytes[MAGIC.len()..HEADER_BYTES] {
            return Err("damaged");
        }
        Ok(Some(bytes))
    }

    /// Keeps compiled code for `key`. A failure costs only time later, so it is
    /// logged and forgotten.
    pub(crate) fn store(&self, key: &Key, code: &[u8]) {
        if let Err(why) = self.write(key, code) {
            tracing::debug!(file = %key.0, %why, "compiled component not kept in the cache");
        }
        self.prune();
    }

    fn write(&self, key: &Key, code: &[u8]) -> std::io::Result<()> {
        if code.len() as u64 + HEADER_BYTES as u64 > MAX_FILE_BYTES {
            return Err(std::io::Error::other("too large"));
        }
        // One temporary name a process and thread; EXCL refuses whatever is there.
        let temporary = format!(
            ".{}.{}.{:?}",
            key.0,
            std::process::id(),
            std::thread::current().id()
        );
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = match fs::openat(&self.folder, &temporary, flags, mode) {
            Err(rustix::io::Errno::EXIST) => {
                fs::unlinkat(&self.folder, &temporary, AtFlags::empty())?;
                fs::openat(&self.folder, &temporary, flags, mode)?
            }
            other => other?,
        };
        let mut file = File::from(fd);
        let written = file
            .write_all(MAGIC)
            .and_then(|()| file.write_all(&Sha256::digest(code)))
            .and_then(|()| file.write_all(code))
            .and_then(|()| {
                fs::renameat(&self.folder, &temporary, &self.folder, &key.0)
                    .map_err(std::io::Error::from)
            });
        if written.is_err() {
            let _ = fs::unlinkat(&self.folder, &temporary, AtFlags::empty());
        }
        written
    }

    /// Removes the oldest files beyond [`MAX_FILES`].
    fn prune(&self) {
        let Ok(entries) = fs::Dir::read_from(&self.folder) else {
            return;
        };
        let mut files = Vec::new();
        for entry in entries.flatten() {
            let name = entry.file_name().to_owned();
            // Leftovers of a killed process count as well.
            if name.to_bytes() == b"." || name.to_bytes() == b".." {
                continue;
            }
            if let Ok(stat) = fs::statat(&self.folder, &name, AtFlags::SYMLINK_NOFOLLOW) {
                files.push((stat.st_mtime, name));
            }
        }
        if files.len() <= MAX_FILES {
            return;
        }
        files.sort();
        let surplus = files.len() - MAX_FILES;
        for (_, name) in &files[..surplus] {
            let _ = fs::unlinkat(&self.folder, name, AtFlags::empty());
        }
    }
}

/// Compiled code inside the bytes of a cache file.
pub(crate) fn code(file: &[u8]) -> &[u8] {
    &file[HEADER_BYTES..]
}

/// Name of a cache file: the component's digest and the engine's compatibility hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key(String);

impl Key {
    pub fn new(component_sha256: &[u8; 32], compatibility: impl Hash) -> Key {
        let mut hasher = Sha256Hasher(Sha256::new());
        compatibility.hash(&mut hasher);
        let engine = hex::encode(&hasher.0.finalize()[..16]);
        Key(format!(
            "{}-{engine}{SUFFIX}",
            hex::encode(component_sha256)
        ))
    }
}

/// Feeds a [`Hash`] into SHA-256, so that the name does not depend on the standard
/// library's hash function.
struct Sha256Hasher(Sha256);

impl Hasher for Sha256Hasher {
    fn write(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    fn finish(&self) -> u64 {
        let digest = self.0.clone().finalize();
        let mut first = [0; 8];
        first.copy_from_slice(&digest[..8]);
        u64::from_le_bytes(first)
    }
}

/// The folder used when none is named: `$XDG_CACHE_HOME/blackstart/components`, else
/// `$HOME/.cache/blackstart/components`; `None` without either. `var` looks up an
/// environment variable.
pub fn default_folder(var: impl Fn(&str) -> Option<PathBuf>) -> Option<PathBuf> {
    let base = var("XDG_CACHE_HOME")
        .filter(|p| p.is_absolute())
        .or_else(|| {
            var("HOME")
                .filter(|p| p.is_absolute())
                .map(|home| home.join(".cache"))
        })?;
    Some(base.join("blackstart").join("components"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn key() -> Key {
        Key::new(&[7; 32], "engine a")
    }

    #[test]
    fn a_fresh_folder_is_private_and_keeps_what_is_stored() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("deep").join("cache");
        let cache = Cache::open(&path).unwrap();
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o700);
        assert_eq!(cache.load(&key()), None);
        cache.store(&key(), b"native code");
        assert_eq!(code(&cache.load(&key()).unwrap()), b"native code");
        assert_eq!(cache.load(&Key::new(&[7; 32], "engine b")), None);
        assert_eq!(cache.load(&Key::new(&[8; 32], "engine a")), None);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1);
    }

    #[test]
    fn folders_that_cannot_be_trusted_are_refused() {
        let tmp = tempfile::tempdir().unwrap();
        let open = tmp.path().join("open");
        std::fs::create_dir(&open).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(Cache::open(&open).unwrap_err().contains("0700"));
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o700)).unwrap();
        assert!(Cache::open(&open).is_ok());
        let link = tmp.path().join("link");
        symlink(&open, &link).unwrap();
        assert!(Cache::open(&link).is_err());
        let file = tmp.path().join("file");
        std::fs::write(&file, b"").unwrap();
        assert!(Cache::open(&file).is_err());
    }

    #[test]
    fn files_that_cannot_be_trusted_are_not_loaded() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("cache");
        let cache = Cache::open(&path).unwrap();
        cache.store(&key(), b"native code");
        let file = path.join(&key().0);
        let good = std::fs::read(&file).unwrap();

        let mut flipped = good.clone();
        *flipped.last_mut().unwrap() ^= 1;
        for bad in [&flipped[..], &good[..good.len() - 1], &good[..10], b""] {
            std::fs::write(&file, bad).unwrap();
            assert_eq!(cache.load(&key()), None);
        }
        std::fs::write(&file, &good).unwrap();
        assert!(cache.load(&key()).is_some());

        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert_eq!(cache.load(&key()), None);

        std::fs::remove_file(&file).unwrap();
        let elsewhere = tmp.path().join("elsewhere");
        std::fs::write(&elsewhere, &good).unwrap();
        std::fs::set_permissions(&elsewhere, PermissionsExt::from_mode(0o600)).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(cache.load(&key()), None);

        // Storing over a symlink replaces the link, not what it points to.
        cache.store(&key(), b"new");
        assert_eq!(code(&cache.load(&key()).unwrap()), b"new");
        assert_eq!(std::fs::read(&elsewhere).unwrap(), good);
    }

    #[test]
    fn the_folder_keeps_a_bounded_number_of_files() {
        let tmp = tempfile::tempdir().unwrap();
        let path = tmp.path().join("cache");
        let cache = Cache::open(&path).unwrap();
        for i in 0..MAX_FILES + 5 {
            cache.store(&Key::new(&[1; 32], i), b"x");
        }
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), MAX_FILES);
    }

    #[test]
    fn the_default_folder_follows_the_environment_given() {
        let xdg = |name: &str| (name == "XDG_CACHE_HOME").then(|| PathBuf::from("/c"));
        assert_eq!(
            default_folder(xdg),
            Some(PathBuf::from("/c/blackstart/components"))
        );
        let home = |name: &str| (name == "HOME").then(|| PathBuf::from("/h"));
        assert_eq!(
            default_folder(home),
            Some(PathBuf::from("/h/.cache/blackstart/components"))
        );
        let relative = |name: &str| (name == "XDG_CACHE_HOME").then(|| PathBuf::from("c"));
        assert_eq!(default_folder(relative), None);
    }
}
