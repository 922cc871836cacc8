//! Host functions of the fault world. Every effect passes the grants here, one by
//! one, before it reaches the timeline.

use std::sync::Arc;

use super::types::{
    Condition, ContainerOperation, EffectAction, EffectError, EffectRequest, FaultHost,
    HttpRequest, Limit, NetworkRule, Signal, TargetReplica,
};
use super::{MAX_BODY_BYTES, MAX_EFFECTS, MAX_HEADERS};
use crate::bindings::fault::blackstart::plugin::{
    clock, conditions, effect_container, effect_http, effect_network, effect_process,
    effect_resources, targets, types,
};
use crate::grants::{Grants, ReplicaGrant};
use crate::host::to_fields;
use crate::instance::HostState;
use crate::limits::MAX_NAME_BYTES;
use crate::text::shown;
use crate::types::Field;

/// Longest value of a header, in bytes.
const MAX_HEADER_BYTES: usize = 8 << 10;
/// Longest name of a signal, in bytes.
const MAX_SIGNAL_BYTES: usize = 16;
/// Longest path, in bytes.
const MAX_PATH_BYTES: usize = 4096;

/// What the store of a fault holds.
pub(crate) struct FaultWorld {
    pub host: Arc<dyn FaultHost>,
    pub grants: Arc<Grants>,
    /// Only `arm` and `observe` may put effects on the timeline.
    pub may_schedule: bool,
    pub scheduled: usize,
    /// Where effects must lie, as the plugin was told when it was armed.
    pub limits: Option<TimeLimits>,
}

/// Instants of a run that no effect may pass.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeLimits {
    /// An effect that the host undoes has ended by then.
    pub expire_at_ns: i64,
    /// No effect starts later.
    pub run_end_ns: i64,
}

impl TimeLimits {
    /// Beyond the run nobody measures what an effect does, and one that is still in force reaches
    /// into the next run.
    fn check(self, when: types::Window) -> Result<(), EffectError> {
        let TimeLimits {
            expire_at_ns,
            run_end_ns,
        } = self;
        if when.at > run_end_ns {
            return Err(EffectError::Unsupported(format!(
                "an effect at {} would come after the end of the run at {} (`run-end`); \
                 let it come earlier, or lengthen [phases]",
                seconds(when.at),
                seconds(run_end_ns)
            )));
        }
        if let Some(until) = when.until.filter(|until| *until > expire_at_ns) {
            return Err(EffectError::Unsupported(format!(
                "an effect until {} would last beyond {}, when every effect must have been undone \
                 (`expire-at`); end it by then, or lengthen `phases.fault_window`",
                seconds(until),
                seconds(expire_at_ns)
            )));
        }
        Ok(())
    }
}

/// An instant of the run, for people: seconds to the nanosecond, so that two that differ look so.
fn seconds(ns: i64) -> String {
    let (whole, part) = (
        ns.unsigned_abs() / 1_000_000_000,
        ns.unsigned_abs() % 1_000_000_000,
    );
    let fraction = format!("{part:09}");
    let fraction = fraction.trim_end_matches('0');
    let sign = if ns < 0 { "-" } else { "" };
    if fraction.is_empty() {
        format!("{sign}{whole} s")
    } else {
        format!("{sign}{whole}.{fraction} s")
    }
}

impl FaultWorld {
    fn schedule(&mut self, action: EffectAction, when: types::Window) -> Result<u32, EffectError> {
        if !self.may_schedule {
            return Err(EffectError::Denied(
                "effects are scheduled in `arm` and `observe` only".into(),
            ));
        }
        if self.scheduled >= MAX_EFFECTS {
            return Err(EffectError::Denied(format!(
                "a fault may schedule at most {MAX_EFFECTS} effects"
            )));
        }
        if when.until.is_some_and(|until| until < when.at) {
            return Err(EffectError::Other(
                "an effect cannot end before it starts".into(),
            ));
        }
        if let Some(limits) = self.limits {
            limits.check(when)?;
        }
        let effect = self.host.schedule(EffectRequest {
            action,
            at_ns: when.at,
            until_ns: when.until,
        })?;
        self.scheduled += 1;
        Ok(effect)
    }

    /// The replica, if the plugin may do this to it.
    fn granted(&self, grant: ReplicaGrant, replica: &str) -> Result<TargetReplica, EffectError> {
        self.grants
            .check(grant, replica)
            .map_err(EffectError::Denied)?;
        self.known(replica)
    }

    fn known(&self, replica: &str) -> Result<TargetReplica, EffectError> {
        let targets = self.host.targets();
        let found = targets.iter().find(|t| t.id == replica).cloned();
        found.ok_or_else(|| {
            EffectError::Unsupported(format!(
                "there is no replica `{}`; replicas: {}",
                shown(replica, MAX_NAME_BYTES),
                names(targets.iter().map(|t| &t.id))
            ))
        })
    }

    fn container(
        &mut self,
        replica: String,
        operation: ContainerOperation,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        self.granted(ReplicaGrant::Container, &replica)?;
        if let ContainerOperation::Kill(signal) = &operation
            && !(signal.len() <= MAX_SIGNAL_BYTES
                && signal
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'+'))
        {
            return Err(EffectError::Other("a signal is named like `KILL`".into()));
        }
        if let ContainerOperation::Disconnect(Some(network)) = &operation
            && (network.is_empty() || network.len() > MAX_NAME_BYTES)
        {
            return Err(EffectError::Other("the network's name is not one".into()));
        }
        self.schedule(EffectAction::Container { replica, operation }, when)
    }

    fn network(
        &mut self,
        replica: String,
        rule: NetworkRule,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        self.granted(ReplicaGrant::Network, &replica)?;
        needs_end(when, "a packet rule")?;
        self.schedule(EffectAction::Network { replica, rule }, when)
    }

    fn resources(
        &mut self,
        replica: String,
        limit: Limit,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        self.granted(ReplicaGrant::Resources, &replica)?;
        needs_end(when, "a limit")?;
        if let Limit::FillDisk { path, .. } = &limit
            && path.len() > MAX_PATH_BYTES
        {
            return Err(EffectError::Other("the path is too long".into()));
        }
        self.schedule(EffectAction::Resources { replica, limit }, when)
    }

    fn watch(
        &mut self,
        replica: String,
        condition: Condition,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        self.known(&replica)?;
        needs_end(when, "a wait")?;
        self.schedule(EffectAction::Watch { replica, condition }, when)
    }

    fn signal(
        &mut self,
        replica: String,
        process_role: String,
        signal: Signal,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        let target = self.granted(ReplicaGrant::Process, &replica)?;
        if !target.process_roles.contains(&process_role) {
            return Err(EffectError::Unsupported(format!(
                "replica `{replica}` has no process `{}`; processes: {}",
                shown(&process_role, MAX_NAME_BYTES),
                names(target.process_roles.iter())
            )));
        }
        if when.until.is_some() && signal != Signal::Stop {
            return Err(EffectError::Unsupported(
                "only STOP can be undone (by CONT)".into(),
            ));
        }
        let action = EffectAction::Signal {
            replica,
            process_role,
            signal,
        };
        self.schedule(action, when)
    }

    fn http(
        &mut self,
        request: effect_http::Request,
        on_expiry: Option<effect_http::Request>,
        when: types::Window,
    ) -> Result<u32, EffectError> {
        if when.until.is_some() != on_expiry.is_some() {
            return Err(EffectError::Other(
                "an HTTP effect has an `until` exactly when it has an `on-expiry` request".into(),
            ));
        }
        let request = self.request(request)?;
        let on_expiry = on_expiry.map(|r| self.request(r)).transpose()?;
        self.schedule(EffectAction::Http { request, on_expiry }, when)
    }

    fn request(&self, request: effect_http::Request) -> Result<HttpRequest, EffectError> {
        self.grants
            .check_http(&request.url)
            .map_err(EffectError::Denied)?;
        let bad = |what: &str| EffectError::Other(format!("the request's {what}"));
        if !is_token(&request.method) {
            return Err(bad("method is not an HTTP method"));
        }
        if request.body.len() > MAX_BODY_BYTES {
            return Err(bad(&format!("body is larger than {MAX_BODY_BYTES} bytes")));
        }
        if request.headers.len() > MAX_HEADERS {
            return Err(bad(&format!("headers are more than {MAX_HEADERS}")));
        }
        let mut headers = Vec::with_capacity(request.headers.len());
        for header in request.headers {
            if !is_token(&header.key) {
                return Err(bad("header names must be tokens"));
            }
            // Framing and routing are the host's: a fault that sets them could reach
            // another server than the one granted.
            if RESERVED.iter().any(|r| header.key.eq_ignore_ascii_case(r)) {
                return Err(bad(&format!(
                    "header `{}` is the host's to set",
                    header.key
                )));
            }
            if header.value.len() > MAX_HEADER_BYTES
                || header
                    .value
                    .bytes()
                    .any(|b| b.is_ascii_control() && b != b'\t')
            {
                return Err(bad(
                    "header values must be short and without control characters",
                ));
            }
            headers.push(Field {
                key: header.key,
                value: header.value,
            });
        }
        Ok(HttpRequest {
            method: request.method,
            url: request.url,
            headers,
            body: request.body,
        })
    }
}

fn needs_end(when: types::Window, what: &str) -> Result<(), EffectError> {
    if when.until.is_some() {
        return Ok(());
    }
    Err(EffectError::Unsupported(format!(
        "{what} needs an end (`until`)"
    )))
}

/// Headers that decide where a request goes and where it ends.
const RESERVED: [&str; 5] = [
    "host",
    "content-length",
    "transfer-encoding",
    "connection",
    "upgrade",
];

fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= MAX_NAME_BYTES
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b))
}

fn names<'a>(names: impl Iterator<Item = &'a String>) -> String {
    let names: Vec<&str> = names.map(String::as_str).collect();
    if names.is_empty() {
        return "none".into();
    }
    names.join(", ")
}

fn to_guest(error: EffectError) -> types::Error {
    match error {
        EffectError::Denied(why) => types::Error::Denied(why),
        EffectError::Unsupported(why) => types::Error::Unsupported(why),
        EffectError::Other(why) => types::Error::Other(why),
    }
}

impl clock::Host for HostState<FaultWorld> {
    fn now(&mut self) -> wasmtime::Result<i64> {
        Ok(self.world.host.now())
    }
}

impl targets::Host for HostState<FaultWorld> {
    fn list(&mut self) -> wasmtime::Result<Vec<targets::Replica>> {
        let lower = |target: TargetReplica| targets::Replica {
            id: target.id,
            runtime: target.runtime,
            process_roles: target.process_roles,
            attributes: to_fields(target.attributes),
        };
        Ok(self.world.host.targets().into_iter().map(lower).collect())
    }
}

impl effect_process::Host for HostState<FaultWorld> {
    fn send_signal(
        &mut self,
        replica: String,
        process_role: String,
        signal: effect_process::Signal,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let signal = match signal {
            effect_process::Signal::Term => Signal::Term,
            effect_process::Signal::Kill => Signal::Kill,
            effect_process::Signal::Stop => Signal::Stop,
            effect_process::Signal::Cont => Signal::Cont,
            effect_process::Signal::Hup => Signal::Hup,
            effect_process::Signal::Int => Signal::Int,
            effect_process::Signal::Usr1 => Signal::Usr1,
            effect_process::Signal::Usr2 => Signal::Usr2,
            effect_process::Signal::Abrt => Signal::Abrt,
            effect_process::Signal::Segv => Signal::Segv,
        };
        let done = self.world.signal(replica, process_role, signal, when);
        Ok(done.map_err(to_guest))
    }
}

impl effect_container::Host for HostState<FaultWorld> {
    fn run(
        &mut self,
        replica: String,
        operation: effect_container::Operation,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let operation = match operation {
            effect_container::Operation::Kill(signal) => ContainerOperation::Kill(signal),
            effect_container::Operation::Stop(s) => ContainerOperation::Stop(s),
            effect_container::Operation::Restart(s) => ContainerOperation::Restart(s),
            effect_container::Operation::Pause => ContainerOperation::Pause,
            effect_container::Operation::Recreate => ContainerOperation::Recreate,
            effect_container::Operation::Disconnect(network) => {
                ContainerOperation::Disconnect(network)
            }
        };
        let done = self.world.container(replica, operation, when);
        Ok(done.map_err(to_guest))
    }
}

impl effect_network::Host for HostState<FaultWorld> {
    fn apply(
        &mut self,
        replica: String,
        rule: effect_network::Rule,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let rule = match rule {
            effect_network::Rule::DropAll => NetworkRule::DropAll,
            effect_network::Rule::RejectWithReset => NetworkRule::RejectWithReset,
            effect_network::Rule::Lose(percent) => NetworkRule::Lose(percent),
            effect_network::Rule::Delay(us) => NetworkRule::Delay(us),
            effect_network::Rule::LimitSend(rate) => NetworkRule::LimitSend(rate),
            effect_network::Rule::LimitReceive(rate) => NetworkRule::LimitReceive(rate),
        };
        Ok(self.world.network(replica, rule, when).map_err(to_guest))
    }
}

impl effect_resources::Host for HostState<FaultWorld> {
    fn apply(
        &mut self,
        replica: String,
        limit: effect_resources::Limit,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let limit = match limit {
            effect_resources::Limit::Freeze => Limit::Freeze,
            effect_resources::Limit::CpuPercent(percent) => Limit::CpuPercent(percent),
            effect_resources::Limit::MemoryHeadroomBytes(n) => Limit::MemoryHeadroomBytes(n),
            effect_resources::Limit::FillDisk(fill) => Limit::FillDisk {
                path: fill.path,
                leave_bytes: fill.leave_bytes,
            },
        };
        Ok(self.world.resources(replica, limit, when).map_err(to_guest))
    }
}

impl conditions::Host for HostState<FaultWorld> {
    fn watch(
        &mut self,
        replica: String,
        condition: conditions::Condition,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        let condition = match condition {
            conditions::Condition::StartedAgain => Condition::StartedAgain,
            conditions::Condition::ServingAgain => Condition::ServingAgain,
        };
        Ok(self.world.watch(replica, condition, when).map_err(to_guest))
    }
}

impl effect_http::Host for HostState<FaultWorld> {
    fn send(
        &mut self,
        request: effect_http::Request,
        on_expiry: Option<effect_http::Request>,
        when: types::Window,
    ) -> wasmtime::Result<Result<u32, types::Error>> {
        Ok(self.world.http(request, on_expiry, when).map_err(to_guest))
    }
}
