//! A process is its id *and* its start time: an id alone may have been given to another.
//!
//! Proven dead is a victim whose process at the role, during or after the fault, is another
//! one than before, or whose process is gone by the host's own word (state `gone`, `Z` or
//! `X`). A value that could not be read proves nothing.

use blackstart_sdk::fault::{Fact, Proof, fact};

use crate::config::Deadly;
use crate::orphans;

/// A process at one moment, as far as it was read.
struct Sight<'f> {
    pid: Option<&'f str>,
    start_time: Option<&'f str>,
    state: Option<&'f str>,
}

/// What two sights of a role say about the first one's process.
enum Fate {
    /// Dead, and why that is known.
    Dead(String),
    Alive,
    Unknown,
}

/// Whether the victim's process died.
pub fn victim_died(facts: &[Fact], victim: &str, role: &str, signal: Deadly) -> Proof {
    let [before, during, after] = sights(facts, victim, role);
    let signal = signal.name();
    let Some(pid) = before.pid else {
        return Proof::CannotTell(format!(
            "{victim}: the {role} process was not read before the fault"
        ));
    };
    match (before.fate(&during), before.fate(&after)) {
        (Fate::Dead(how), _) | (_, Fate::Dead(how)) => Proof::Happened(format!(
            "{victim}: {role} process {pid} ended by SIG{signal}: {how}; {}",
            orphans::statement(facts, victim, role)
        )),
        (_, Fate::Alive) => Proof::DidNotHappen(format!(
            "{victim}: {role} process {pid} survived SIG{signal}"
        )),
        (Fate::Alive | Fate::Unknown, Fate::Unknown) => Proof::CannotTell(format!(
            "{victim}: what became of {role} process {pid} was not read after SIG{signal}"
        )),
    }
}

impl Sight<'_> {
    /// What a later sight says about this process.
    fn fate(&self, later: &Sight<'_>) -> Fate {
        match (self.pid, later.pid) {
            (Some(old), Some(new)) if old != new => {
                return Fate::Dead(format!("process {new} is in its place"));
            }
            (Some(_), Some(_)) => match (self.start_time, later.start_time) {
                (Some(old), Some(new)) if old != new => {
                    return Fate::Dead("its id belongs to a process that started later".to_owned());
                }
                (Some(_), Some(_)) => {}
                // The same id without a start time may be anyone's.
                _ => return Fate::Unknown,
            },
            _ => {}
        }
        match later.state.map(|s| s.trim()) {
            Some("gone") => Fate::Dead("it is gone".to_owned()),
            Some(s) if s.starts_with('Z') || s.starts_with('X') => {
                Fate::Dead("it is a zombie".to_owned())
            }
            _ if later.pid.is_some() => Fate::Alive,
            _ => Fate::Unknown,
        }
    }
}

fn sights<'f>(facts: &'f [Fact], victim: &str, role: &str) -> [Sight<'f>; 3] {
    let read = |what: &str| fact(facts, victim, &format!("process.{role}.{what}"));
    let (pid, start, state) = (read("pid"), read("start-time"), read("state"));
    let at = |moment: fn(&Fact) -> Option<&str>| Sight {
        pid: pid.and_then(moment),
        start_time: start.and_then(moment),
        state: state.and_then(moment),
    };
    [
        at(|f| f.before.as_deref()),
        at(|f| f.during.as_deref()),
        at(|f| f.after.as_deref()),
    ]
}
