//! Limits of a replica's control group: freezer, processor time, memory.
//!
//! A group is touched only while every process in it belongs to the replica. What was written
//! before is remembered with the group's identity and written back; a group that was made anew
//! (a container that was started again) is left as it is.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use blackstart_clock::{NS_PER_S, monotonic_ns, sleep_until};
use blackstart_targets::{ProcessRef, Targets};

use super::cgroup::{Group, Version, write};
use super::{Bench, FactSource, Limit, Task, Victim};
use crate::watchdog::Undo;

/// Period of a processor quota where the group has none.
const DEFAULT_PERIOD_US: u64 = 100_000;
/// Smallest quota that the kernel takes.
const MIN_QUOTA_US: u64 = 1_000;
/// How long the kernel may take to report a group as frozen.
const FREEZE_TIMEOUT_NS: i64 = 2 * NS_PER_S;
/// Room above what is in use that a memory limit is given at least: a page-aligned write must not
/// fall below what is used by the time it is done.
const LIMIT_SLACK: u64 = 4 << 20;

fn controller(limit: &Limit) -> &'static str {
    match limit {
        Limit::Freeze => "freezer",
        Limit::CpuPercent(_) => "cpu",
        Limit::MemoryHeadroom(_) | Limit::FillDisk { .. } => "memory",
    }
}

/// The file that holds the limit.
fn file(limit: &Limit, version: Version) -> &'static str {
    match (limit, version) {
        (Limit::Freeze, Version::V1) => "freezer.state",
        (Limit::Freeze, Version::V2) => "cgroup.freeze",
        (Limit::CpuPercent(_), Version::V1) => "cpu.cfs_quota_us",
        (Limit::CpuPercent(_), Version::V2) => "cpu.max",
        (_, Version::V1) => "memory.limit_in_bytes",
        (_, Version::V2) => "memory.max",
    }
}

/// The replica's own group.
fn own_group(limit: &Limit, targets: &Targets, victim: &Victim<'_>) -> Result<Group, String> {
    let group = Group::of(victim.main.pid(), controller(limit))?;
    if group.is_root() {
        return Err(format!(
            "replica `{}` is in the root control group, to which every process belongs; run it in \
             a group of its own (a container)",
            victim.replica
        ));
    }
    let all = group
        .processes()
        .map_err(|e| format!("{}: {e}", group.dir.display()))?;
    for pid in all {
        let Ok(held) = ProcessRef::open(pid) else {
            continue;
        };
        if let Err(e) = targets.authorize(victim.replica, &held)
            && !held.has_ended()
        {
            return Err(format!(
                "control group `{}` of replica `{}` holds others too, and a limit would hit them: \
                 {e}; run the replica in a group of its own (a container)",
                group.dir.display(),
                victim.replica
            ));
        }
    }
    Ok(group)
}

pub(super) fn preflight(
    limit: &Limit,
    targets: &Targets,
    victim: &Victim<'_>,
) -> Result<(), String> {
    let group = own_group(limit, targets, victim)?;
    if matches!(limit, Limit::Freeze) && frozen(&group) == Some(true) {
        return Err(format!(
            "control group `{}` of replica `{}` is frozen already",
            group.dir.display(),
            victim.replica
        ));
    }
    group.writable(file(limit, group.version))
}

pub(super) fn prepare(
    limit: &Limit,
    bench: &Bench<'_>,
    victim: Victim<'_>,
    duration_ns: i64,
    register: &mut dyn FnMut(Undo) -> Result<(), String>,
) -> Result<Box<dyn Task>, String> {
    let group = own_group(limit, bench.targets, &victim)?;
    let name = file(limit, group.version);
    let before = match limit {
        // Whoever finds it frozen must still thaw it.
        Limit::Freeze => match group.version {
            Version::V1 => "THAWED".to_owned(),
            Version::V2 => "0".to_owned(),
        },
        _ => group.read(name)?,
    };
    let undo = Undo::Group {
        dir: group.dir.clone(),
        inode: group.inode,
        file: name.to_owned(),
        value: before,
    };
    register(undo.clone())?;
    let facts = facts(bench, victim.replica, limit, &group);
    let balloon = match limit {
        Limit::MemoryHeadroom(_) => Some(Balloon::start(bench, &group, duration_ns)?),
        _ => None,
    };
    let value = match limit {
        Limit::Freeze => match group.version {
            Version::V1 => "FROZEN".to_owned(),
            Version::V2 => "1".to_owned(),
        },
        Limit::CpuPercent(percent) => quota(&group, *percent),
        Limit::MemoryHeadroom(_) | Limit::FillDisk { .. } => String::new(),
    };
    Ok(Box::new(Limited {
        limit: limit.clone(),
        group,
        file: name,
        value,
        undo,
        facts,
        balloon,
    }))
}

/// What is written for a share of one core.
fn quota(group: &Group, percent: u32) -> String {
    let quota = |period: u64| (period * u64::from(percent) / 100).max(MIN_QUOTA_US);
    match group.version {
        Version::V1 => {
            let period = group.read("cpu.cfs_period_us").ok();
            quota(
                period
                    .and_then(|p| p.parse().ok())
                    .unwrap_or(DEFAULT_PERIOD_US),
            )
            .to_string()
        }
        Version::V2 => format!("{} {DEFAULT_PERIOD_US}", quota(DEFAULT_PERIOD_US)),
    }
}

/// Bytes in use.
fn usage(group: &Group) -> Result<u64, String> {
    let file = match group.version {
        Version::V1 => "memory.usage_in_bytes",
        Version::V2 => "memory.current",
    };
    let text = group.read(file)?;
    text.parse()
        .map_err(|_| format!("{file}: `{text}` is not a number"))
}

/// Processes of the group that the kernel ended for want of memory; v1 counts since its making.
pub(super) fn oom_kills(group: &Group) -> Option<u64> {
    match group.version {
        Version::V1 => group.read_key("memory.oom_control", "oom_kill"),
        Version::V2 => group.read_key("memory.events", "oom_kill"),
    }
}

fn frozen(group: &Group) -> Option<bool> {
    match group.version {
        Version::V1 => group.read("freezer.state").ok().map(|s| s == "FROZEN"),
        Version::V2 => group.read_key("cgroup.events", "frozen").map(|f| f == 1),
    }
}

fn facts(bench: &Bench<'_>, replica: &str, limit: &Limit, group: &Group) -> FactSource {
    let (limit, group) = (limit.clone(), group.clone());
    bench.board.add(replica, move || {
        let fact = |name: &str, value: Option<String>| (format!("cgroup.{name}"), value);
        match limit {
            Limit::Freeze => vec![fact(
                "frozen",
                frozen(&group).map(|f| u8::from(f).to_string()),
            )],
            Limit::CpuPercent(_) => vec![
                fact("cpu-quota-percent", quota_percent(&group)),
                fact(
                    "throttled-periods",
                    group
                        .read_key("cpu.stat", "nr_throttled")
                        .map(|n| n.to_string()),
                ),
            ],
            Limit::MemoryHeadroom(_) | Limit::FillDisk { .. } => vec![
                fact(
                    "memory-limit-bytes",
                    group.read(file(&limit, group.version)).ok(),
                ),
                fact("oom-kills", oom_kills(&group).map(|n| n.to_string())),
            ],
        }
    })
}

/// The processor quota in force, percent of one core, or `max`.
fn quota_percent(group: &Group) -> Option<String> {
    let (quota, period) = match group.version {
        Version::V1 => (
            group.read("cpu.cfs_quota_us").ok()?,
            group.read("cpu.cfs_period_us").ok()?,
        ),
        Version::V2 => {
            let text = group.read("cpu.max").ok()?;
            let (quota, period) = text.split_once(' ')?;
            (quota.to_owned(), period.to_owned())
        }
    };
    match quota.parse::<i64>() {
        Ok(quota) if quota > 0 => {
            let period: i64 = period.parse().ok().filter(|p| *p > 0)?;
            Some((quota.saturating_mul(100) / period).to_string())
        }
        _ => Some("max".to_owned()),
    }
}

/// A limit that is ready to be written.
struct Limited {
    limit: Limit,
    group: Group,
    file: &'static str,
    value: String,
    undo: Undo,
    facts: FactSource,
    balloon: Option<Balloon>,
}

impl Task for Limited {
    fn fire(&mut self) -> Result<String, String> {
        let path = self.group.dir.join(self.file);
        let say = |e: std::io::Error| format!("{}: {e}", path.display());
        match &self.limit {
            Limit::MemoryHeadroom(headroom) => {
                let used = usage(&self.group)?;
                let limit = used.saturating_add((*headroom).max(LIMIT_SLACK));
                write(&path, &limit.to_string()).map_err(say)?;
                if let Some(balloon) = &mut self.balloon {
                    // More than is left: the kernel must end someone before it is full.
                    balloon.blow(headroom.max(&LIMIT_SLACK).saturating_mul(2))?;
                }
                Ok(format!("{used} bytes in use, limit {limit} bytes"))
            }
            Limit::Freeze => {
                write(&path, &self.value).map_err(say)?;
                let until = monotonic_ns() + FREEZE_TIMEOUT_NS;
                while frozen(&self.group) != Some(true) {
                    if monotonic_ns() >= until {
                        return Err("the kernel did not report the group as frozen".to_owned());
                    }
                    sleep_until(monotonic_ns() + NS_PER_S / 1000);
                }
                Ok("frozen".to_owned())
            }
            _ => {
                write(&path, &self.value).map_err(say)?;
                Ok(format!("{} = {}", self.file, self.value))
            }
        }
    }

    fn undo(&mut self) -> Result<String, String> {
        // The balloon's memory is the group's: it goes first.
        self.balloon = None;
        let done = self.undo.execute();
        if matches!(self.limit, Limit::Freeze) {
            // The kernel says so a moment after it was told.
            let until = monotonic_ns() + FREEZE_TIMEOUT_NS;
            while frozen(&self.group) == Some(true) && monotonic_ns() < until {
                sleep_until(monotonic_ns() + NS_PER_S / 1000);
            }
        }
        // What stands there afterwards is the proof that it ended.
        self.facts.freeze();
        done
    }
}

/// A process of ours in the victim's group that takes the memory that is left. See
/// [`super::balloon`].
struct Balloon {
    child: Child,
    /// How long it keeps what it takes, should nobody end it before.
    duration_ns: i64,
}

impl Balloon {
    fn start(bench: &Bench<'_>, group: &Group, duration_ns: i64) -> Result<Self, String> {
        let exec = bench
            .exec
            .ok_or("internal error: the timeline was given no helper for memory effects")?;
        let mut child = exec
            .command()
            .arg(&group.dir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("memory helper: {e}"))?;
        // It is in the group before the fire: its own start is not charged to the instant.
        let mut said = String::new();
        if let Some(out) = child.stdout.take() {
            let _ = BufReader::new(out).read_line(&mut said);
        }
        let this = Self { child, duration_ns };
        if said.trim() == "ready" {
            Ok(this)
        } else {
            Err(format!(
                "memory helper: it could not enter `{}`",
                group.dir.display()
            ))
        }
    }

    fn blow(&mut self, bytes: u64) -> Result<(), String> {
        use std::io::Write;
        let pipe = self.child.stdin.as_mut().ok_or("memory helper: no pipe")?;
        let until = monotonic_ns().saturating_add(self.duration_ns);
        writeln!(pipe, "{bytes} {until}").map_err(|e| format!("memory helper: {e}"))
    }
}

impl Drop for Balloon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a limit back.
pub(crate) fn restore(
    dir: &std::path::Path,
    inode: u64,
    file: &str,
    value: &str,
) -> Result<String, String> {
    use std::os::unix::fs::MetadataExt;
    const OURS: [&str; 6] = [
        "freezer.state",
        "cgroup.freeze",
        "cpu.cfs_quota_us",
        "cpu.max",
        "memory.limit_in_bytes",
        "memory.max",
    ];
    if !OURS.contains(&file) {
        return Err(format!("`{file}` is not a limit that is ever set here"));
    }
    match std::fs::metadata(dir) {
        Ok(m) if m.ino() == inode => {}
        // Made anew since, with the limits of its own.
        Ok(_) => return Ok("the control group was made anew".to_owned()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            return Ok("gone with its control group".to_owned());
        }
        Err(e) => return Err(format!("{}: {e}", dir.display())),
    }
    let path = dir.join(file);
    write(&path, value).map_err(|e| format!("{}: {e}", path.display()))?;
    let after = std::fs::read_to_string(&path).unwrap_or_default();
    let after = after.trim();
    // A thaw may be reported a moment later; anything else is there at once.
    if after != value && file != "freezer.state" {
        return Err(format!("{file} is `{after}` after writing `{value}`"));
    }
    Ok(format!("{file} = {after}"))
}
