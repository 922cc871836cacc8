//! Doubles for native tests of a plugin's logic.

use std::collections::BTreeMap;

use crate::fault::{
    ArmContext, Condition, ContainerOperation, EffectId, Fact, FaultHost, Limit, NetworkRule,
    Replica, Request, Signal,
};
use crate::gate::{Evidence, FaultRecord, LoggedEvent, Point, RequestRecord, Window as RunWindow};
use crate::{Error, Field, Measure, ReplicaId, RunNs, Window, measure};

/// One second in run time.
pub const SECOND: RunNs = 1_000_000_000;

/// A signal that a fault scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct SentSignal {
    /// Whom.
    pub replica: String,
    /// Which of its processes.
    pub role: String,
    /// Which signal.
    pub signal: Signal,
    /// When, and when it is undone.
    pub when: Window,
}

/// An HTTP request that a fault scheduled.
#[derive(Debug, Clone, PartialEq)]
pub struct SentRequest {
    /// What is sent at `when.at`.
    pub request: Request,
    /// What is sent at `when.until`.
    pub on_expiry: Option<Request>,
    /// When.
    pub when: Window,
}

/// Another effect that a fault scheduled.
#[derive(Debug, Clone, PartialEq)]
pub enum Sent {
    /// An operation on a container.
    Container(ContainerOperation),
    /// A rule on packets.
    Network(NetworkRule),
    /// A limit.
    Limit(Limit),
    /// A wait.
    Watch(Condition),
}

/// A host that only takes notes. It knows two replicas, `vllm-0` and `vllm-1`, with the
/// process roles `api`, `engine` and `worker`.
#[derive(Debug)]
pub struct FakeHost {
    /// What `targets` answers.
    pub targets: Vec<Replica>,
    /// What was scheduled, in order.
    pub signals: Vec<SentSignal>,
    /// What was scheduled, in order.
    pub requests: Vec<SentRequest>,
    /// What else was scheduled, for whom and when, in order.
    pub others: Vec<(String, Sent, Window)>,
    /// What each effect needs to be granted (`process`, ...; `conditions` needs nothing) and when
    /// it is: the place in this list is the effect's id.
    pub needs: Vec<(&'static str, Window)>,
    /// If set, every effect is refused with it.
    pub refuse: Option<Error>,
    /// What `now` answers.
    pub now: RunNs,
}

impl Default for FakeHost {
    fn default() -> Self {
        FakeHost {
            targets: vec![replica("vllm-0"), replica("vllm-1")],
            signals: Vec::new(),
            requests: Vec::new(),
            others: Vec::new(),
            needs: Vec::new(),
            refuse: None,
            now: -SECOND,
        }
    }
}

impl FakeHost {
    fn next_effect(&mut self, need: &'static str, when: Window) -> Result<EffectId, Error> {
        match &self.refuse {
            Some(error) => Err(error.clone()),
            None => {
                self.needs.push((need, when));
                Ok((self.needs.len() - 1) as EffectId)
            }
        }
    }

    fn other(
        &mut self,
        need: &'static str,
        replica: &str,
        sent: Sent,
        when: Window,
    ) -> Result<EffectId, Error> {
        let id = self.next_effect(need, when)?;
        self.others.push((replica.to_owned(), sent, when));
        Ok(id)
    }
}

impl FaultHost for FakeHost {
    fn now(&self) -> RunNs {
        self.now
    }

    fn targets(&self) -> Vec<Replica> {
        self.targets.clone()
    }

    fn send_signal(
        &mut self,
        replica: &str,
        role: &str,
        signal: Signal,
        when: Window,
    ) -> Result<EffectId, Error> {
        let id = self.next_effect("process", when)?;
        self.signals.push(SentSignal {
            replica: replica.to_owned(),
            role: role.to_owned(),
            signal,
            when,
        });
        Ok(id)
    }

    fn send_http(
        &mut self,
        request: &Request,
        on_expiry: Option<&Request>,
        when: Window,
    ) -> Result<EffectId, Error> {
        let id = self.next_effect("http", when)?;
        self.requests.push(SentRequest {
            request: request.clone(),
            on_expiry: on_expiry.cloned(),
            when,
        });
        Ok(id)
    }

    fn run_container(
        &mut self,
        replica: &str,
        operation: &ContainerOperation,
        when: Window,
    ) -> Result<EffectId, Error> {
        self.other(
            "container",
            replica,
            Sent::Container(operation.clone()),
            when,
        )
    }

    fn apply_network(
        &mut self,
        replica: &str,
        rule: NetworkRule,
        when: Window,
    ) -> Result<EffectId, Error> {
        self.other("network", replica, Sent::Network(rule), when)
    }

    fn apply_limit(
        &mut self,
        replica: &str,
        limit: &Limit,
        when: Window,
    ) -> Result<EffectId, Error> {
        self.other("resources", replica, Sent::Limit(limit.clone()), when)
    }

    fn watch(
        &mut self,
        replica: &str,
        condition: Condition,
        when: Window,
    ) -> Result<EffectId, Error> {
        self.other("conditions", replica, Sent::Watch(condition), when)
    }
}

/// A replica with three process roles and an admin URL.
#[must_use]
pub fn replica(id: &str) -> Replica {
    Replica {
        id: id.to_owned(),
        runtime: "process".to_owned(),
        process_roles: ["api", "engine", "worker"].map(str::to_owned).to_vec(),
        attributes: vec![Field {
            key: "admin-url".to_owned(),
            value: format!("http://127.0.0.1:9000/{id}"),
        }],
    }
}

/// A run of 60 s that fires at 20 s; effects must have ended by 40 s.
#[must_use]
pub fn arm_context(victims: &[&str]) -> ArmContext {
    ArmContext {
        config: "{}".to_owned(),
        seed: 7,
        fire_at: 20 * SECOND,
        expire_at: 40 * SECOND,
        run_end: 60 * SECOND,
        victims: victims.iter().map(|v| (*v).to_owned()).collect(),
    }
}

/// A fact; an empty text stands for "not readable".
#[must_use]
pub fn fact(replica: &str, name: &str, before: &str, during: &str, after: &str) -> Fact {
    let read = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Fact {
        replica: replica.to_owned(),
        name: name.to_owned(),
        before: read(before),
        during: read(during),
        after: read(after),
    }
}

/// Evidence made of scalars and faults. What was not set is absent.
#[derive(Debug, Default)]
pub struct FakeEvidence {
    /// Scalars by name.
    pub scalars: BTreeMap<String, Measure>,
    /// Reasons for absence by scalar.
    pub absences: BTreeMap<String, String>,
    /// Faults of the run.
    pub faults: Vec<FaultRecord>,
    /// Declared replicas.
    pub replicas: Vec<ReplicaId>,
}

impl FakeEvidence {
    /// Sets a scalar.
    pub fn set(&mut self, name: &str, value: f64, unit: &str) -> &mut Self {
        let measured = measure(name, value, unit);
        self.scalars.insert(name.to_owned(), measured);
        self
    }

    /// Removes a scalar and says why it is absent.
    pub fn absent(&mut self, name: &str, why: &str) -> &mut Self {
        self.scalars.remove(name);
        self.absences.insert(name.to_owned(), why.to_owned());
        self
    }

    /// Declares replicas.
    pub fn replicas(&mut self, ids: &[&str]) -> &mut Self {
        self.replicas = ids.iter().map(|id| (*id).to_owned()).collect();
        self
    }

    /// Adds a fault of a variant.
    pub fn fault(&mut self, variant: &str) -> &mut Self {
        self.faults.push(FaultRecord {
            variant_name: variant.to_owned(),
            victims: vec!["vllm-0".to_owned()],
            planned_fire_at: 20 * SECOND,
            observed_fire_at: Some(20 * SECOND),
            observed_expiry_at: None,
        });
        self
    }
}

impl Evidence for FakeEvidence {
    fn scalar(&self, name: &str) -> Option<Measure> {
        self.scalars.get(name).cloned()
    }

    fn scalar_absence(&self, name: &str) -> Option<String> {
        self.absences.get(name).cloned()
    }

    fn windows(&self) -> Vec<RunWindow> {
        Vec::new()
    }

    fn faults(&self) -> Vec<FaultRecord> {
        self.faults.clone()
    }

    fn replicas(&self) -> Vec<ReplicaId> {
        self.replicas.clone()
    }

    fn requests(&self, _: &str, _: u64, _: u32) -> Vec<RequestRecord> {
        Vec::new()
    }

    fn request_count(&self, _: &str) -> u64 {
        0
    }

    fn series(&self, _: &str) -> Option<Vec<Point>> {
        None
    }

    fn log_events(&self, _: &str, _: u64, _: u32) -> Vec<LoggedEvent> {
        Vec::new()
    }
}
