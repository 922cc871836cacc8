//! Chains of signals: what the facts show of every victim, and whether all signals were sent.

use blackstart_sdk::fault::{Fact, Proof, prove_all};

use super::{Facts, Shown, not, process_died};
use crate::sequence::Sequence;

/// That each victim of a chain was hit.
pub fn chain_ran(facts: &[Fact], chain: &Sequence) -> Proof {
    if let Some(why) = chain.unfinished() {
        return Proof::DidNotHappen(why);
    }
    prove_all(chain.victims().into_iter().map(|victim| {
        let facts = Facts::new(facts, victim);
        facts.prove(process_died(&facts, chain.role(), chain.signal()))
    }))
}

/// That the one victim of a chain ended as often as it was hit.
pub fn flapped(facts: &[Fact], chain: &Sequence) -> Proof {
    if let Some(why) = chain.unfinished() {
        return Proof::DidNotHappen(why);
    }
    prove_all(chain.victims().into_iter().map(|victim| {
        let facts = Facts::new(facts, victim);
        facts.prove(ended_each_time(&facts, chain))
    }))
}

fn ended_each_time(facts: &Facts<'_>, chain: &Sequence) -> Shown {
    let died = process_died(facts, chain.role(), chain.signal())?;
    let times = chain.signals() as u64;
    let restarts = ["target.restart-count", "container.restart-count"]
        .iter()
        .find_map(|name| {
            let reading = facts.read(name);
            let before: u64 = reading.before?.parse().ok()?;
            let after: u64 = reading.after?.parse().ok()?;
            Some(after.saturating_sub(before))
        });
    let state = facts.read(&format!("process.{}.state", chain.role())).after;
    // After the last signal it may be on its way still.
    let down = state.is_some_and(|s| s == "gone" || s.starts_with(['Z', 'X']));
    match restarts {
        Some(n) if n + u64::from(down) >= times => {
            Ok(format!("{times} signals, {n} restarts; first, {died}"))
        }
        Some(n) => not(format!(
            "{times} signals, but its restart count grew by {n}"
        )),
        None => Ok(format!(
            "{times} signals, after each but the last it failed and served again (no restart is \
             counted); first, {died}"
        )),
    }
}
