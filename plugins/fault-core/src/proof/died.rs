//! A process is its id *and* its start time: an id alone may have been given to another.
//!
//! Proven dead is a victim whose process at the role, during or after the fault, is another
//! one than before, or whose process is gone by the host's own word (state `gone`, `Z` or
//! `X`). A value that could not be read proves nothing.

use super::{Facts, Shown, not, orphans, unknown};

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

/// That the process of a role ended by a signal (named without `SIG`).
pub fn process_died(facts: &Facts<'_>, role: &str, signal: &str) -> Shown {
    let [before, during, after] = sights(facts, role);
    let Some(pid) = before.pid else {
        return unknown(format!("the {role} process was not read before the fault"));
    };
    match (before.fate(&during), before.fate(&after)) {
        (Fate::Dead(how), _) | (_, Fate::Dead(how)) => Ok(format!(
            "{role} process {pid} ended by SIG{signal}: {how}; {}",
            orphans::statement(facts, role)
        )),
        (_, Fate::Alive) => not(format!("{role} process {pid} survived SIG{signal}")),
        (Fate::Alive | Fate::Unknown, Fate::Unknown) => unknown(format!(
            "what became of {role} process {pid} was not read after SIG{signal}"
        )),
    }
}

/// That the process of a role ended, by whatever means.
pub(super) fn another_or_gone(facts: &Facts<'_>, role: &str) -> Shown {
    let [before, during, after] = sights(facts, role);
    match (before.pid, before.fate(&during), before.fate(&after)) {
        (None, ..) => unknown(format!("the {role} process was not read before the fault")),
        (_, Fate::Dead(how), _) | (_, _, Fate::Dead(how)) => Ok(how),
        (_, _, Fate::Alive) => not(format!("the {role} process went on")),
        (_, _, Fate::Unknown) => {
            unknown(format!("the {role} process was not read after the fault"))
        }
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
        match later.state {
            Some("gone") => Fate::Dead("it is gone".to_owned()),
            Some(s) if s.starts_with('Z') || s.starts_with('X') => {
                Fate::Dead("it is a zombie".to_owned())
            }
            _ if later.pid.is_some() => Fate::Alive,
            _ => Fate::Unknown,
        }
    }
}

fn sights<'f>(facts: &Facts<'f>, role: &str) -> [Sight<'f>; 3] {
    let read = |what: &str| facts.read(&format!("process.{role}.{what}"));
    let (pid, start, state) = (read("pid"), read("start-time"), read("state"));
    let at = |moment: fn(&super::Reading<'f>) -> Option<&'f str>| Sight {
        pid: moment(&pid),
        start_time: moment(&start),
        state: moment(&state),
    };
    [at(|r| r.before), at(|r| r.during), at(|r| r.after)]
}
