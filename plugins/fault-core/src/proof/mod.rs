//! What facts show. Happened is only what they show; that it did *not* happen is told apart from
//! what was not read.

mod chain;
mod container;
mod counter;
mod died;
mod group;
mod orphans;
mod queue;
mod same;
mod stood_still;

use blackstart_sdk::fault::{Fact, Proof, fact};

pub use chain::{chain_ran, flapped};
pub use container::{ended, made_anew, off_the_network, paused, restarted};
pub use counter::packets;
pub use died::process_died;
pub use group::{disk_filled, frozen, out_of_memory, throttled};
pub use queue::queue_in_force;
pub use same::nothing_started_anew;
pub use stood_still::stood_still;

/// Why something is not shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Doubt {
    /// The facts speak against it.
    Not(String),
    /// The facts that could tell were not read.
    Unknown(String),
}

/// What was shown, in one clause; or why it was not.
pub type Shown = Result<String, Doubt>;

/// The facts speak against it.
pub(crate) fn not<T>(why: impl Into<String>) -> Result<T, Doubt> {
    Err(Doubt::Not(why.into()))
}

/// The facts that could tell were not read.
pub(crate) fn unknown<T>(why: impl Into<String>) -> Result<T, Doubt> {
    Err(Doubt::Unknown(why.into()))
}

/// The facts about one victim.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'f> {
    all: &'f [Fact],
    victim: &'f str,
}

/// One fact's three readings, as far as there are any.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Reading<'f> {
    pub(crate) before: Option<&'f str>,
    pub(crate) during: Option<&'f str>,
    pub(crate) after: Option<&'f str>,
}

impl<'f> Facts<'f> {
    /// Of all facts those about one victim.
    pub(crate) fn new(all: &'f [Fact], victim: &'f str) -> Self {
        Facts { all, victim }
    }

    /// The readings of one fact.
    pub(crate) fn read(&self, name: &str) -> Reading<'f> {
        let Some(fact) = fact(self.all, self.victim, name) else {
            return Reading::default();
        };
        let text = |value: &'f Option<String>| value.as_deref().map(str::trim);
        Reading {
            before: text(&fact.before),
            during: text(&fact.during),
            after: text(&fact.after),
        }
    }

    /// Process roles of which facts speak.
    pub(crate) fn roles(&self) -> Vec<&'f str> {
        let mine = self.all.iter().filter(|f| f.replica == self.victim);
        mine.filter_map(|f| f.name.strip_prefix("process.")?.strip_suffix(".pid"))
            .collect()
    }

    /// The verdict about this victim.
    pub(crate) fn prove(&self, shown: Shown) -> Proof {
        let victim = self.victim;
        match shown {
            Ok(what) => Proof::Happened(format!("{victim}: {what}")),
            Err(Doubt::Not(why)) => Proof::DidNotHappen(format!("{victim}: {why}")),
            Err(Doubt::Unknown(why)) => Proof::CannotTell(format!("{victim}: {why}")),
        }
    }
}
