//! Proven is a freeze of which the host saw both ends: the process in state `T` while the
//! fault was in force, and the very same process (id and start time) not in `T` after it.

use super::{Facts, Shown, not, unknown};

/// That the process of a role stood still and then went on.
pub fn stood_still(facts: &Facts<'_>, role: &str) -> Shown {
    let read = |what: &str| facts.read(&format!("process.{role}.{what}"));
    let who = format!("{role} process");
    let (during, after) = (read("state").during, read("state").after);
    match during {
        None => {
            return unknown(format!(
                "{who}: its state was not read while it should stand still"
            ));
        }
        Some(state) if !stopped(state) => {
            return not(format!(
                "{who}: state `{state}` while it should stand still, not `T`"
            ));
        }
        Some(_) => {}
    }
    match after {
        None => {
            return unknown(format!(
                "{who}: it stood still, but its state was not read after the fault"
            ));
        }
        Some("gone") => return not(format!("{who}: it died while it was stopped")),
        Some(state) if stopped(state) => {
            return not(format!("{who}: it stood still and never went on"));
        }
        Some(_) => {}
    }
    for what in ["pid", "start-time"] {
        let reading = read(what);
        match (reading.before, reading.after) {
            (Some(before), Some(after)) if before == after => {}
            (Some(before), Some(after)) => {
                return not(format!(
                    "{who}: it is another one after the fault ({what} {before}, then {after})"
                ));
            }
            _ => {
                return unknown(format!(
                    "{who}: it stood still, but whether the same one went on is not known \
                     ({what} was not read)"
                ));
            }
        }
    }
    Ok(format!(
        "{who}: state `T` during the fault, the same process went on after it"
    ))
}

/// `T` is stopped by a signal; `t` is a debugger's stop and not ours.
fn stopped(state: &str) -> bool {
    state.starts_with('T')
}
