//! What a fault plugin sees of the host: targets, clock, and the timeline, dry or live.

use std::sync::Mutex;

use blackstart_clock::RunClock;
use blackstart_effects::{
    Action, Condition, HttpRequest, Limit, NetworkRule, Operation, ScheduleError, Scheduler, Signal,
};
use blackstart_plan::{Plan, RestartPolicy, RuntimePlan};
use blackstart_plugins::{
    Condition as PluginCondition, EffectAction, EffectError, EffectRequest, FaultHost, Field,
    HttpRequest as PluginRequest, Limit as PluginLimit, NetworkRule as PluginRule,
    Signal as PluginSignal, TargetReplica,
};

/// A host whose timeline executes nothing: for `--dry-run` and for refusals before a start.
#[derive(Default)]
pub struct DryHost {
    targets: Vec<TargetReplica>,
    effects: Mutex<Vec<EffectRequest>>,
}

impl DryHost {
    /// A dry host that shows the plan's targets.
    pub fn of(plan: &Plan) -> Self {
        Self {
            targets: target_replicas(plan),
            effects: Mutex::default(),
        }
    }

    /// What was put on the timeline.
    pub fn effects(&self) -> Vec<EffectRequest> {
        lock(&self.effects).clone()
    }
}

impl FaultHost for DryHost {
    fn now(&self) -> i64 {
        // Arming comes before the epoch.
        -1
    }

    fn targets(&self) -> Vec<TargetReplica> {
        self.targets.clone()
    }

    fn schedule(&self, effect: EffectRequest) -> Result<u32, EffectError> {
        check_role(&self.targets, &effect.action)?;
        let mut effects = lock(&self.effects);
        effects.push(effect);
        Ok(effects.len() as u32 - 1)
    }
}

/// The host of a run.
pub struct LiveHost {
    targets: Vec<TargetReplica>,
    clock: RunClock,
    scheduler: Scheduler,
    last_until_ns: Mutex<Option<i64>>,
}

impl LiveHost {
    /// The host of a run whose timeline this is.
    pub fn new(plan: &Plan, clock: RunClock, scheduler: Scheduler) -> Self {
        Self {
            targets: target_replicas(plan),
            clock,
            scheduler,
            last_until_ns: Mutex::new(None),
        }
    }

    /// The latest end of an effect that the host undoes.
    pub fn last_until_ns(&self) -> Option<i64> {
        *lock(&self.last_until_ns)
    }
}

impl FaultHost for LiveHost {
    fn now(&self) -> i64 {
        self.clock.now()
    }

    fn targets(&self) -> Vec<TargetReplica> {
        self.targets.clone()
    }

    fn schedule(&self, effect: EffectRequest) -> Result<u32, EffectError> {
        check_role(&self.targets, &effect.action)?;
        let until_ns = effect.until_ns;
        let Some(action) = action(&self.targets, effect.action, until_ns) else {
            return Err(EffectError::Unsupported(NO_CONTAINERS.to_owned()));
        };
        // A wait has nothing that is undone at its end.
        let until_ns = until_ns.filter(|_| !matches!(action, Action::Watch { .. }));
        let id = self
            .scheduler
            .schedule(action, effect.at_ns, until_ns)
            .map_err(|e| match e {
                ScheduleError::Operation { .. } => EffectError::Unsupported(e.to_string()),
                e => EffectError::Other(e.to_string()),
            })?;
        let mut last = lock(&self.last_until_ns);
        *last = (*last).max(until_ns);
        Ok(id)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// The plan's replicas, as plugins see them.
fn target_replicas(plan: &Plan) -> Vec<TargetReplica> {
    let field = |key: &str, value: &str| Field {
        key: key.to_owned(),
        value: value.to_owned(),
    };
    plan.target
        .replicas
        .iter()
        .map(|r| {
            let mut attributes = vec![field("base-url", &r.base_url)];
            if let Some(url) = &r.admin_url {
                attributes.push(field("admin-url", url));
            }
            let runtime = match &r.runtime {
                RuntimePlan::Process(p) => {
                    let policy = match p.restart {
                        RestartPolicy::No => "no",
                        RestartPolicy::OnFailure => "on-failure",
                        RestartPolicy::Always => "always",
                    };
                    attributes.push(field("restart-policy", policy));
                    "process"
                }
                RuntimePlan::Url { .. } => "url",
            };
            TargetReplica {
                id: r.id.clone(),
                runtime: runtime.to_owned(),
                process_roles: r.process_roles.keys().cloned().collect(),
                attributes,
            }
        })
        .collect()
}

fn check_role(targets: &[TargetReplica], action: &EffectAction) -> Result<(), EffectError> {
    let (replica, process_role) = match action {
        EffectAction::Signal {
            replica,
            process_role,
            ..
        } => (replica, process_role),
        EffectAction::Container { .. } => {
            return Err(EffectError::Unsupported(NO_CONTAINERS.to_owned()));
        }
        // The adapter has checked that the replica is one.
        EffectAction::Network { .. }
        | EffectAction::Resources { .. }
        | EffectAction::Watch { .. }
        | EffectAction::Http { .. } => return Ok(()),
    };
    let Some(target) = targets.iter().find(|t| t.id == *replica) else {
        return Err(EffectError::Unsupported(format!(
            "there is no replica `{replica}`"
        )));
    };
    if target.process_roles.contains(process_role) {
        return Ok(());
    }
    Err(EffectError::Unsupported(format!(
        "replica `{replica}` has no process role `{process_role}`; it has: {}",
        target.process_roles.join(", ")
    )))
}

/// No target of this release is a container that the instrument knows as one.
const NO_CONTAINERS: &str = "operations of a container engine are not available: no target of this \
                             release is a container that the instrument knows as one; a signal to the \
                             server's process (`process-kill`, `graceful-stop`) reaches it wherever it runs";

/// What the timeline does; `None` for what [`check_role`] refuses.
fn action(
    targets: &[TargetReplica],
    action: EffectAction,
    until_ns: Option<i64>,
) -> Option<Action> {
    Some(match action {
        EffectAction::Container { .. } => return None,
        EffectAction::Network { replica, rule } => Action::Operation {
            replica,
            operation: Operation::Network(match rule {
                PluginRule::DropAll => NetworkRule::DropAll,
                PluginRule::RejectWithReset => NetworkRule::RejectWithReset,
                PluginRule::Lose(percent) => NetworkRule::Lose(percent),
                PluginRule::Delay(us) => NetworkRule::Delay(us),
                PluginRule::LimitSend(rate) => NetworkRule::LimitSend(rate),
                PluginRule::LimitReceive(rate) => NetworkRule::LimitReceive(rate),
            }),
        },
        EffectAction::Resources { replica, limit } => Action::Operation {
            replica,
            operation: Operation::Resources(match limit {
                PluginLimit::Freeze => Limit::Freeze,
                PluginLimit::CpuPercent(percent) => Limit::CpuPercent(percent),
                PluginLimit::MemoryHeadroomBytes(n) => Limit::MemoryHeadroom(n),
                PluginLimit::FillDisk { path, leave_bytes } => Limit::FillDisk {
                    path,
                    leave: leave_bytes,
                },
            }),
        },
        EffectAction::Watch { replica, condition } => Action::Watch {
            replica,
            condition: match condition {
                PluginCondition::StartedAgain => Condition::StartedAgain,
                PluginCondition::ServingAgain => Condition::ServingAgain,
            },
            // The adapter asks every wait for an end.
            deadline: until_ns.unwrap_or(i64::MAX),
        },
        EffectAction::Signal {
            replica,
            process_role,
            signal,
        } => Action::Signal {
            replica,
            role: process_role,
            signal: match signal {
                PluginSignal::Term => Signal::Term,
                PluginSignal::Kill => Signal::Kill,
                PluginSignal::Stop => Signal::Stop,
                PluginSignal::Cont => Signal::Cont,
                PluginSignal::Hup => Signal::Hup,
                PluginSignal::Int => Signal::Int,
                PluginSignal::Usr1 => Signal::Usr1,
                PluginSignal::Usr2 => Signal::Usr2,
                PluginSignal::Abrt => Signal::Abrt,
                PluginSignal::Segv => Signal::Segv,
            },
        },
        EffectAction::Http { request, on_expiry } => Action::Http {
            replica: addressed(targets, &request.url),
            request: self::request(request),
            on_expiry: on_expiry.map(self::request),
        },
    })
}

/// The replica whose own or admin address a URL starts with.
fn addressed(targets: &[TargetReplica], url: &str) -> Option<String> {
    targets
        .iter()
        .find(|t| {
            t.attributes.iter().any(|a| {
                a.key.ends_with("-url")
                    && url
                        .strip_prefix(&a.value)
                        .is_some_and(|rest| rest.starts_with('/'))
            })
        })
        .map(|t| t.id.clone())
}

fn request(request: PluginRequest) -> HttpRequest {
    HttpRequest {
        method: request.method,
        url: request.url,
        headers: request
            .headers
            .into_iter()
            .map(|f| (f.key, f.value))
            .collect(),
        body: request.body,
    }
}

/// What an effect is, for people.
pub fn describe(effect: &EffectAction) -> String {
    action(&[], effect.clone(), None).map_or_else(|| NO_CONTAINERS.to_owned(), |a| a.describe())
}
