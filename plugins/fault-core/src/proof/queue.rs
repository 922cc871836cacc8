//! Queueing disciplines that the host puts on a replica's devices.

use super::{Facts, Shown, not, unknown};

/// Kinds of the root queues of the replica's devices but loopback, separated by spaces.
const KINDS: &str = "network.queue";
/// Packets that went through a queue of the fault's; after its end, its last count.
const PACKETS: &str = "network.queue-packets";

/// The kinds, each once.
fn queue_kinds(text: &str) -> Vec<&str> {
    let mut kinds: Vec<&str> = text.split_whitespace().collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// That every device had this kind of queue while the fault was in force, none had it outside of
/// it, and packets went through it.
pub fn queue_in_force(facts: &Facts<'_>, kind: &str) -> Shown {
    let reading = facts.read(KINDS);
    let Some(during) = reading.during.map(queue_kinds) else {
        return unknown("which queue its devices had during the fault was not read");
    };
    if during != [kind] {
        let had = during.join(", ");
        return not(format!(
            "the queue of its devices during the fault is `{had}`, not `{kind}`"
        ));
    }
    match reading.before.map(queue_kinds) {
        None => return unknown("which queue its devices had before the fault was not read"),
        Some(kinds) if kinds.contains(&kind) => {
            return not(format!("its devices had a queue `{kind}` before the fault"));
        }
        Some(_) => {}
    }
    match reading.after.map(queue_kinds) {
        None => return unknown("which queue its devices had after the fault was not read"),
        Some(kinds) if kinds.contains(&kind) => {
            return not(format!("the queue `{kind}` was there after the fault, too"));
        }
        Some(_) => {}
    }
    let packets = facts.read(PACKETS);
    match packets.after.or(packets.during).map(str::parse::<u64>) {
        Some(Ok(0)) => not(format!("no packet went through the queue `{kind}`")),
        Some(Ok(n)) => Ok(format!("{n} packets went through a queue `{kind}`")),
        _ => Ok(format!("its devices had a queue `{kind}` during the fault")),
    }
}
