//! Stops one process of each victim with SIGSTOP; the host lets it go on with SIGCONT.

mod config;
mod proof;
#[cfg(test)]
mod tests;

use blackstart_sdk::config::invalid;
use blackstart_sdk::fault::{
    ArmContext, Armed, Ending, Fact, FaultDescription, FaultHost, FaultVariant, Proof, Signal,
    prove_all, victims,
};
use blackstart_sdk::{Error, Window, field};

pub use config::Config;
use config::NS_PER_MS;

/// The armed fault.
#[derive(Debug)]
pub struct ProcessFreeze {
    victims: Vec<String>,
    role: String,
}

blackstart_sdk::register!(fault: ProcessFreeze);

/// Segments of a start-up, which a process that only stood still does not go through.
const NO_START_UP: [&str; 10] = [
    "reschedule",
    "container_start",
    "log_bringup",
    "engine_init",
    "weight_download",
    "weight_load",
    "torch_compile",
    "profile_kv_capture",
    "engine_ready",
    "server_ready",
];

impl FaultVariant for ProcessFreeze {
    type Config = Config;

    fn describe() -> FaultDescription {
        FaultDescription {
            summary: "Stops one process of each victim (SIGSTOP) and lets it go on after a \
                      while (SIGCONT)."
                .to_owned(),
            ending: Ending::HostUndoes,
            without_segments: NO_START_UP
                .map(|segment| field(segment, "a stopped process goes on, nothing starts anew"))
                .to_vec(),
            labels: Vec::new(),
        }
    }

    fn arm(
        config: Config,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error> {
        let until = end_of_freeze(&config, context)?;
        let role = config.process;
        let replicas = victims(context, host)?;
        for replica in &replicas {
            if !replica.process_roles.contains(&role) {
                return Err(invalid(
                    "process",
                    format!("replica `{}` has no process `{role}`", replica.id),
                    format!("one of: {}", replica.process_roles.join(", ")),
                ));
            }
        }
        // Everything is checked before the first effect is scheduled.
        let when = Window {
            at: context.fire_at,
            until: Some(until),
        };
        for replica in &replicas {
            host.send_signal(&replica.id, &role, Signal::Stop, when)?;
        }
        let victims: Vec<String> = replicas.into_iter().map(|r| r.id).collect();
        let armed = Armed {
            statement: format!(
                "SIGSTOP to the {role} process of {} for {} ms",
                victims.join(", "),
                config.duration_ms
            ),
            victims: victims.clone(),
        };
        Ok((ProcessFreeze { victims, role }, armed))
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(
            self.victims
                .iter()
                .map(|victim| proof::victim_stood_still(facts, victim, &self.role)),
        )
    }
}

/// The run instant at which the process goes on, if that is within the fault window.
fn end_of_freeze(config: &Config, context: &ArmContext) -> Result<i64, Error> {
    let room_ns = context.expire_at.saturating_sub(context.fire_at).max(0);
    let room_ms = room_ns / NS_PER_MS;
    let until = i64::try_from(config.duration_ms)
        .ok()
        .and_then(|ms| ms.checked_mul(NS_PER_MS))
        .and_then(|ns| context.fire_at.checked_add(ns))
        .filter(|until| *until <= context.expire_at);
    until.ok_or_else(|| {
        invalid(
            "duration_ms",
            format!(
                "{} ms of freeze do not fit the fault window: effects must have ended {room_ms} ms \
                 after the fire",
                config.duration_ms
            ),
            format!("at most {room_ms}, or a longer fault window"),
        )
    })
}
