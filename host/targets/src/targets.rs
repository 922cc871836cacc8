//! All replicas of a run: launch, find victims, authorise, stop.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use blackstart_clock::RunClock;
use blackstart_plan::{ProcessSelector, ReplicaPlan, RuntimePlan, TargetPlan};

use crate::error::TargetError;
use crate::existing::Existing;
use crate::guard::{GuardError, Protected};
use crate::lookup::host_port;
use crate::process_ref::ProcessRef;
use crate::reexec::Reexec;
use crate::supervised::Supervised;
use crate::{EventSink, proc};

/// How a replica runs.
pub enum Runtime {
    /// Launched by the instrument.
    Supervised(Supervised),
    /// Already running.
    Existing(Existing),
}

/// One replica.
pub struct Replica {
    pub(crate) id: String,
    pub(crate) base_url: String,
    pub(crate) roles: BTreeMap<String, ProcessSelector>,
    pub(crate) runtime: Runtime,
}

impl Replica {
    /// Its name.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// How it runs.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// The main process now.
    pub(crate) fn main(&self, protected: &Protected) -> Result<(u32, u64), TargetError> {
        match &self.runtime {
            Runtime::Existing(existing) => existing.main(protected),
            Runtime::Supervised(supervised) => {
                supervised
                    .main()
                    .ok_or_else(|| TargetError::VictimNotFound {
                        replica: self.id.clone(),
                        role: "main".to_owned(),
                        reason: "its main process is not running now".to_owned(),
                    })
            }
        }
    }

    /// The process of a role now: pid and start time.
    pub(crate) fn find_role(
        &self,
        role: &str,
        protected: &Protected,
    ) -> Result<(u32, u64), TargetError> {
        let Some(selector) = self.roles.get(role) else {
            return Err(TargetError::UnknownRole {
                replica: self.id.clone(),
                role: role.to_owned(),
                known: listed(self.roles.keys()),
            });
        };
        let main = self.main(protected)?;
        match selector {
            ProcessSelector::Main => Ok(main),
            ProcessSelector::Contains { text } => {
                let all = proc::snapshot().map_err(|e| TargetError::Proc {
                    reason: e.to_string(),
                })?;
                all.descendants(main.0)
                    .into_iter()
                    .find(|s| {
                        s.comm.contains(text.as_str())
                            || proc::cmdline(s.pid).is_some_and(|c| c.contains(text.as_str()))
                    })
                    .map(|s| (s.pid, s.start_time))
                    .ok_or_else(|| TargetError::VictimNotFound {
                        replica: self.id.clone(),
                        role: role.to_owned(),
                        reason: format!(
                            "no descendant of main process {} has `{text}` in its title or \
                             command line; correct the role's `contains`",
                            main.0
                        ),
                    })
            }
        }
    }

    fn contains(&self, process: &ProcessRef) -> bool {
        match &self.runtime {
            Runtime::Supervised(supervised) => supervised.contains(process),
            Runtime::Existing(existing) => existing.contains(process),
        }
    }
}

/// The replicas of a run. Dropping them stops those that the instrument launched.
pub struct Targets {
    pub(crate) replicas: Vec<Replica>,
    pub(crate) protected: Arc<Protected>,
}

impl Targets {
    /// Launches or finds every replica; logs go to `server-<replica>.log` in `log_dir`.
    ///
    /// # Errors
    /// The first replica's that fails; those launched before it are stopped.
    pub fn launch(
        plan: &TargetPlan,
        log_dir: &Path,
        clock: RunClock,
        exec: &Reexec,
        sink: EventSink,
    ) -> Result<Self, TargetError> {
        let mut this = Self {
            replicas: Vec::new(),
            protected: Arc::new(Protected::new()),
        };
        for replica in &plan.replicas {
            let log_path = log_dir.join(format!("server-{}.log", replica.id));
            let added = this.start(replica, &log_path, clock, exec, sink.clone())?;
            this.replicas.push(added);
        }
        Ok(this)
    }

    fn start(
        &self,
        replica: &ReplicaPlan,
        log_path: &Path,
        clock: RunClock,
        exec: &Reexec,
        sink: EventSink,
    ) -> Result<Replica, TargetError> {
        let runtime = match &replica.runtime {
            RuntimePlan::Process(_) => {
                let supervised = Supervised::launch(replica, log_path, clock, exec, sink)?;
                self.protected.protect(supervised.supervisor_pid());
                Runtime::Supervised(supervised)
            }
            RuntimePlan::Url { .. } => Runtime::Existing(Existing::attach(
                replica,
                log_path,
                clock,
                &self.protected,
                sink,
            )?),
        };
        Ok(Replica {
            id: replica.id.clone(),
            base_url: replica.base_url.clone(),
            roles: replica.process_roles.clone(),
            runtime,
        })
    }

    /// Who may never be harmed; the watchdog is added here.
    pub fn protected(&self) -> &Arc<Protected> {
        &self.protected
    }

    /// The replicas, in the configuration's order.
    pub fn replicas(&self) -> &[Replica] {
        &self.replicas
    }

    /// One replica.
    ///
    /// # Errors
    /// [`TargetError::UnknownReplica`].
    pub fn replica(&self, id: &str) -> Result<&Replica, TargetError> {
        self.replicas
            .iter()
            .find(|r| r.id == id)
            .ok_or_else(|| TargetError::UnknownReplica {
                replica: id.to_owned(),
                known: listed(self.replicas.iter().map(|r| &r.id)),
            })
    }

    /// Whether a replica has a process role; says what it has instead.
    ///
    /// # Errors
    /// [`TargetError::UnknownReplica`], [`TargetError::UnknownRole`].
    pub fn check_role(&self, replica: &str, role: &str) -> Result<(), TargetError> {
        let found = self.replica(replica)?;
        if found.roles.contains_key(role) {
            return Ok(());
        }
        Err(TargetError::UnknownRole {
            replica: replica.to_owned(),
            role: role.to_owned(),
            known: listed(found.roles.keys()),
        })
    }

    /// Takes hold of the process that has a role now. It is authorised.
    ///
    /// # Errors
    /// When there is none, or the guard refuses it.
    pub fn resolve_role(&self, replica: &str, role: &str) -> Result<ProcessRef, TargetError> {
        let (pid, start_time) = self.replica(replica)?.find_role(role, &self.protected)?;
        self.hold(replica, role, pid, start_time)
    }

    fn hold(
        &self,
        replica: &str,
        role: &str,
        pid: u32,
        start_time: u64,
    ) -> Result<ProcessRef, TargetError> {
        let held =
            ProcessRef::open_same(pid, start_time).map_err(|e| TargetError::VictimNotFound {
                replica: replica.to_owned(),
                role: role.to_owned(),
                reason: if e.kind() == std::io::ErrorKind::NotFound {
                    format!("process {pid} has just ended")
                } else {
                    format!("process {pid} cannot be held: {e}")
                },
            })?;
        self.authorize(replica, &held)?;
        Ok(held)
    }

    /// Takes hold of the main process of a replica. It is authorised.
    ///
    /// # Errors
    /// When there is none, or the guard refuses it.
    pub fn resolve_main(&self, replica: &str) -> Result<ProcessRef, TargetError> {
        let (pid, start_time) = self.replica(replica)?.main(&self.protected)?;
        self.hold(replica, "main", pid, start_time)
    }

    /// The port of a replica's own address.
    pub fn port(&self, replica: &str) -> Option<u16> {
        let found = self.replica(replica).ok()?;
        host_port(&found.base_url).map(|(_, port)| port)
    }

    /// Whether an effect on this replica may touch this process: it is the very process, belongs
    /// to the replica's tree, and is no one who is protected.
    ///
    /// # Errors
    /// The guard's reason.
    pub fn authorize(&self, replica: &str, process: &ProcessRef) -> Result<(), TargetError> {
        let found = self.replica(replica)?;
        self.protected.check(process.pid(), process.start_time())?;
        let stat = proc::stat(process.pid())
            .ok()
            .filter(|s| s.start_time == process.start_time() && s.lives())
            .ok_or_else(|| GuardError::Ended {
                pid: process.pid(),
                replica: replica.to_owned(),
            })?;
        if !found.contains(process) {
            return Err(GuardError::Outside {
                pid: process.pid(),
                title: proc::title(&stat),
                replica: replica.to_owned(),
            }
            .into());
        }
        Ok(())
    }

    /// Stops every supervised replica, at the same time; returns `replica: process` for what could
    /// not be removed.
    pub fn stop(&self) -> Vec<String> {
        std::thread::scope(|scope| {
            let stops: Vec<_> = self
                .replicas
                .iter()
                .filter_map(|r| match &r.runtime {
                    Runtime::Supervised(s) => Some((r, scope.spawn(|| s.stop()))),
                    Runtime::Existing(_) => None,
                })
                .collect();
            stops
                .into_iter()
                .flat_map(|(r, stop)| {
                    let left = stop.join().unwrap_or_default();
                    left.into_iter().map(|p| format!("{}: {p}", r.id))
                })
                .collect()
        })
    }
}

impl Drop for Targets {
    fn drop(&mut self) {
        self.stop();
    }
}

fn listed<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<String> = names.map(|n| format!("`{n}`")).collect();
    if names.is_empty() {
        "none".to_owned()
    } else {
        names.join(", ")
    }
}
