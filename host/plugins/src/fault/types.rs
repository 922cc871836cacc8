//! Plain types of the fault world.

use crate::types::{Field, PluginInfo};

/// How a fault ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The victim comes back by its own means.
    VictimRestarts,
    /// The host undoes it.
    HostUndoes,
    /// Nothing brings it back within the run.
    Permanent,
}

/// What a fault says about itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultInfo {
    /// Name, version, summary and configuration schema.
    pub plugin: PluginInfo,
    /// How it ends.
    pub ending: Ending,
    /// Decomposition segments that cannot occur under it, each with the reason.
    pub without_segments: Vec<Field>,
    /// Labels a run under it carries when their gates hold.
    pub labels: Vec<String>,
}

/// The part of the run plan that a fault may know. Times are nanoseconds since the
/// run epoch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ArmContext {
    /// The plugin's own table as JSON, valid under its schema.
    pub config: String,
    /// Seed for choices the fault makes.
    pub seed: u64,
    /// When the fault is due.
    pub fire_at_ns: i64,
    /// When an effect that the host undoes must have ended at the latest.
    pub expire_at_ns: i64,
    /// End of the run.
    pub run_end_ns: i64,
    /// Replicas that the configuration names as victims.
    pub victims: Vec<String>,
}

/// A fault that has put its effects on the timeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Armed {
    /// Replicas it will harm.
    pub victims: Vec<String>,
    /// One line for the report.
    pub statement: String,
}

/// What the host saw happen to an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectEvent {
    /// It was done, at this instant.
    Started(i64),
    /// It was undone, at this instant.
    Undone(i64),
    /// It could not be done.
    Failed(String),
}

/// One fact about a replica that the host read around the fault; `None` means not
/// readable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fact {
    /// Whose.
    pub replica: String,
    /// `process.<role>.pid`, `target.restart-count`, `http.status`, ...
    pub name: String,
    /// Before the fault.
    pub before: Option<String>,
    /// While it should be in force.
    pub during: Option<String>,
    /// After its window.
    pub after: Option<String>,
}

/// Did the fault really happen? Each carries one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Proof {
    /// Yes.
    Happened(String),
    /// No.
    DidNotHappen(String),
    /// The facts do not tell.
    CannotTell(String),
}

/// A replica as a fault may see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetReplica {
    /// Its name in the configuration.
    pub id: String,
    /// What runs it: `process`, `url`.
    pub runtime: String,
    /// Processes that a signal can name.
    pub process_roles: Vec<String>,
    /// `base-url`, `admin-url`, `restart-policy`, ...
    pub attributes: Vec<Field>,
}

/// A POSIX signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are POSIX's")]
pub enum Signal {
    Term,
    Kill,
    Stop,
    Cont,
    Hup,
    Int,
    Usr1,
    Usr2,
    Abrt,
    Segv,
}

/// An HTTP request of a fault.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// A token (`POST`).
    pub method: String,
    /// Absolute; passed the grant.
    pub url: String,
    /// Without control characters.
    pub headers: Vec<Field>,
    /// At most [`super::MAX_BODY_BYTES`].
    pub body: Vec<u8>,
}

/// What the container engine is asked to do with a replica's container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContainerOperation {
    /// A signal by name.
    Kill(String),
    /// An orderly stop, with so many seconds before SIGKILL.
    Stop(u32),
    /// A stop and a start, with so many seconds for the stop.
    Restart(u32),
    /// Freezes every process of it.
    Pause,
    /// Removes it and creates it anew.
    Recreate,
    /// Takes it off a network, or off all.
    Disconnect(Option<String>),
}

/// A rule on a replica's packets.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum NetworkRule {
    /// Drops all.
    DropAll,
    /// Answers with resets.
    RejectWithReset,
    /// Loses this share, percent.
    Lose(f64),
    /// Holds what is sent, microseconds.
    Delay(u64),
    /// Caps what is sent, bytes per second.
    LimitSend(u64),
    /// Caps what is received, bytes per second.
    LimitReceive(u64),
}

/// A limit on what a replica may use of its host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Limit {
    /// All processes stand still.
    Freeze,
    /// Percent of one core.
    CpuPercent(u32),
    /// Bytes beyond what is in use.
    MemoryHeadroomBytes(u64),
    /// A file system is filled.
    FillDisk {
        /// A folder on it.
        path: String,
        /// Bytes that are left.
        leave_bytes: u64,
    },
}

/// What a fault can wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Condition {
    /// A new main process.
    StartedAgain,
    /// An answered inference after a failed one.
    ServingAgain,
}

/// What an effect does.
#[derive(Debug, Clone, PartialEq)]
pub enum EffectAction {
    /// An operation on a replica's container.
    Container {
        /// Which replica.
        replica: String,
        /// What.
        operation: ContainerOperation,
    },
    /// A rule on a replica's packets.
    Network {
        /// Which replica.
        replica: String,
        /// Which rule.
        rule: NetworkRule,
    },
    /// A limit on a replica.
    Resources {
        /// Which replica.
        replica: String,
        /// Which limit.
        limit: Limit,
    },
    /// A wait; the end of the effect's window is its deadline.
    Watch {
        /// Which replica.
        replica: String,
        /// For what.
        condition: Condition,
    },
    /// Sends a signal to a process of a replica.
    Signal {
        /// Which replica.
        replica: String,
        /// Which of its processes.
        process_role: String,
        /// Which signal.
        signal: Signal,
    },
    /// Sends an HTTP request.
    Http {
        /// Sent at the start.
        request: HttpRequest,
        /// Sent at the end.
        on_expiry: Option<HttpRequest>,
    },
}

/// An effect that passed the grants, for the timeline. Times are nanoseconds since
/// the run epoch.
#[derive(Debug, Clone, PartialEq)]
pub struct EffectRequest {
    /// What to do.
    pub action: EffectAction,
    /// When.
    pub at_ns: i64,
    /// When to undo it.
    pub until_ns: Option<i64>,
}

/// Why the host does not schedule an effect. Each carries one sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EffectError {
    /// Not granted.
    Denied(String),
    /// The target cannot do it.
    Unsupported(String),
    /// Anything else.
    Other(String),
}

/// What the host does for a fault.
pub trait FaultHost: Send + Sync {
    /// Nanoseconds since the run epoch, now.
    fn now(&self) -> i64;
    /// The system under test, as the configuration has it.
    fn targets(&self) -> Vec<TargetReplica>;
    /// Puts an effect on the timeline and names it.
    ///
    /// # Errors
    /// Whatever the fault must be told.
    fn schedule(&self, effect: EffectRequest) -> Result<u32, EffectError>;
}
