//! Control groups, both versions: where a process's group is, who else is in it, what it says.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Most bytes of a file of `/proc` or of a control group that are read.
const MAX_BYTES: u64 = 1 << 20;
/// Deepest nesting of groups below a replica's that is looked into.
const MAX_DEPTH: usize = 16;
/// Most processes of a group that are looked at.
const MAX_PROCESSES: usize = 65_536;

/// Which hierarchy a group belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    /// One hierarchy a controller.
    V1,
    /// The unified hierarchy.
    V2,
}

/// A control group.
#[derive(Debug, Clone)]
pub(crate) struct Group {
    pub(crate) version: Version,
    pub(crate) dir: PathBuf,
    /// Of its folder: a group that was made anew under the same name is another.
    pub(crate) inode: u64,
}

impl Group {
    /// The group of a process under a controller (`freezer`, `cpu`, `memory`).
    ///
    /// # Errors
    /// A sentence for people.
    pub(crate) fn of(pid: u32, controller: &str) -> Result<Self, String> {
        let read = |path: String| read_text(Path::new(&path)).map_err(|e| format!("{path}: {e}"));
        let groups = read(format!("/proc/{pid}/cgroup"))?;
        let mounts = read("/proc/self/mountinfo".to_owned())?;
        let mut unified = None;
        for line in groups.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            if controllers.split(',').any(|c| c == controller) {
                if let Some(dir) = mounted(&mounts, Some(controller), path) {
                    return Self::at(Version::V1, dir);
                }
            } else if controllers.is_empty() {
                unified = mounted(&mounts, None, path);
            }
        }
        let offered = unified.filter(|dir| {
            let file = match controller {
                "freezer" => "cgroup.freeze",
                "cpu" => "cpu.max",
                _ => "memory.max",
            };
            dir.join(file).exists()
        });
        match offered {
            Some(dir) => Self::at(Version::V2, dir),
            None => Err(format!(
                "process {pid} is in no control group with the controller `{controller}` that this \
                 host shows"
            )),
        }
    }

    fn at(version: Version, dir: PathBuf) -> Result<Self, String> {
        let inode = std::fs::metadata(&dir)
            .map_err(|e| format!("{}: {e}", dir.display()))?
            .ino();
        Ok(Self {
            version,
            dir,
            inode,
        })
    }

    /// Whether it is the root group, to which everyone belongs.
    pub(crate) fn is_root(&self) -> bool {
        match self.version {
            Version::V1 => self.dir.join("release_agent").exists(),
            Version::V2 => !self.dir.join("cgroup.type").exists(),
        }
    }

    /// Pids of all processes in it and below it.
    pub(crate) fn processes(&self) -> io::Result<BTreeSet<u32>> {
        let mut pids = BTreeSet::new();
        collect(&self.dir, MAX_DEPTH, &mut pids)?;
        Ok(pids)
    }

    /// A value of it.
    pub(crate) fn read(&self, file: &str) -> Result<String, String> {
        let path = self.dir.join(file);
        read_text(&path)
            .map(|t| t.trim().to_owned())
            .map_err(|e| format!("{}: {e}", path.display()))
    }

    /// A line `key value` of a file of it.
    pub(crate) fn read_key(&self, file: &str, key: &str) -> Option<u64> {
        let text = self.read(file).ok()?;
        text.lines()
            .filter_map(|l| l.split_once(' '))
            .find(|(k, _)| *k == key)
            .and_then(|(_, v)| v.trim().parse().ok())
    }

    /// Whether a file of it may be written.
    pub(crate) fn writable(&self, file: &str) -> Result<(), String> {
        let path = self.dir.join(file);
        rustix::fs::access(&path, rustix::fs::Access::WRITE_OK).map_err(|e| {
            format!(
                "{} cannot be written ({e}); run as root where control groups are mounted writable",
                path.display()
            )
        })
    }
}

/// Writes a value into a file of a control group.
pub(crate) fn write(path: &Path, value: &str) -> io::Result<()> {
    use std::io::Write;
    // Not created: a group that is gone has no files.
    std::fs::OpenOptions::new()
        .write(true)
        .open(path)?
        .write_all(value.as_bytes())
}

fn read_text(path: &Path) -> io::Result<String> {
    use std::io::Read;
    let mut text = String::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_string(&mut text)?;
    Ok(text)
}

fn collect(dir: &Path, depth: usize, pids: &mut BTreeSet<u32>) -> io::Result<()> {
    let listed = read_text(&dir.join("cgroup.procs"))?;
    pids.extend(listed.lines().filter_map(|l| l.trim().parse::<u32>().ok()));
    if pids.len() > MAX_PROCESSES || depth == 0 {
        return Err(io::Error::other("too many processes, or groups too deep"));
    }
    for entry in std::fs::read_dir(dir)?.flatten() {
        if entry.file_type().is_ok_and(|t| t.is_dir()) {
            match collect(&entry.path(), depth - 1, pids) {
                // Removed meanwhile.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                other => other?,
            }
        }
    }
    Ok(())
}

/// Where a group's path is to be found below a mount point. `controller`: of version 1.
fn mounted(mountinfo: &str, controller: Option<&str>, path: &str) -> Option<PathBuf> {
    for line in mountinfo.lines() {
        let (before, after) = line.split_once(" - ")?;
        let mut after = after.split(' ');
        let kind = after.next()?;
        let options = after.nth(1).unwrap_or_default();
        let fits = match controller {
            Some(c) => kind == "cgroup" && options.split(',').any(|o| o == c),
            None => kind == "cgroup2",
        };
        if !fits {
            continue;
        }
        let mut fields = before.split(' ');
        let root = fields.nth(3)?;
        let point = fields.next()?;
        // A mount of a part of the hierarchy (in a container) shows only what is below it.
        let below = match root {
            "/" => path,
            root => path.strip_prefix(root)?,
        };
        let dir = Path::new(point).join(below.trim_start_matches('/'));
        if dir.is_dir() {
            return Some(dir);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_found_below_their_mount() {
        let here = tempfile::tempdir().expect("folder");
        let point = here.path().display();
        std::fs::create_dir_all(here.path().join("docker/abc")).expect("group");
        let mounts = format!(
            "30 23 0:26 / {point} rw,nosuid - cgroup cgroup rw,cpu,cpuacct\n\
             31 23 0:27 / /nowhere rw - cgroup2 cgroup2 rw\n"
        );
        let dir = here.path().join("docker/abc");
        assert_eq!(mounted(&mounts, Some("cpu"), "/docker/abc"), Some(dir));
        assert_eq!(mounted(&mounts, Some("memory"), "/docker/abc"), None);
        assert_eq!(mounted(&mounts, None, "/docker/abc"), None);
        let part = mounts.replace("0:26 / ", "0:26 /docker ");
        std::fs::create_dir_all(here.path().join("abc")).expect("group");
        let dir = here.path().join("abc");
        assert_eq!(mounted(&part, Some("cpu"), "/docker/abc"), Some(dir));
    }
}
