//! The `evidence` interface: read only, paged, and open during `evaluate` alone.

use std::sync::Arc;

use super::types::{Evidence, LoggedEvent, Outcome, RequestRecord};
use super::{MAX_PAGE, MAX_SERIES_POINTS};
use crate::bindings::gate::blackstart::plugin::evidence as wit;
use crate::bindings::types;
use crate::host::to_fields;
use crate::instance::{HostState, Misuse};
use crate::limits::MAX_NAME_BYTES;

/// What the store of a gate holds.
pub(crate) struct GateWorld {
    /// Set while `evaluate` runs.
    pub evidence: Option<Arc<dyn Evidence>>,
}

impl GateWorld {
    fn evidence(&self) -> wasmtime::Result<&dyn Evidence> {
        match &self.evidence {
            Some(evidence) => Ok(evidence.as_ref()),
            None => Err(Misuse("evidence can be read during `evaluate` only".into()).into()),
        }
    }
}

/// A name that no host has cannot be longer than this.
fn known_length(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
}

impl wit::Host for HostState<GateWorld> {
    fn scalar(&mut self, name: String) -> wasmtime::Result<Option<types::Measure>> {
        let evidence = self.world.evidence()?;
        if !known_length(&name) {
            return Ok(None);
        }
        Ok(evidence.scalar(&name).map(|m| types::Measure {
            name: m.name,
            value: m.value,
            unit: m.unit,
        }))
    }

    fn scalar_absence(&mut self, name: String) -> wasmtime::Result<Option<String>> {
        let evidence = self.world.evidence()?;
        if !known_length(&name) {
            return Ok(None);
        }
        Ok(evidence.scalar_absence(&name))
    }

    fn windows(&mut self) -> wasmtime::Result<Vec<wit::Window>> {
        let windows = self.world.evidence()?.windows();
        Ok(windows
            .into_iter()
            .map(|w| wit::Window {
                name: w.name,
                start: w.start_ns,
                end: w.end_ns,
            })
            .collect())
    }

    fn faults(&mut self) -> wasmtime::Result<Vec<wit::FaultRecord>> {
        let faults = self.world.evidence()?.faults();
        Ok(faults
            .into_iter()
            .map(|f| wit::FaultRecord {
                variant_name: f.variant_name,
                victims: f.victims,
                planned_fire_at: f.planned_fire_at_ns,
                observed_fire_at: f.observed_fire_at_ns,
                observed_expiry_at: f.observed_expiry_at_ns,
            })
            .collect())
    }

    fn replicas(&mut self) -> wasmtime::Result<Vec<String>> {
        Ok(self.world.evidence()?.replicas())
    }

    fn requests(
        &mut self,
        window: String,
        offset: u64,
        limit: u32,
    ) -> wasmtime::Result<Vec<wit::RequestRecord>> {
        let limit = limit.min(MAX_PAGE);
        let evidence = self.world.evidence()?;
        if !known_length(&window) {
            return Ok(Vec::new());
        }
        let mut page = evidence.requests(&window, offset, limit);
        page.truncate(limit as usize);
        Ok(page.into_iter().map(request).collect())
    }

    fn request_count(&mut self, window: String) -> wasmtime::Result<u64> {
        let evidence = self.world.evidence()?;
        Ok(if known_length(&window) {
            evidence.request_count(&window)
        } else {
            0
        })
    }

    fn series(&mut self, name: String) -> wasmtime::Result<Option<Vec<wit::Point>>> {
        let evidence = self.world.evidence()?;
        if !known_length(&name) {
            return Ok(None);
        }
        let Some(points) = evidence.series(&name) else {
            return Ok(None);
        };
        if points.len() > MAX_SERIES_POINTS {
            // A part of a series would be judged as if it were the whole.
            let why = format!(
                "series `{}` has {} points, more than the {MAX_SERIES_POINTS} that a gate is lent",
                crate::text::shown(&name, MAX_NAME_BYTES),
                points.len()
            );
            return Err(Misuse(why).into());
        }
        let point = |p: super::types::Point| wit::Point {
            at: p.at_ns,
            value: p.value,
        };
        Ok(Some(points.into_iter().map(point).collect()))
    }

    fn log_events(
        &mut self,
        window: String,
        offset: u64,
        limit: u32,
    ) -> wasmtime::Result<Vec<wit::LoggedEvent>> {
        let limit = limit.min(MAX_PAGE);
        let evidence = self.world.evidence()?;
        if !known_length(&window) {
            return Ok(Vec::new());
        }
        let mut page = evidence.log_events(&window, offset, limit);
        page.truncate(limit as usize);
        let event = |e: LoggedEvent| wit::LoggedEvent {
            at: e.at_ns,
            replica: e.replica,
            kind: e.kind,
            fields: to_fields(e.fields),
        };
        Ok(page.into_iter().map(event).collect())
    }
}

fn request(r: RequestRecord) -> wit::RequestRecord {
    wit::RequestRecord {
        index: r.index,
        intended_at: r.intended_at_ns,
        dispatched_at: r.dispatched_at_ns,
        first_token_at: r.first_token_at_ns,
        ended_at: r.ended_at_ns,
        outcome: match r.outcome {
            Outcome::Completed => wit::Outcome::Completed,
            Outcome::Errored => wit::Outcome::Errored,
            Outcome::Censored => wit::Outcome::Censored,
        },
        error_class: r.error_class,
        content_events: r.content_events,
        completion_tokens: r.completion_tokens,
        replica: r.replica,
    }
}
