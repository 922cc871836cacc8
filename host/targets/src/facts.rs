//! Facts about a replica, for the proof of a fault. `None` is "not readable", never "no": a
//! process that is certainly absent has the state `gone`.

use blackstart_record::Fact;

use crate::error::TargetError;
use crate::proc;
use crate::targets::{Replica, Runtime, Targets};

impl Targets {
    /// For every role: `process.<role>.pid`, `.start-time` (clock ticks since boot), `.state` (as
    /// in `/proc/<pid>/stat`, or `gone`), `.orphaned-pids` (living descendants of earlier main
    /// processes, separated by spaces; empty = none). For the replica: `target.restart-count`,
    /// `target.exit-code`, `target.exit-signal` (of the main process that ended last; readable
    /// only where the instrument supervises).
    ///
    /// # Errors
    /// [`TargetError::UnknownReplica`].
    pub fn facts(&self, replica: &str) -> Result<Vec<Fact>, TargetError> {
        let found = self.replica(replica)?;
        let mut facts = Vec::new();
        let mut add = |name: String, value: Option<String>| {
            facts.push(Fact {
                replica: replica.to_owned(),
                name,
                value,
            });
        };
        let orphans = self.orphaned_pids(found);
        for role in found.roles.keys() {
            let (pid, start_time, state) = match found.find_role(role, &self.protected) {
                Ok((pid, start_time)) => {
                    let state = proc::stat(pid)
                        .ok()
                        .filter(|s| s.start_time == start_time)
                        .map_or_else(|| "gone".to_owned(), |s| s.state.to_string());
                    (Some(pid), Some(start_time), Some(state))
                }
                Err(e) if certainly_absent(&e) => (None, None, Some("gone".to_owned())),
                Err(_) => (None, None, None),
            };
            add(format!("process.{role}.pid"), pid.map(|p| p.to_string()));
            add(
                format!("process.{role}.start-time"),
                start_time.map(|t| t.to_string()),
            );
            add(format!("process.{role}.state"), state);
            add(format!("process.{role}.orphaned-pids"), orphans.clone());
        }
        let (restarts, code, signal) = match &found.runtime {
            Runtime::Supervised(supervised) => {
                let exit = supervised.last_exit();
                (
                    Some(supervised.restarts().to_string()),
                    exit.and_then(|e| e.0).map(|c| c.to_string()),
                    exit.and_then(|e| e.1).map(|s| s.to_string()),
                )
            }
            Runtime::Existing(_) => (None, None, None),
        };
        add("target.restart-count".to_owned(), restarts);
        add("target.exit-code".to_owned(), code);
        add("target.exit-signal".to_owned(), signal);
        Ok(facts)
    }

    fn orphaned_pids(&self, replica: &Replica) -> Option<String> {
        // Without a readable /proc nothing is known about orphans.
        proc::stat(std::process::id()).ok()?;
        let orphans = match &replica.runtime {
            Runtime::Supervised(supervised) => supervised.living_orphans(),
            Runtime::Existing(existing) => existing.living_orphans(&self.protected),
        };
        let pids: Vec<String> = orphans.iter().map(|o| o.0.to_string()).collect();
        Some(pids.join(" "))
    }
}

/// Whether the lookup worked and found no process.
fn certainly_absent(error: &TargetError) -> bool {
    matches!(
        error,
        TargetError::VictimNotFound { .. } | TargetError::NoMatch { .. }
    )
}
