//! The clock of another host, and the clock reads around an operation.

use blackstart_record::{ClockSample, Event, EventKind};

use crate::planning::{MS, S, US};
use crate::random::Random;

/// A clock that is off and drifts, and what was measured of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RemoteClock {
    /// Remote − local at the epoch.
    pub(crate) offset_ns: i64,
    /// Nanoseconds that it gains in a second.
    pub(crate) drift_ns_per_s: f64,
    pub(crate) arm: Measured,
    pub(crate) after: Measured,
}

/// A measurement of the offset.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    pub(crate) at_ns: i64,
    pub(crate) offset_ns: i64,
    pub(crate) bound_ns: i64,
}

impl RemoteClock {
    /// Draws a clock, and the measurements before the run and after its load.
    pub(crate) fn draw(random: &mut Random, load_end_ns: i64) -> Self {
        let mut clock = Self {
            offset_ns: random.between(-2 * S, 2 * S),
            drift_ns_per_s: random.real(-50_000.0, 50_000.0),
            arm: Measured {
                at_ns: -S,
                offset_ns: 0,
                bound_ns: 0,
            },
            after: Measured {
                at_ns: load_end_ns + 12 * S,
                offset_ns: 0,
                bound_ns: 0,
            },
        };
        clock.arm = clock.measure(clock.arm.at_ns, random);
        clock.after = clock.measure(clock.after.at_ns, random);
        clock
    }

    /// What its reading is at an instant of the run.
    pub(crate) fn read(&self, at_ns: i64) -> i64 {
        at_ns + self.offset_at(at_ns)
    }

    fn offset_at(&self, at_ns: i64) -> i64 {
        self.offset_ns + (self.drift_ns_per_s * (at_ns as f64 / 1e9)) as i64
    }

    /// A measurement holds the true offset within its bound, anywhere in it.
    fn measure(&self, at_ns: i64, random: &mut Random) -> Measured {
        let bound_ns = random.between(50 * US, 5 * MS);
        Measured {
            at_ns,
            offset_ns: self.offset_at(at_ns) + random.between(-bound_ns, bound_ns),
            bound_ns,
        }
    }

    /// The events of the measurements.
    pub(crate) fn events(&self, with_after: bool) -> Vec<Event> {
        let event = |phase: &str, m: Measured| Event {
            at_ns: m.at_ns,
            kind: EventKind::Clock(ClockSample {
                phase: phase.to_owned(),
                offset_ns: m.offset_ns,
                bound_ns: m.bound_ns,
                samples: 20,
            }),
        };
        let mut all = vec![event("arm", self.arm)];
        if with_after {
            all.push(event("after", self.after));
        }
        all
    }
}

/// Clock reads around the operation, by the clock of whoever executed it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bracket {
    pub(crate) before_ns: i64,
    pub(crate) after_ns: i64,
}

impl Bracket {
    pub(crate) fn around(fire_ns: i64, random: &mut Random, remote: Option<&RemoteClock>) -> Self {
        // A signal takes microseconds; a remote command's operation may take longer.
        let widest = if remote.is_some() { 2 * MS } else { 20 * US };
        let read = |at_ns: i64| remote.map_or(at_ns, |clock| clock.read(at_ns));
        Self {
            before_ns: read(fire_ns - random.between(US, widest)),
            after_ns: read(fire_ns + random.between(US, widest)),
        }
    }
}
