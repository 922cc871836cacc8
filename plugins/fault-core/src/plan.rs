//! Instants and victims of an armed fault.

use blackstart_sdk::config::invalid;
use blackstart_sdk::fault::{ArmContext, Replica};
use blackstart_sdk::{Error, RunNs};

const NS_PER_MS: i64 = 1_000_000;

/// Nanoseconds of a duration; beyond what a run can hold, the largest there is.
pub(crate) fn ns(ms: u64) -> i64 {
    i64::try_from(ms).map_or(i64::MAX, |ms| ms.saturating_mul(NS_PER_MS))
}

/// Milliseconds from the fire to the instant at which effects must have ended.
pub(crate) fn room_ms(context: &ArmContext) -> i64 {
    context.expire_at.saturating_sub(context.fire_at).max(0) / NS_PER_MS
}

/// The run instant `ms` after the fire, which is at most the end of the fault window.
pub(crate) fn end(context: &ArmContext, key: &str, ms: u64) -> Result<RunNs, Error> {
    let until = context.fire_at.checked_add(ns(ms));
    until.filter(|u| *u <= context.expire_at).ok_or_else(|| {
        let room = room_ms(context);
        invalid(
            key,
            format!(
                "{ms} ms do not fit the fault window: effects must have ended {room} ms after the \
                 fire"
            ),
            format!("at most {room}, or a longer `phases.fault_window`"),
        )
    })
}

/// Whether `n` pauses fit the fault window, beside recoveries whose length nobody knows yet.
pub(crate) fn pauses(context: &ArmContext, key: &str, ms: u64, n: u64) -> Result<(), Error> {
    let room = u64::try_from(room_ms(context)).unwrap_or_default();
    if ms.saturating_mul(n) <= room {
        return Ok(());
    }
    Err(invalid(
        key,
        format!(
            "{n} pauses of {ms} ms do not fit the fault window: effects must have ended {room} ms \
             after the fire, and the victims' recoveries come on top"
        ),
        format!(
            "less than {}, or a longer `phases.fault_window`",
            room / n.max(1)
        ),
    ))
}

/// Whether a replica has the process that the configuration names.
pub(crate) fn has_process(replica: &Replica, role: &str) -> Result<(), Error> {
    if replica.process_roles.iter().any(|r| r == role) {
        return Ok(());
    }
    Err(invalid(
        "process",
        format!("replica `{}` has no process `{role}`", replica.id),
        format!("one of: {}", replica.process_roles.join(", ")),
    ))
}

/// Names of replicas.
pub(crate) fn ids(replicas: &[Replica]) -> Vec<String> {
    replicas.iter().map(|r| r.id.clone()).collect()
}
