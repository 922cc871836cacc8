//! Proven is a freeze of which the host saw both ends: the process in state `T` while the
//! fault was in force, and the very same process (id and start time) not in `T` after it.

use blackstart_sdk::fault::{Fact, Proof, fact};

/// Whether the victim's process stood still and then went on.
pub fn victim_stood_still(facts: &[Fact], victim: &str, role: &str) -> Proof {
    let read = |what: &str| fact(facts, victim, &format!("process.{role}.{what}"));
    let who = format!("{victim}: {role} process");

    let state = read("state");
    let during = state.and_then(|f| f.during.as_deref()).map(str::trim);
    let after = state.and_then(|f| f.after.as_deref()).map(str::trim);
    match during {
        None => {
            return Proof::CannotTell(format!(
                "{who}: its state was not read while it should stand still"
            ));
        }
        Some(state) if !stopped(state) => {
            return Proof::DidNotHappen(format!(
                "{who}: state `{state}` while it should stand still, not `T`"
            ));
        }
        Some(_) => {}
    }
    match after {
        None => {
            return Proof::CannotTell(format!(
                "{who}: it stood still, but its state was not read after the fault"
            ));
        }
        Some("gone") => return Proof::DidNotHappen(format!("{who}: it died while it was stopped")),
        Some(state) if stopped(state) => {
            return Proof::DidNotHappen(format!("{who}: it stood still and never went on"));
        }
        Some(_) => {}
    }
    for what in ["pid", "start-time"] {
        let fact = read(what);
        let before = fact.and_then(|f| f.before.as_deref());
        let after = fact.and_then(|f| f.after.as_deref());
        match (before, after) {
            (Some(before), Some(after)) if before == after => {}
            (Some(before), Some(after)) => {
                return Proof::DidNotHappen(format!(
                    "{who}: it is another one after the fault ({what} {before}, then {after})"
                ));
            }
            _ => {
                return Proof::CannotTell(format!(
                    "{who}: it stood still, but whether the same one went on is not known \
                     ({what} was not read)"
                ));
            }
        }
    }
    Proof::Happened(format!(
        "{who}: state `T` during the fault, the same process went on after it"
    ))
}

/// `T` is stopped by a signal; `t` is a debugger's stop and not ours.
fn stopped(state: &str) -> bool {
    state.starts_with('T')
}
