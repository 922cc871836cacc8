//! Lives of the replicas: starts, ends, orphans, and starts that did not come.

use blackstart_plan::Plan;
use blackstart_record::{Event, EventKind, ReplicaStep};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An end of a main process.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaExit {
    /// When.
    pub at_ns: i64,
    /// Its pid.
    pub pid: u32,
    /// Exit code, if it exited.
    pub code: Option<i32>,
    /// Signal, if one ended it.
    pub signal: Option<i32>,
    /// Descendants that outlived it.
    pub orphans: Vec<String>,
    /// When those were gone.
    pub orphans_gone_ns: Option<i64>,
    /// Whether the supervisor killed them.
    pub orphans_killed: Option<bool>,
    /// Whether this end followed the fire.
    pub after_fire: bool,
    /// `victim` or `survivor`: an end of a survivor after the fire is a secondary failure.
    pub role: String,
}

/// One replica's lives.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReplicaLives {
    /// The replica.
    pub replica: String,
    /// Starts that were seen: run time and pid.
    pub starts: Vec<(i64, u32)>,
    /// Starts after the fire.
    pub restarts_after_fire: u64,
    /// Ends that were seen.
    pub exits: Vec<ReplicaExit>,
    /// Why it was not started again, if the policy said so.
    pub not_restarted: Option<String>,
}

/// Lives of every declared replica.
pub(crate) fn analyze(plan: &Plan, events: &[Event], fire_ns: Option<i64>) -> Vec<ReplicaLives> {
    plan.target
        .replicas
        .iter()
        .map(|replica| {
            let victim = plan
                .fault
                .as_ref()
                .is_some_and(|f| f.victims.contains(&replica.id));
            lives(&replica.id, victim, events, fire_ns)
        })
        .collect()
}

fn lives(id: &str, victim: bool, events: &[Event], fire_ns: Option<i64>) -> ReplicaLives {
    let after_fire = |at_ns: i64| fire_ns.is_some_and(|f| at_ns > f);
    let mut lives = ReplicaLives {
        replica: id.to_owned(),
        starts: Vec::new(),
        restarts_after_fire: 0,
        exits: Vec::new(),
        not_restarted: None,
    };
    for event in events {
        let EventKind::Replica(step) = &event.kind else {
            continue;
        };
        match step {
            ReplicaStep::Started { replica, pid, .. } if replica == id => {
                lives.starts.push((event.at_ns, *pid));
                lives.restarts_after_fire += u64::from(after_fire(event.at_ns));
            }
            ReplicaStep::Exited {
                replica,
                pid,
                code,
                signal,
                orphans,
            } if replica == id => lives.exits.push(ReplicaExit {
                at_ns: event.at_ns,
                pid: *pid,
                code: *code,
                signal: *signal,
                orphans: orphans.clone(),
                orphans_gone_ns: None,
                orphans_killed: None,
                after_fire: after_fire(event.at_ns),
                role: if victim { "victim" } else { "survivor" }.to_owned(),
            }),
            ReplicaStep::OrphansGone {
                replica, killed, ..
            } if replica == id => {
                if let Some(last) = lives.exits.last_mut() {
                    last.orphans_gone_ns = Some(event.at_ns);
                    last.orphans_killed = Some(*killed);
                }
            }
            ReplicaStep::NotRestarted { replica, reason } if replica == id => {
                lives.not_restarted = Some(reason.clone());
            }
            _ => {}
        }
    }
    lives
}
