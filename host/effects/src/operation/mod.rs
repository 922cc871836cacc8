//! What can be done to a replica's surroundings: its network, its control groups, its disk, its
//! container. One module a mechanism.
//!
//! Each operation has the same four steps, so that the timeline and the watchdog know one kind:
//! 1. [`preflight`] while the fault is armed, before any load: whether it can be done *and undone*
//!    here. It changes nothing.
//! 2. [`prepare`] seconds before the instant: everything slow, after its undo is registered.
//! 3. [`Task::fire`] at the instant, alone between two clock reads.
//! 4. [`Undo::execute`](crate::watchdog::Undo::execute), by the instrument at the end, or by the
//!    watchdog: the same code, and harmless when done twice.

mod balloon;
pub(crate) mod cgroup;
mod disk;
mod facts;
pub(crate) mod namespace;
pub(crate) mod network;
pub(crate) mod resources;

use std::sync::Arc;

use blackstart_targets::{ProcessRef, Reexec, Targets};

pub use balloon::run as run_balloon;
pub use facts::{FactBoard, FactSource};

use crate::watchdog::Undo;

/// A rule on the packets of a replica.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NetworkRule {
    /// Every packet is dropped, both ways.
    DropAll,
    /// Every TCP packet that arrives is answered by a reset.
    RejectWithReset,
    /// Each packet is lost with this probability in percent, both ways.
    Lose(f64),
    /// What the replica sends is held for so many microseconds.
    Delay(u64),
    /// What the replica sends is capped, bytes per second.
    LimitSend(u64),
    /// What the replica receives is capped, bytes per second.
    LimitReceive(u64),
}

/// A limit on what a replica may use of its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// The freezer of its control group.
    Freeze,
    /// Processor time in percent of one core.
    CpuPercent(u32),
    /// Memory beyond what is in use at the instant, bytes; what is left is then taken.
    MemoryHeadroom(u64),
    /// A file system is filled.
    FillDisk {
        /// A folder as the replica's main process sees it.
        path: String,
        /// Bytes that are left.
        leave: u64,
    },
}

/// An operation on a replica's surroundings.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// On its packets.
    Network(NetworkRule),
    /// On what it may use.
    Resources(Limit),
}

/// Bytes for people.
fn bytes(n: u64) -> String {
    const UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    for (unit, size) in UNITS {
        if n >= size && n.is_multiple_of(size) {
            return format!("{} {unit}", n / size);
        }
    }
    format!("{n} bytes")
}

impl Operation {
    /// What it is, for people.
    pub(crate) fn describe(&self, replica: &str) -> String {
        match self {
            Self::Network(rule) => match rule {
                NetworkRule::DropAll => format!("drop every packet of {replica}"),
                NetworkRule::RejectWithReset => {
                    format!("answer every TCP packet to {replica} with a reset")
                }
                NetworkRule::Lose(percent) => {
                    format!("lose {percent} % of the packets of {replica}")
                }
                NetworkRule::Delay(us) => format!("delay what {replica} sends by {us} us"),
                NetworkRule::LimitSend(rate) => {
                    format!("cap what {replica} sends at {} a second", bytes(*rate))
                }
                NetworkRule::LimitReceive(rate) => {
                    format!("cap what {replica} receives at {} a second", bytes(*rate))
                }
            },
            Self::Resources(limit) => match limit {
                Limit::Freeze => format!("freeze the control group of {replica}"),
                Limit::CpuPercent(percent) => {
                    format!("cap processor time of {replica} at {percent} % of a core")
                }
                Limit::MemoryHeadroom(left) => format!(
                    "cap memory of {replica} at what it uses plus {}, and take that",
                    bytes(*left)
                ),
                Limit::FillDisk { path, leave } => {
                    format!("fill `{path}` of {replica} but for {}", bytes(*leave))
                }
            },
        }
    }

    /// What undoing it is, for people.
    pub(crate) fn describe_undo(&self, replica: &str) -> String {
        match self {
            Self::Network(_) => format!("remove the packet rules of {replica}"),
            Self::Resources(Limit::Freeze) => format!("thaw the control group of {replica}"),
            Self::Resources(Limit::FillDisk { path, .. }) => {
                format!("give back the space in `{path}` of {replica}")
            }
            Self::Resources(_) => format!("restore the earlier limit of {replica}"),
        }
    }

    /// The thing whose state it changes: of two such at a time, the end of one would end the other.
    pub(crate) fn holds(&self, replica: &str) -> String {
        let what = match self {
            Self::Network(NetworkRule::Delay(_) | NetworkRule::LimitSend(_)) => "the queues",
            Self::Network(_) => "the packet rules",
            Self::Resources(Limit::Freeze) => "the freezer",
            Self::Resources(Limit::CpuPercent(_)) => "the processor limit",
            Self::Resources(Limit::MemoryHeadroom(_)) => "the memory limit",
            Self::Resources(Limit::FillDisk { .. }) => "the disk",
        };
        format!("{what} of replica `{replica}`")
    }

    /// Whether it has an end exactly where it needs one.
    pub(crate) fn check_end(&self, has_end: bool) -> Result<(), String> {
        if !has_end {
            return Err("it needs an end (`until`), at which it is undone".to_owned());
        }
        Ok(())
    }

    /// Whether its figures mean anything; the reason is for people.
    pub(crate) fn check(&self) -> Result<(), String> {
        match self {
            Self::Network(NetworkRule::Lose(percent))
                if !(percent.is_finite() && *percent > 0.0 && *percent <= 100.0) =>
            {
                Err(format!(
                    "a loss of {percent} % is not one; above 0, at most 100"
                ))
            }
            Self::Network(NetworkRule::Delay(us)) if *us == 0 || *us > network::MAX_DELAY_US => {
                Err(format!(
                    "a delay of {us} us; at least 1, at most {}",
                    network::MAX_DELAY_US
                ))
            }
            Self::Network(NetworkRule::LimitSend(rate) | NetworkRule::LimitReceive(rate))
                if *rate < network::MIN_RATE || *rate > network::MAX_RATE =>
            {
                Err(format!(
                    "a rate of {rate} bytes per second; at least {}, at most {}",
                    network::MIN_RATE,
                    network::MAX_RATE
                ))
            }
            Self::Resources(Limit::CpuPercent(percent)) if *percent == 0 || *percent > 100_000 => {
                Err(format!("{percent} % of a core; at least 1, at most 100000"))
            }
            Self::Resources(Limit::FillDisk { path, .. })
                if !path.starts_with('/') || path.contains("..") || path.contains('\0') =>
            {
                Err(format!("`{path}` is not an absolute path without `..`"))
            }
            _ => Ok(()),
        }
    }
}

/// An operation that is ready: everything slow is behind it.
pub(crate) trait Task: Send {
    /// Carries it out. Stands between two clock reads. The text is for the record.
    fn fire(&mut self) -> Result<String, String>;
    /// Undoes it; harmless when there is nothing to undo. The text says what was seen afterwards.
    fn undo(&mut self) -> Result<String, String>;
}

/// What preparing needs.
pub(crate) struct Bench<'a> {
    pub(crate) targets: &'a Targets,
    /// The timeline's own name among those that may act on the same host.
    pub(crate) namespace: &'a str,
    pub(crate) exec: Option<&'a Reexec>,
    pub(crate) board: &'a Arc<FactBoard>,
}

/// An operation's victim at this moment.
pub(crate) struct Victim<'a> {
    pub(crate) effect: u32,
    pub(crate) replica: &'a str,
    pub(crate) main: ProcessRef,
    /// The port of the replica's own address.
    pub(crate) port: Option<u16>,
}

impl<'a> Victim<'a> {
    pub(crate) fn find(targets: &Targets, effect: u32, replica: &'a str) -> Result<Self, String> {
        let main = targets.resolve_main(replica).map_err(|e| e.to_string())?;
        let port = targets.port(replica);
        Ok(Self {
            effect,
            replica,
            main,
            port,
        })
    }
}

/// Whether it can be done and undone here. Changes nothing that outlives the call.
pub(crate) fn preflight(
    operation: &Operation,
    targets: &Targets,
    replica: &str,
) -> Result<(), String> {
    let victim = Victim::find(targets, 0, replica)?;
    match operation {
        Operation::Network(rule) => network::preflight(*rule, &victim),
        Operation::Resources(Limit::FillDisk { path, .. }) => disk::preflight(&victim, path),
        Operation::Resources(limit) => resources::preflight(limit, targets, &victim),
    }
}

/// Makes it ready. `duration_ns` is how long it will be in force. What it changes at once is
/// registered before, through `register`.
pub(crate) fn prepare(
    operation: &Operation,
    bench: &Bench<'_>,
    victim: Victim<'_>,
    duration_ns: i64,
    register: &mut dyn FnMut(Undo) -> Result<(), String>,
) -> Result<Box<dyn Task>, String> {
    match operation {
        Operation::Network(rule) => network::prepare(*rule, bench, &victim, duration_ns, register),
        Operation::Resources(Limit::FillDisk { path, leave }) => {
            disk::prepare(bench, &victim, path, *leave)
        }
        Operation::Resources(limit) => {
            resources::prepare(limit, bench, victim, duration_ns, register)
        }
    }
}
