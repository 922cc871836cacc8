//! Fills a file system of the replica's own.
//!
//! The space is taken by a file without a name (`O_TMPFILE`): the kernel gives it back as soon as
//! the instrument closes it or dies, whatever ends it. So no undo can be forgotten.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;

use rustix::fs::{FallocateFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use super::{Bench, FactSource, Task, Victim};

/// Smallest piece that is tried before the file system counts as full.
const MIN_PIECE: u64 = 4096;

fn open(victim: &Victim<'_>, path: &str) -> Result<OwnedFd, String> {
    let at = |e: Errno| format!("`{path}` of replica `{}`: {e}", victim.replica);
    let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
    let root = format!("/proc/{}/root", victim.main.pid());
    let root = rustix::fs::open(root, flags, Mode::empty()).map_err(at)?;
    // Links in it are followed as the replica would: none leads out of its root.
    let fd = rustix::fs::openat2(&root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)
        .map_err(at)?;
    if victim.main.has_ended() {
        return Err(format!("process {} has just ended", victim.main.pid()));
    }
    let device = File::from(fd.try_clone().map_err(|e| e.to_string())?)
        .metadata()
        .map_err(|e| e.to_string())?
        .dev();
    if shared(device)? {
        return Err(format!(
            "`{path}` of replica `{}` is on a file system that others on this host use too; give \
             the replica one of its own there (a tmpfs with a size)",
            victim.replica
        ));
    }
    Ok(fd)
}

/// Whether the file system is mounted where the instrument lives.
fn shared(device: u64) -> Result<bool, String> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")
        .map_err(|e| format!("/proc/self/mountinfo: {e}"))?;
    let name = format!(
        "{}:{}",
        rustix::fs::major(device),
        rustix::fs::minor(device)
    );
    Ok(mounts
        .lines()
        .any(|l| l.split(' ').nth(2) == Some(name.as_str())))
}

fn nameless(folder: &OwnedFd, path: &str) -> Result<OwnedFd, String> {
    rustix::fs::openat(
        folder,
        c".",
        OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC,
        Mode::RUSR | Mode::WUSR,
    )
    .map_err(|e| format!("`{path}`: a file without a name cannot be made there: {e}"))
}

pub(super) fn preflight(victim: &Victim<'_>, path: &str) -> Result<(), String> {
    let folder = open(victim, path)?;
    nameless(&folder, path).map(drop)
}

pub(super) fn prepare(
    bench: &Bench<'_>,
    victim: &Victim<'_>,
    path: &str,
    leave: u64,
) -> Result<Box<dyn Task>, String> {
    let folder = open(victim, path)?;
    let file = nameless(&folder, path)?;
    let watched = folder.try_clone().map_err(|e| e.to_string())?;
    let facts = bench.board.add(victim.replica, move || {
        vec![(
            "disk.available-bytes".to_owned(),
            available(watched.as_fd()).map(|n| n.to_string()),
        )]
    });
    Ok(Box::new(Filled {
        folder,
        file: Some(file),
        leave,
        facts,
    }))
}

fn available(fd: impl AsFd) -> Option<u64> {
    let stat = rustix::fs::fstatvfs(fd).ok()?;
    stat.f_bavail.checked_mul(stat.f_frsize)
}

struct Filled {
    folder: OwnedFd,
    file: Option<OwnedFd>,
    leave: u64,
    facts: FactSource,
}

impl Task for Filled {
    fn fire(&mut self) -> Result<String, String> {
        let file = self.file.as_ref().ok_or("it was fired before")?;
        let mut taken = 0;
        let mut piece = available(&self.folder)
            .ok_or("the space that is left cannot be read")?
            .saturating_sub(self.leave);
        while piece >= MIN_PIECE {
            match rustix::fs::fallocate(file, FallocateFlags::empty(), taken, piece) {
                Ok(()) => {
                    taken += piece;
                    let left = available(&self.folder).unwrap_or(0);
                    piece = piece.min(left.saturating_sub(self.leave));
                }
                Err(Errno::NOSPC) => piece /= 2,
                Err(Errno::INTR) => {}
                Err(e) => return Err(format!("taking {piece} bytes: {e}")),
            }
        }
        Ok(format!("{taken} bytes taken"))
    }

    fn undo(&mut self) -> Result<String, String> {
        self.file = None;
        self.facts.freeze();
        Ok(match available(&self.folder) {
            Some(left) => format!("{left} bytes available"),
            None => "its space was given back".to_owned(),
        })
    }
}
