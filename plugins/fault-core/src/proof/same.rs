//! Under a fault that ends by itself the victim goes on; were it started anew, the fault would have
//! ended with it, and segments of a start-up would be missing from the report.

use super::{Doubt, Facts, not, unknown};

/// That the processes of the victim after the fault are those before it.
pub fn nothing_started_anew(facts: &Facts<'_>) -> Result<(), Doubt> {
    let mut told = false;
    for role in facts.roles() {
        let pid = facts.read(&format!("process.{role}.pid"));
        let start = facts.read(&format!("process.{role}.start-time"));
        let after = facts.read(&format!("process.{role}.state")).after;
        let gone = after.is_some_and(|s| s == "gone" || s.starts_with(['Z', 'X']));
        if pid.before.is_some() && gone {
            return not(format!(
                "its {role} process ended in the run, and the fault with it"
            ));
        }
        let pids = pid.before.zip(pid.after);
        let starts = start.before.zip(start.after);
        if let Some((old, new)) = [pids, starts].into_iter().flatten().find(|(a, b)| a != b) {
            return not(format!(
                "its {role} process is another one after the fault ({old}, then {new}): it was \
                 started anew, and the fault ended with it"
            ));
        }
        if pid.before.is_some() && pid.after.is_none() {
            return unknown(format!("its {role} process was not read after the fault"));
        }
        told |= pids.is_some() && starts.is_some();
    }
    if told {
        Ok(())
    } else {
        unknown("whether the same process went on after the fault was not read")
    }
}
