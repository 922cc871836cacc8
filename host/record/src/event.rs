//! What happened during a run, one JSON object a line in `events.jsonl`.

use serde::{Deserialize, Serialize};

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Event {
    /// Run time.
    pub at_ns: i64,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum EventKind {
    /// The run's clocks: the epoch on the monotonic and on the wall clock.
    Epoch {
        /// `CLOCK_MONOTONIC` at the epoch.
        monotonic_ns: i64,
        /// Wall clock at the epoch, nanoseconds since the Unix epoch.
        unix_ns: i64,
    },
    /// A step of an effect of the fault.
    Effect(EffectStep),
    /// A step of a replica's life, as its supervisor or `/proc` shows it.
    Replica(ReplicaStep),
    /// An inference probe ended.
    Probe(ProbeOutcome),
    /// A canary stream ended.
    Canary(CanaryStream),
    /// CPU use over a sampling interval that ended at `at_ns`.
    ClientCpu {
        /// Length of the interval.
        interval_ns: i64,
        /// Busy share of all cores of the client's host, percent.
        host_percent: f64,
        /// Share stolen by the hypervisor, percent.
        steal_percent: f64,
        /// The instrument's own share of all cores, percent.
        process_percent: f64,
    },
    /// Heartbeat of one load thread over the whole run: how late a 1 ms tick came.
    Heartbeat {
        /// Thread number.
        thread: u32,
        /// Ticks.
        ticks: u64,
        /// Lateness, p50.
        late_ns_p50: i64,
        /// Lateness, p99.
        late_ns_p99: i64,
        /// Lateness, largest.
        late_ns_max: i64,
        /// Whether the thread ran under real-time priority; the text is the refusal's reason.
        real_time: Result<(), String>,
    },
    /// Facts about a victim, read before, during or after the fault.
    Facts {
        /// `before`, `during` or `after`.
        phase: String,
        /// The facts.
        facts: Vec<Fact>,
    },
    /// What the fault plugin concluded from the facts.
    Proof {
        /// The verdict.
        verdict: ProofVerdict,
        /// Its reason.
        statement: String,
    },
    /// Clock offset of the host on which the fault is executed.
    Clock(ClockSample),
    /// A scrape of a replica's metrics failed.
    ScrapeError {
        /// The replica.
        replica: String,
        /// Short reason.
        reason: String,
    },
    /// Accelerator fingerprint of a host. Each declared replica has one before and one after the run.
    Fingerprint {
        /// The replica.
        replica: String,
        /// `before` or `after`.
        phase: String,
        /// One text per accelerator, or the reason why there is none.
        accelerators: Result<Vec<String>, String>,
    },
    /// The operator interrupted the run; it is partial from here.
    Interrupted {
        /// `SIGINT` or `SIGTERM`.
        signal: String,
    },
    /// The load ended: every scheduled request has an outcome.
    LoadEnded {
        /// Requests in the schedule.
        scheduled: u64,
        /// Records written.
        recorded: u64,
    },
    /// The instrument was killed during a load, and a later command sealed what it left. The event's
    /// instant is the last stamp of its records: nothing is known of the time after it.
    Killed {
        /// Requests that had no record and got one from the schedule; absent where the schedule does
        /// not follow from what is recorded.
        filled_in: Option<u64>,
        /// Of these, requests that were due by the last stamp.
        due: u64,
        /// Records that the journal held.
        records: u64,
        /// Bytes of the journal that could not be read.
        unread_bytes: u64,
        /// Whether these are more than a last record that was cut short.
        damaged: bool,
    },
    /// The kernel refused a load thread its stamps of what the load's sockets receive.
    ReceiveStampsRefused {
        /// The system's reason.
        reason: String,
    },
    /// Something worth a caveat in the report.
    Note {
        /// The text.
        text: String,
    },
}

/// A step of an effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EffectStep {
    /// The effect.
    pub effect: u32,
    /// `scheduled`, `started`, `undone` or `failed`.
    pub step: String,
    /// What it is, for people (`signal KILL to process api of r0`).
    pub action: String,
    /// The replica it harms, where it harms one.
    pub replica: Option<String>,
    /// Planned instant of this step.
    pub planned_ns: i64,
    /// Clock read immediately before the operation.
    pub before_ns: Option<i64>,
    /// Clock read immediately after it.
    pub after_ns: Option<i64>,
    /// Pids or other details of a start (`status 200`: the answer to an HTTP effect, the fact
    /// `http.status`); the reason of a failure.
    pub detail: Option<String>,
    /// Who did it: `instrument` or `watchdog`.
    pub by: String,
}

/// A step of a replica's life.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "step", rename_all = "snake_case")]
pub enum ReplicaStep {
    /// The main process was started.
    Started {
        /// The replica.
        replica: String,
        /// Its pid.
        pid: u32,
        /// Starts before this one.
        restarts: u32,
    },
    /// The main process ended.
    Exited {
        /// The replica.
        replica: String,
        /// Its pid.
        pid: u32,
        /// Exit code, if it exited.
        code: Option<i32>,
        /// Signal, if one ended it.
        signal: Option<i32>,
        /// Descendants that were there the moment it ended: `pid title`. The supervisor may end them
        /// at once ([`OrphansGone`](Self::OrphansGone)).
        orphans: Vec<String>,
    },
    /// The orphans of an ended main process are gone.
    OrphansGone {
        /// The replica.
        replica: String,
        /// How many were left.
        count: u32,
        /// Whether the supervisor killed them (else they ended by themselves).
        killed: bool,
    },
    /// The restart policy does not start it again.
    NotRestarted {
        /// The replica.
        replica: String,
        /// Why.
        reason: String,
    },
}

/// Which path a probe took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProbePath {
    /// Straight to a replica.
    Direct,
    /// Through the service.
    Service,
}

/// An inference probe: a request for one token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// Which path.
    pub path: ProbePath,
    /// The replica probed directly, or the one that served a service probe if it was named.
    pub replica: Option<String>,
    /// When it was sent.
    pub sent_ns: i64,
    /// When its first token arrived.
    pub first_token_ns: Option<i64>,
    /// Whether it was answered with a token.
    pub ok: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// A canary stream against the known-timing endpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CanaryStream {
    /// When it was intended to be sent, and was.
    pub sent_ns: i64,
    /// Whether it completed with all tokens.
    pub completed: bool,
    /// Observed TTFT minus the known one.
    pub ttft_dev_ns: Option<i64>,
    /// Observed minus known inter-chunk time, for each gap, in order.
    pub itl_dev_ns: Vec<i64>,
    /// Lag of each event behind its due time counted from the send.
    pub event_lag_ns: Vec<i64>,
}

/// One fact about a victim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// The replica.
    pub replica: String,
    /// Name, as in `wit/fault.wit`.
    pub name: String,
    /// Value; `None` = not readable.
    pub value: Option<String>,
}

/// What a fault plugin concluded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProofVerdict {
    /// It happened.
    Happened,
    /// It did not.
    DidNotHappen,
    /// The facts do not decide.
    CannotTell,
}

/// Offset of another host's clock, by repeated round trips.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockSample {
    /// `arm` or `after`.
    pub phase: String,
    /// remote − local, nanoseconds.
    pub offset_ns: i64,
    /// Half-width of the interval that holds it.
    pub bound_ns: i64,
    /// Round trips used; 0 = the same clock, nothing to measure.
    pub samples: u32,
}
