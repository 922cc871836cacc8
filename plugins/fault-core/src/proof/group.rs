//! What a control group and a file system say.

use super::{Facts, Shown, counter, died, not, same, unknown};

/// That the group was frozen, and thawed with the same processes.
pub fn frozen(facts: &Facts<'_>) -> Shown {
    let reading = facts.read("cgroup.frozen");
    let unread = |when: &str| {
        unknown(format!(
            "whether its control group was frozen was not read {when} the fault"
        ))
    };
    match (reading.during, reading.before) {
        (None, _) => return unread("during"),
        (Some("1"), Some("1")) => return not("its control group was frozen before the fault"),
        (Some("1"), Some(_)) => {}
        (Some("1"), None) => return unread("before"),
        (Some(_), _) => {
            return not("its control group was not frozen while it should be");
        }
    }
    match reading.after {
        None => return unread("after"),
        Some("0") => {}
        Some(_) => return not("its control group was never thawed"),
    }
    same::nothing_started_anew(facts)?;
    Ok("its control group was frozen during the fault, and the same processes went on".to_owned())
}

/// That a processor quota was in force, and the replica ran into it.
pub fn throttled(facts: &Facts<'_>, percent: u32) -> Shown {
    let reading = facts.read("cgroup.cpu-quota-percent");
    let quota = match (reading.during, reading.before) {
        (None, _) => return unknown("its processor quota was not read during the fault"),
        (_, None) => return unknown("its processor quota was not read before the fault"),
        (Some(during), Some(before)) if during == before => {
            return not(format!(
                "its processor quota was `{during}` before the fault and during it"
            ));
        }
        (Some(during), _) => during,
    };
    // The kernel counts in microseconds a period, so that the last percent may be cut; no quota
    // is below 1 ms a period.
    let asked = f64::from(percent);
    match quota.parse::<f64>() {
        Ok(had) if (had - asked).abs() <= 1.0 => {}
        _ => {
            return not(format!(
                "its processor quota was `{quota}` percent during the fault, not {percent}"
            ));
        }
    }
    let n = counter::grew(
        facts,
        "cgroup.throttled-periods",
        "periods in which it was held back",
        false,
    )?;
    same::nothing_started_anew(facts)?;
    Ok(format!(
        "it was held back at {quota} % of a core in {n} periods"
    ))
}

/// That the kernel ended the server for want of memory.
pub fn out_of_memory(facts: &Facts<'_>) -> Shown {
    let kills = counter::grew(facts, "cgroup.oom-kills", "kills for want of memory", false);
    let engine = facts.read("container.oom-killed");
    let engine_says =
        engine.before != Some("true") && [engine.during, engine.after].contains(&Some("true"));
    let by = match (&kills, engine_says) {
        (Ok(n), _) => format!("the kernel counts {n} kills for want of memory"),
        (Err(_), true) => "the container engine says that it was killed for want of memory".into(),
        (Err(doubt), false) => return Err(doubt.clone()),
    };
    // Someone was killed: that it was the server, its process must tell.
    let mut doubts = Vec::new();
    for role in facts.roles() {
        match died::another_or_gone(facts, role) {
            Ok(how) => return Ok(format!("{by}; {role} process: {how}")),
            Err(doubt) => doubts.push(doubt),
        }
    }
    match doubts.iter().any(|d| matches!(d, super::Doubt::Not(_))) {
        true => not(format!("{by}, but its processes went on")),
        false => unknown(format!("{by}; what became of its processes was not read")),
    }
}

/// That a file system was filled down to what should be left, give or take one MiB in which others
/// wrote, and had more room before.
pub fn disk_filled(facts: &Facts<'_>, leave_bytes: u64) -> Shown {
    const SLACK: u64 = 1 << 20;
    let reading = facts.read("disk.available-bytes");
    let number = |text: Option<&str>| text.and_then(|t| t.parse::<u64>().ok());
    let Some(before) = number(reading.before) else {
        return unknown("the space that is left was not read before the fault");
    };
    let Some(during) = number(reading.during) else {
        return unknown("the space that is left was not read during the fault");
    };
    if during > leave_bytes.saturating_add(SLACK) {
        return not(format!(
            "{during} bytes were left during the fault, not {leave_bytes}"
        ));
    }
    if before <= during.saturating_add(SLACK) {
        return not(format!(
            "the file system was as full before: {before} bytes were left, {during} during the fault"
        ));
    }
    Ok(format!(
        "{before} bytes were left before the fault, {during} during it"
    ))
}
