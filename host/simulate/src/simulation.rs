//! One run: what is planted, what it leaves, and what it must show.

use std::collections::BTreeMap;

use blackstart_plan::{ArrivalsError, Plan, RunPlan};
use blackstart_record::RunRecords;

use crate::curve::Curve;
use crate::log::Log;
use crate::observers::Observed;
use crate::planning::replica_id;
use crate::planted::plant;
use crate::random::{Random, Stream};
use crate::service::Service;
use crate::truth::{Truth, TruthInput};
use crate::{Scenario, Settings};

/// Why a run could not be simulated.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulateError {
    /// The plan gives no schedule.
    #[error("no schedule for the simulated load: {0}")]
    Schedule(#[from] ArrivalsError),
}

/// A simulated run.
#[derive(Debug, Clone)]
pub struct Simulated {
    /// What a real run would have recorded. Boundaries are those that a matcher finds in the logs.
    pub records: RunRecords,
    /// Each replica's captured log, by name.
    pub logs: BTreeMap<String, String>,
    /// What was planted.
    pub truth: Truth,
}

/// Simulates a run of a plan that [`plan`](crate::plan) made for the scenario and settings.
///
/// # Errors
/// When the plan gives no schedule.
pub fn simulate(
    scenario: &Scenario,
    settings: Settings,
    plan: &Plan,
    run: &RunPlan,
) -> Result<Simulated, SimulateError> {
    let seed = run.seed;
    let stream = |stream| Random::new(scenario.name, seed, stream);
    let planted = plant(scenario, plan, seed);
    let schedule = plan.schedule(run)?;
    let mut service = Service::new(plan, &planted, settings, stream(Stream::Requests));
    let mut records = RunRecords::default();
    let mut fates = Vec::with_capacity(schedule.intended_ns.len());
    records.requests.reserve(schedule.intended_ns.len());
    for (index, intended_ns) in (0..).zip(&schedule.intended_ns) {
        let (record, fate) = service.request(index, *intended_ns);
        records.requests.push(record);
        fates.push(fate);
    }
    records.gaps = service.gaps;
    let mut observed = Observed {
        scenario,
        plan,
        planted: &planted,
        seed,
        random: stream(Stream::Probes),
    };
    records.events = observed.events(fates.len() as u64);
    records.metrics = observed.metrics(&mut records.events);
    let mut random = stream(Stream::Log);
    let mut logs = BTreeMap::new();
    let mut victims_log = Vec::new();
    for (number, phases) in (0_u32..).zip(&planted.phases) {
        let remote = planted.remote.filter(|_| number == 0);
        let log = Log::write(phases, plan.phases.load_end_ns(), remote, &mut random);
        if number == 0 {
            victims_log = log.first_after(planted.fire_ns);
        }
        records.boundaries.push(log.boundaries(replica_id(number)));
        logs.insert(replica_id(number), log.text());
    }
    let truth = Truth::of(&TruthInput {
        scenario,
        plan,
        run,
        planted: &planted,
        fates: &fates,
        events: &records.events,
        curve: &Curve::of(plan, &planted, settings),
        victims_log,
    });
    Ok(Simulated {
        records,
        logs,
        truth,
    })
}
