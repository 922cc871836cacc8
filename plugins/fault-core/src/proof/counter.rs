//! Counters: what they counted during the fault happened.

use super::{Facts, Shown, not, unknown};

fn number(text: Option<&str>) -> Option<u64> {
    text?.parse().ok()
}

/// By how much a counter grew; its readings after the fault count, since it keeps its last value.
/// `what` is what it counts, in the plural. `from_zero` is a counter of the fault's own, which
/// begins at 0 when it is not there yet.
pub fn grew(
    facts: &Facts<'_>,
    name: &str,
    what: &str,
    from_zero: bool,
) -> Result<u64, super::Doubt> {
    let reading = facts.read(name);
    let unread = |when: &str| unknown(format!("the count of {what} was not read {when} the fault"));
    let before = match (reading.before, from_zero) {
        (None, true) => 0,
        (text, _) => match number(text) {
            Some(n) => n,
            None => return unread("before"),
        },
    };
    let (during, after) = (number(reading.during), number(reading.after));
    let grown = during.max(after).map(|most| most.saturating_sub(before));
    match (grown, after) {
        (Some(grown), _) if grown > 0 => Ok(grown),
        // Between a look at half time and the end it may have grown.
        (_, None) => unread("after"),
        _ => not(format!("0 {what}")),
    }
}

/// That packets were hit, and how many.
pub fn packets(facts: &Facts<'_>, name: &str, what: &str) -> Shown {
    let n = grew(facts, name, what, true)?;
    Ok(format!("{n} {what}"))
}
