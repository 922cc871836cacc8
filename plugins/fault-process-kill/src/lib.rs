//! Sends a signal to one process of each victim and proves that it died.

mod config;
mod orphans;
mod proof;
#[cfg(test)]
mod tests;

use blackstart_sdk::fault::{
    ArmContext, Armed, Ending, Fact, FaultDescription, FaultHost, FaultVariant, Proof, prove_all,
    victims,
};
use blackstart_sdk::{Error, Window, config::invalid};

pub use config::{Config, Deadly};

/// The armed fault.
#[derive(Debug)]
pub struct ProcessKill {
    victims: Vec<String>,
    role: String,
    signal: Deadly,
}

blackstart_sdk::register!(fault: ProcessKill);

impl FaultVariant for ProcessKill {
    type Config = Config;

    fn describe() -> FaultDescription {
        FaultDescription {
            summary: "Kills one process of each victim with a signal (SIGKILL unless said \
                      otherwise); the victim comes back by its own restart policy."
                .to_owned(),
            ending: Ending::VictimRestarts,
            without_segments: Vec::new(),
            labels: Vec::new(),
        }
    }

    fn arm(
        config: Config,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<(Self, Armed), Error> {
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
            until: None,
        };
        for replica in &replicas {
            host.send_signal(&replica.id, &role, config.signal.into(), when)?;
        }
        let victims: Vec<String> = replicas.into_iter().map(|r| r.id).collect();
        let armed = Armed {
            statement: format!(
                "SIG{} to the {role} process of {}",
                config.signal.name(),
                victims.join(", ")
            ),
            victims: victims.clone(),
        };
        let kill = ProcessKill {
            victims,
            role,
            signal: config.signal,
        };
        Ok((kill, armed))
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        prove_all(
            self.victims
                .iter()
                .map(|victim| proof::victim_died(facts, victim, &self.role, self.signal)),
        )
    }
}
