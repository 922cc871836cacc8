//! What the container engine says of a victim's container.

use super::{Doubt, Facts, Reading, Shown, not, unknown};

/// Names of the networks that the container is attached to, separated by spaces; empty = none.
const NETWORKS: &str = "container.networks";

struct Container<'f> {
    id: Reading<'f>,
    state: Reading<'f>,
    started: Reading<'f>,
}

impl<'f> Container<'f> {
    fn of(facts: &Facts<'f>) -> Self {
        let read = |what: &str| facts.read(&format!("container.{what}"));
        Container {
            id: read("id"),
            state: read("state"),
            started: read("started-at"),
        }
    }

    /// That it ran before the fault; its id then.
    fn ran_before(&self) -> Result<&'f str, Doubt> {
        match self.state.before {
            None => return unknown("the state of its container was not read before the fault"),
            Some("running") => {}
            Some(state) => return not(format!("its container was `{state}` before the fault")),
        }
        let id = self.id.before.filter(|id| !id.is_empty());
        id.map_or_else(
            || unknown("the id of its container was not read before the fault"),
            Ok,
        )
    }

    /// That the container and its start are the same before and after the fault.
    fn went_on(&self) -> Result<(), Doubt> {
        for (what, reading) in [("id", self.id), ("start", self.started)] {
            match reading.before.zip(reading.after) {
                Some((old, new)) if old == new => {}
                Some((old, new)) => {
                    return not(format!(
                        "the {what} of its container is another one after the fault ({old}, then \
                         {new})"
                    ));
                }
                None => {
                    return unknown(format!(
                        "whether the same container went on was not read ({what})"
                    ));
                }
            }
        }
        Ok(())
    }
}

fn is_down(state: &str) -> bool {
    matches!(
        state,
        "exited" | "dead" | "removing" | "restarting" | "gone"
    )
}

/// First twelve digits, as people know them.
fn short(id: &str) -> &str {
    id.get(..12).unwrap_or(id)
}

/// That it was paused, and the same container ran on after it.
pub fn paused(facts: &Facts<'_>) -> Shown {
    let container = Container::of(facts);
    container.ran_before()?;
    match container.state.during {
        None => return unknown("the state of its container was not read during the fault"),
        Some("paused") => {}
        Some(state) => {
            return not(format!(
                "its container was `{state}` while it should be paused"
            ));
        }
    }
    match container.state.after {
        None => return unknown("the state of its container was not read after the fault"),
        Some("running") => {}
        Some(state) => return not(format!("its container was `{state}` after the pause")),
    }
    container.went_on()?;
    Ok("its container was paused, and the same one ran on after it".to_owned())
}

/// That the container's main process ended.
pub fn ended(facts: &Facts<'_>) -> Shown {
    let container = Container::of(facts);
    let id = short(container.ran_before()?);
    let again = match container.state.after {
        Some("running") => "it ran at the end of the run",
        Some(_) => "it did not run at the end of the run",
        None => "whether it ran at the end of the run was not read",
    };
    for (state, when) in [
        (container.state.during, "during"),
        (container.state.after, "after"),
    ] {
        if let Some(state) = state.filter(|s| is_down(s)) {
            return Ok(format!(
                "container {id} was `{state}` {when} the fault; {again}"
            ));
        }
    }
    let starts = [container.started.during, container.started.after];
    let other = |later: Option<&str>| later.is_some_and(|at| Some(at) != container.started.before);
    if container.started.before.is_some() && starts.into_iter().any(other) {
        return Ok(format!(
            "container {id} was started once more since; {again}"
        ));
    }
    // Running, and since the same instant as before.
    match (container.state.after, container.started.before, starts[1]) {
        (Some(_), Some(_), Some(_)) => not(format!("container {id} ran on")),
        _ => unknown(format!(
            "what became of container {id} was not read after the fault"
        )),
    }
}

/// That the same container was stopped and started.
pub fn restarted(facts: &Facts<'_>) -> Shown {
    let container = Container::of(facts);
    let id = container.ran_before()?;
    match container.id.after {
        None => return unknown("the id of its container was not read after the fault"),
        Some(after) if after != id => {
            return not(format!(
                "its container is another one after the fault ({}, then {})",
                short(id),
                short(after)
            ));
        }
        Some(_) => {}
    }
    let id = short(id);
    match container.started.before.zip(container.started.after) {
        None => return unknown(format!("when container {id} was started was not read")),
        Some((old, new)) if old == new => {
            return not(format!("container {id} ran on since {old}"));
        }
        Some(_) => {}
    }
    match container.state.after {
        Some("running") => Ok(format!("container {id} was started once more")),
        Some(state) => not(format!("container {id} was `{state}` after its restart")),
        None => unknown(format!(
            "whether container {id} ran after its restart was not read"
        )),
    }
}

/// That another container stands in its place.
pub fn made_anew(facts: &Facts<'_>) -> Shown {
    let container = Container::of(facts);
    let id = container.ran_before()?;
    let id = short(id);
    let after = container.id.after.map(short);
    match (after, container.state.after) {
        (Some(after), _) if after == id => not(format!("container {id} was not replaced")),
        (Some(after), Some("running")) => Ok(format!("container {after} runs in place of {id}")),
        (Some(after), Some(state)) => not(format!(
            "container {after} in place of {id} was `{state}` after the fault"
        )),
        _ => unknown(format!(
            "which container stands in place of {id} was not read after the fault"
        )),
    }
}

/// That it was off a network, or off all, and on again.
pub fn off_the_network(facts: &Facts<'_>, network: Option<&str>) -> Shown {
    let container = Container::of(facts);
    container.ran_before()?;
    let reading = facts.read(NETWORKS);
    let names = |text: &'_ str| -> Vec<String> {
        let mut names: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
        names.sort_unstable();
        names
    };
    let unread = |when: &str| {
        unknown(format!(
            "the networks of its container were not read {when} the fault"
        ))
    };
    let Some(before) = reading.before.map(names) else {
        return unread("before");
    };
    let Some(during) = reading.during.map(names) else {
        return unread("during");
    };
    let Some(after) = reading.after.map(names) else {
        return unread("after");
    };
    let left: Vec<&String> = match network {
        Some(one) => before.iter().filter(|n| *n == one).collect(),
        None => before.iter().collect(),
    };
    if left.is_empty() {
        return not(match network {
            Some(one) => format!("its container was not on network `{one}` before the fault"),
            None => "its container was on no network before the fault".to_owned(),
        });
    }
    if let Some(still) = left.iter().find(|n| during.contains(n)) {
        return not(format!(
            "its container was on network `{still}` during the fault, too"
        ));
    }
    if let Some(missing) = left.iter().find(|n| !after.contains(n)) {
        return not(format!(
            "its container was not on network `{missing}` again after the fault"
        ));
    }
    container.went_on()?;
    let left: Vec<&str> = left.into_iter().map(String::as_str).collect();
    Ok(format!(
        "its container was off {} during the fault, and on again after it",
        left.join(", ")
    ))
}
