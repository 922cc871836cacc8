//! Everything that can be asked of each variant alike, and what is its own.

mod chains;
mod containers;
mod mock_fault;
mod networks;
mod page;
mod process_freeze;
mod process_kill;
mod resources;
mod variants;

use blackstart_sdk::config::{parse, schema};
use blackstart_sdk::fault::{
    ArmContext, Armed, EffectEvent, EffectId, Fact, FaultDescription, FaultVariant, Proof,
};
use blackstart_sdk::testing::{FakeHost, SECOND, arm_context, fact, replica};
use blackstart_sdk::{ConfigError, Error};
use serde_json::Value;

use crate::{About, Documented};

/// An armed variant without its type.
trait Live {
    fn observe(&mut self, effect: EffectId, event: &EffectEvent, host: &mut FakeHost);
    fn prove(&self, facts: &[Fact]) -> Proof;
}

impl<F: FaultVariant> Live for F {
    fn observe(&mut self, effect: EffectId, event: &EffectEvent, host: &mut FakeHost) {
        FaultVariant::observe(self, effect, event, host).expect("the fault goes on");
    }

    fn prove(&self, facts: &[Fact]) -> Proof {
        FaultVariant::prove(self, facts)
    }
}

type ArmedLive = (Box<dyn Live>, Armed);

/// A variant without its type.
struct Variant {
    about: &'static About,
    schema: Value,
    describe: fn() -> FaultDescription,
    parse: fn(&str) -> Result<(), Error>,
    arm: fn(&str, &ArmContext, &mut FakeHost) -> Result<ArmedLive, Error>,
}

fn variant<F: FaultVariant + Documented>() -> Variant {
    Variant {
        about: F::ABOUT,
        schema: serde_json::from_str(&schema::<F::Config>()).expect("a schema is JSON"),
        describe: F::describe,
        parse: |config| parse::<F::Config>(config).map(drop),
        arm: |config, context, host| {
            let (live, armed) = F::arm(parse::<F::Config>(config)?, context, host)?;
            Ok((Box::new(live), armed))
        },
    }
}

/// All of them, in the order of the page.
fn all() -> Vec<Variant> {
    vec![
        variant::<crate::process_kill::Fault>(),
        variant::<crate::graceful_stop::Fault>(),
        variant::<crate::flapping::Flapping>(),
        variant::<crate::cascade::Cascade>(),
        variant::<crate::rolling_restart::RollingRestart>(),
        variant::<crate::slow_weights::SlowWeights>(),
        variant::<crate::process_freeze::Fault>(),
        variant::<crate::cgroup_freeze::Fault>(),
        variant::<crate::container_pause::Fault>(),
        variant::<crate::container_kill::Fault>(),
        variant::<crate::container_stop::Fault>(),
        variant::<crate::container_restart::Fault>(),
        variant::<crate::container_recreate::Fault>(),
        variant::<crate::black_hole::Fault>(),
        variant::<crate::connection_reset::Fault>(),
        variant::<crate::network_disconnect::Fault>(),
        variant::<crate::network_delay::Fault>(),
        variant::<crate::network_loss::Fault>(),
        variant::<crate::network_bandwidth::Fault>(),
        variant::<crate::cpu_throttle::Fault>(),
        variant::<crate::memory_limit::Fault>(),
        variant::<crate::disk_full::Fault>(),
        variant::<crate::mock_fault::Fault>(),
    ]
}

fn named(name: &str) -> Variant {
    let found = all().into_iter().find(|v| v.about.name == name);
    found.unwrap_or_else(|| panic!("no variant {name}"))
}

impl Variant {
    /// The example's table as JSON: its values are written alike in both.
    fn example(&self) -> String {
        let keys = self.about.example.lines().map(|line| {
            let (key, value) = line.split_once(" = ").expect("key = value");
            format!("\"{key}\":{value}")
        });
        format!("{{{}}}", keys.collect::<Vec<_>>().join(","))
    }

    /// Victims of the example.
    fn victims(&self) -> Vec<String> {
        serde_json::from_str(self.about.victims).expect("a list of names")
    }

    fn context(&self) -> ArmContext {
        ArmContext {
            victims: self.victims(),
            // The window of a published run has room for each example.
            expire_at: 140 * SECOND,
            run_end: 200 * SECOND,
            ..arm_context(&[])
        }
    }

    /// Armed for the victims of the example.
    fn armed(&self, config: &str) -> (Box<dyn Live>, FakeHost) {
        let mut host = host();
        let (live, _) = (self.arm)(config, &self.context(), &mut host).expect("it arms");
        (live, host)
    }
}

fn host() -> FakeHost {
    let mut host = FakeHost::default();
    host.targets.push(replica("r0"));
    host
}

/// Everything that is scheduled starts and ends when it should, to the last effect.
fn drive(live: &mut dyn Live, host: &mut FakeHost) {
    let mut id = 0;
    while let Some((_, when)) = host.needs.get(id).copied() {
        host.now = host.now.max(when.at);
        live.observe(id as EffectId, &EffectEvent::Started(when.at), host);
        if let Some(until) = when.until {
            live.observe(id as EffectId, &EffectEvent::Undone(until), host);
        }
        id += 1;
        assert!(id < 256, "a fault comes to an end");
    }
}

fn config_errors(result: Result<impl std::fmt::Debug, Error>) -> Vec<ConfigError> {
    match result {
        Err(Error::InvalidConfig(errors)) => errors,
        other => panic!("expected a configuration error, got {other:?}"),
    }
}

/// A fact whose empty text is one that was read; `?` = not read.
fn read(name: &str, values: [&str; 3]) -> Fact {
    let [before, during, after] = values.map(|v| (v != "?").then(|| v.to_owned()));
    Fact {
        before,
        during,
        after,
        ..fact("vllm-0", name, "", "", "")
    }
}

/// The processes of `vllm-0`, which go on.
fn same_process() -> Vec<Fact> {
    ["api", "engine"]
        .iter()
        .flat_map(|role| {
            let of = |what: &str, value| read(&format!("process.{role}.{what}"), [value; 3]);
            [of("pid", "10"), of("start-time", "7"), of("state", "S")]
        })
        .collect()
}

/// The API process of a victim is another one afterwards.
fn another_process(victim: &str) -> Vec<Fact> {
    let of = |what: &str, v: [&str; 3]| Fact {
        replica: victim.to_owned(),
        ..read(&format!("process.api.{what}"), v)
    };
    vec![
        of("pid", ["10", "?", "20"]),
        of("start-time", ["7", "?", "9"]),
        of("state", ["S", "gone", "S"]),
    ]
}

/// The verdict's kind, for tables.
fn kind(proof: &Proof) -> &'static str {
    match proof {
        Proof::Happened(_) => "happened",
        Proof::DidNotHappen(_) => "not",
        Proof::CannotTell(_) => "unknown",
    }
}

/// Asserts a table of facts and verdicts, with the facts `base` beside each.
#[track_caller]
fn judge(live: &dyn Live, base: &[Fact], table: &[(&str, Vec<Fact>)]) {
    for (expected, facts) in table {
        let mut all = facts.clone();
        all.extend(base.iter().cloned());
        let proof = live.prove(&all);
        assert_eq!(kind(&proof), *expected, "{proof:?} of {facts:?}");
    }
}
