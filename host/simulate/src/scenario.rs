//! What can be planted.

/// A kind of run: what happens to the service, in every seed at other instants and lengths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scenario {
    /// Stable name, as the command line takes it.
    pub name: &'static str,
    /// What is planted, in one sentence.
    pub about: &'static str,
    /// Replicas of the service; the first is the victim.
    pub replicas: u32,
    pub(crate) kind: Kind,
}

/// What happens to the victim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Crash,
    LateFire,
    RemoteClock,
    ClockUnmeasured,
    Hang,
    Freeze,
    Partial,
    Flapping,
    Relapse,
    SlowDegradation,
    LateDegradation,
    NeverReturns,
    HangForever,
    ReturnsDegraded,
    FlapsForever,
    ReturnsTooLate,
    ShortWatch,
    MissedFault,
    Control,
    NoFault,
}

const fn of(name: &'static str, replicas: u32, kind: Kind, about: &'static str) -> Scenario {
    Scenario {
        name,
        about,
        replicas,
        kind,
    }
}

/// Every scenario, in the order of the table.
pub const SCENARIOS: [Scenario; 22] = [
    of(
        "crash",
        1,
        Kind::Crash,
        "the only replica dies, refuses for 5 to 60 s, and is back at once",
    ),
    of(
        "crash-of-two",
        2,
        Kind::Crash,
        "one of two replicas dies; the service goes on sending it every second request",
    ),
    of(
        "crash-of-three",
        3,
        Kind::Crash,
        "one of three replicas dies; every third request fails",
    ),
    of(
        "late-fire",
        1,
        Kind::LateFire,
        "a crash that is fired 100 to 450 ms after its plan",
    ),
    of(
        "remote-clock",
        1,
        Kind::RemoteClock,
        "a crash executed on a host whose clock is up to 2 s off and drifts by up to 50 ppm; its log has one-second stamps",
    ),
    of(
        "clock-unmeasured",
        1,
        Kind::ClockUnmeasured,
        "the same without a second measurement of that clock: no fire instant may be claimed",
    ),
    of(
        "hang",
        1,
        Kind::Hang,
        "the replica accepts and never answers for 5 to 60 s: requests end censored, not in error",
    ),
    of(
        "freeze",
        1,
        Kind::Freeze,
        "the replica stands still for 7 to 40 s and then goes on with what it held",
    ),
    of(
        "partial",
        1,
        Kind::Partial,
        "back after 5 to 20 s, but 50 to 95 % of requests miss their TTFT for another 8 to 40 s",
    ),
    of(
        "flapping",
        1,
        Kind::Flapping,
        "dies one to four times more, after 3 to 15 s of service each time",
    ),
    of(
        "relapse",
        1,
        Kind::Relapse,
        "a confirmed recovery, then 4 to 12 s away once more: one re-degradation",
    ),
    of(
        "slow-degradation",
        1,
        Kind::SlowDegradation,
        "TTFT creeps up, passes its threshold after 4 to 20 s, and is mended 10 to 60 s later",
    ),
    of(
        "late-degradation",
        1,
        Kind::LateDegradation,
        "the same, but the threshold is passed only after 45 to 60 s",
    ),
    of(
        "never-returns",
        1,
        Kind::NeverReturns,
        "the replica dies and stays away",
    ),
    of(
        "hang-forever",
        1,
        Kind::HangForever,
        "the replica accepts and never answers again",
    ),
    of(
        "returns-degraded",
        1,
        Kind::ReturnsDegraded,
        "back, but 25 to 90 % of requests miss their TTFT for good",
    ),
    of(
        "flaps-forever",
        1,
        Kind::FlapsForever,
        "dies again and again, after 5 to 20 s of service each time",
    ),
    of(
        "returns-too-late",
        1,
        Kind::ReturnsTooLate,
        "back 3 to 20 s after the end of the fault window",
    ),
    of(
        "short-watch",
        1,
        Kind::ShortWatch,
        "back so shortly before the end of the load that the hold cannot confirm it",
    ),
    of(
        "missed-fault",
        1,
        Kind::MissedFault,
        "an effect is executed and harms nobody: no outage, and an invalid run",
    ),
    of(
        "control",
        2,
        Kind::Control,
        "a negative control: no effect is executed",
    ),
    of("no-fault", 1, Kind::NoFault, "a plan without a fault"),
];

/// The scenario of that name.
pub fn scenario(name: &str) -> Option<&'static Scenario> {
    SCENARIOS.iter().find(|s| s.name == name)
}

impl Scenario {
    /// Whether the plan has a fault.
    pub fn plans_a_fault(&self) -> bool {
        self.kind != Kind::NoFault
    }

    /// Whether the run is a negative control.
    pub fn is_control(&self) -> bool {
        self.kind == Kind::Control
    }

    /// Whether an effect is executed.
    pub fn fires(&self) -> bool {
        self.plans_a_fault() && !self.is_control()
    }

    /// Whether the fault is executed on a host with a clock of its own.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.kind, Kind::RemoteClock | Kind::ClockUnmeasured)
    }
}
