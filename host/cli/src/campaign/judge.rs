//! The gates' view of a run, and their findings.

use std::sync::Arc;

use blackstart_analyze::{RunAnalysis, Scalars, scalars};
use blackstart_plan::Plan;
use blackstart_plugins::{
    Evidence, FaultRecord, Field, GateTemplate, LoggedEvent, MAX_PAGE, Measure as PluginMeasure,
    Outcome as PluginOutcome, Point, RequestRecord as PluginRequest, Severity, Verdict, Window,
};
use blackstart_record::{
    EventKind, Finding, GateSeverity, GateVerdict, Measure, Outcome, RequestRecord, RunRecords,
};

/// One run's evidence.
struct RunEvidence {
    plan: Arc<Plan>,
    analysis: RunAnalysis,
    scalars: Scalars,
    records: Arc<RunRecords>,
}

/// Lets every gate judge a run. A gate that fails to answer is "not observed", which never passes.
pub fn judge(
    gates: &[GateTemplate],
    plan: &Arc<Plan>,
    analysis: &RunAnalysis,
    records: &Arc<RunRecords>,
) -> Vec<Finding> {
    let evidence: Arc<dyn Evidence> = Arc::new(RunEvidence {
        plan: plan.clone(),
        scalars: scalars(plan, analysis),
        analysis: analysis.clone(),
        records: records.clone(),
    });
    gates
        .iter()
        .zip(&plan.gates)
        .map(|(template, planned)| {
            let mut gate = match template.instantiate() {
                Ok(gate) => gate,
                Err(e) => {
                    return Finding {
                        id: planned.id.clone(),
                        title: planned.plugin.clone(),
                        plugin: planned.plugin.clone(),
                        severity: GateSeverity::InvalidatesRun,
                        label: None,
                        verdict: GateVerdict::NotObserved,
                        detail: e.to_string(),
                        measures: Vec::new(),
                    };
                }
            };
            let info = gate.describe().clone();
            let (verdict, detail, measures) =
                match gate.evaluate(&planned.config.to_string(), evidence.clone()) {
                    Ok(finding) => {
                        let (verdict, detail) = match finding.verdict {
                            Verdict::Pass => (GateVerdict::Pass, String::new()),
                            Verdict::Fail(why) => (GateVerdict::Fail, why),
                            Verdict::NotObserved(why) => (GateVerdict::NotObserved, why),
                            Verdict::NotApplicable(why) => (GateVerdict::NotApplicable, why),
                        };
                        (verdict, detail, finding.measures)
                    }
                    Err(e) => (GateVerdict::NotObserved, e.to_string(), Vec::new()),
                };
            Finding {
                id: info.id,
                title: info.title,
                plugin: format!("{} {}", info.plugin.name, info.plugin.version),
                severity: match info.severity {
                    Severity::InvalidatesRun => GateSeverity::InvalidatesRun,
                    Severity::StripsLabel => GateSeverity::StripsLabel,
                    Severity::Advisory => GateSeverity::Advisory,
                },
                label: info.label,
                verdict,
                detail,
                measures: measures
                    .into_iter()
                    .map(|m| Measure {
                        name: m.name,
                        value: m.value,
                        unit: m.unit,
                    })
                    .collect(),
            }
        })
        .collect()
}

impl RunEvidence {
    fn span(&self, window: &str) -> Option<(i64, i64)> {
        self.analysis
            .windows
            .iter()
            .find(|w| w.name.name() == window)
            .map(|w| (w.start_ns, w.end_ns))
    }

    fn in_window(&self, window: &str) -> impl Iterator<Item = &RequestRecord> {
        let span = self.span(window);
        self.records.requests.iter().filter(move |r| {
            span.is_some_and(|(start, end)| r.intended_ns >= start && r.intended_ns < end)
        })
    }
}

impl Evidence for RunEvidence {
    fn scalar(&self, name: &str) -> Option<PluginMeasure> {
        let scalar = self.scalars.scalars.get(name)?;
        Some(PluginMeasure {
            name: name.to_owned(),
            value: scalar.value?,
            unit: scalar.unit.clone(),
        })
    }

    fn scalar_absence(&self, name: &str) -> Option<String> {
        match self.scalars.scalars.get(name) {
            Some(scalar) => scalar.absence.clone(),
            None => Some(format!("the analysis has no figure `{name}`")),
        }
    }

    fn windows(&self) -> Vec<Window> {
        self.analysis
            .windows
            .iter()
            .map(|w| Window {
                name: w.name.name().to_owned(),
                start_ns: w.start_ns,
                end_ns: w.end_ns,
            })
            .collect()
    }

    fn faults(&self) -> Vec<FaultRecord> {
        self.plan
            .fault
            .iter()
            .map(|f| FaultRecord {
                variant_name: f.variant.clone(),
                victims: f.victims.clone(),
                planned_fire_at_ns: f.fire_at_ns,
                observed_fire_at_ns: self.analysis.fire.actual_ns,
                observed_expiry_at_ns: self.analysis.fault.expired_ns,
            })
            .collect()
    }

    fn replicas(&self) -> Vec<String> {
        self.plan
            .target
            .replicas
            .iter()
            .map(|r| r.id.clone())
            .collect()
    }

    fn requests(&self, window: &str, offset: u64, limit: u32) -> Vec<PluginRequest> {
        self.in_window(window)
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
            .take(limit.min(MAX_PAGE) as usize)
            .map(|r| PluginRequest {
                index: r.index,
                intended_at_ns: r.intended_ns,
                dispatched_at_ns: r.dispatched_ns,
                first_token_at_ns: r.first_token_ns,
                ended_at_ns: r.ended_ns,
                outcome: match r.outcome {
                    Outcome::Completed => PluginOutcome::Completed,
                    Outcome::Errored => PluginOutcome::Errored,
                    Outcome::Censored => PluginOutcome::Censored,
                },
                error_class: r.error_class.map(|c| c.name().to_owned()),
                content_events: r.content_events,
                completion_tokens: r.completion_tokens,
                replica: r.replica.clone(),
            })
            .collect()
    }

    fn request_count(&self, window: &str) -> u64 {
        self.in_window(window).count() as u64
    }

    fn series(&self, name: &str) -> Option<Vec<Point>> {
        let points: Vec<Point> = if name == "client.cpu_percent" {
            self.records
                .events
                .iter()
                .filter_map(|e| match e.kind {
                    EventKind::ClientCpu { host_percent, .. } => Some(Point {
                        at_ns: e.at_ns,
                        value: host_percent,
                    }),
                    _ => None,
                })
                .collect()
        } else {
            let (replica, metric) = name.split_once('/')?;
            self.records
                .metrics
                .summed(replica, metric)
                .into_iter()
                .map(|(at_ns, value)| Point { at_ns, value })
                .collect()
        };
        (!points.is_empty()).then_some(points)
    }

    fn log_events(&self, window: &str, offset: u64, limit: u32) -> Vec<LoggedEvent> {
        let (Some((start, end)), Some(epoch)) = (self.span(window), self.analysis.epoch_unix_ns)
        else {
            return Vec::new();
        };
        let mut events: Vec<LoggedEvent> = self
            .records
            .boundaries
            .iter()
            .flat_map(|log| log.boundaries.iter().map(move |b| (log, b)))
            .filter_map(|(log, b)| {
                let at_ns = b.at_unix_ns? - epoch;
                (at_ns >= start && at_ns < end).then(|| LoggedEvent {
                    at_ns,
                    replica: log.replica.clone(),
                    kind: b.key.clone(),
                    fields: b
                        .fields
                        .iter()
                        .map(|(key, value)| Field {
                            key: key.clone(),
                            value: value.clone(),
                        })
                        .collect(),
                })
            })
            .collect();
        events.sort_by_key(|e| e.at_ns);
        events
            .into_iter()
            .skip(usize::try_from(offset).unwrap_or(usize::MAX))
            .take(limit.min(MAX_PAGE) as usize)
            .collect()
    }
}
