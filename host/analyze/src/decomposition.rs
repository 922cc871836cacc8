//! The decomposition of the recovery into the method's segments. Only measured boundaries are
//! claimed.

use std::collections::{BTreeMap, BTreeSet};

use blackstart_plan::Plan;
use blackstart_record::{LogCoverage, RunRecords, StampSource};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::headline::censored_until;
use crate::input::TIME_LIMIT_NS;
use crate::readiness::Readiness;
use crate::time::{rfc3339, seconds};
use crate::{Fire, Partition, Recovery, RecoveryStatus, ReplicaLives};

/// Where a segment's boundaries come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SegmentSource {
    /// The runtime that starts replicas.
    Api,
    /// The server's log.
    Log,
    /// The instrument's inference probes.
    Probe,
    /// The load's own stream.
    Client,
}

/// One segment of the method's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Segment {
    /// Its name.
    pub name: String,
    /// Where its boundaries come from.
    pub source: SegmentSource,
    /// Whether it can occur under this fault at all.
    pub applicable: bool,
    /// Whether both boundaries were measured.
    pub measured: bool,
    /// Start, wall clock, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub start_at: Option<String>,
    /// End, wall clock, RFC 3339.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub end_at: Option<String>,
    /// Start, run time.
    pub start_ns: Option<i64>,
    /// End, run time.
    pub end_ns: Option<i64>,
    /// Length in seconds.
    pub duration_s: Option<f64>,
    /// The true length lies within ± this of it: both boundaries' uncertainties added. A probe's
    /// boundary may have come earlier, by up to the gap to the last probe that failed; the
    /// detector's by up to one bucket.
    pub uncertainty_s: Option<f64>,
    /// Where the end had not come when the watch for it ended: how long was watched, from the start.
    /// The length is at least this.
    pub censored_at_s: Option<f64>,
    /// Why it is not measured, or a remark.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub note: Option<String>,
}

/// The first match of a boundary after the fire.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BoundaryMatch {
    /// Key as in `wit/matcher.wit`.
    pub key: String,
    /// The replica whose log it is in.
    pub replica: String,
    /// Physical line, from 1.
    pub line: u64,
    /// Which server start of the log.
    pub life: u32,
    /// Run time.
    pub at_ns: i64,
    /// Wall clock, RFC 3339, on the instrument's clock.
    pub at: Option<String>,
    /// Whose clock stamped it: `capture`, `docker`, `kubernetes`, `line`.
    pub stamp: String,
    /// Resolution of the stamp.
    pub resolution_ns: Option<i64>,
    /// Half-width of the interval that holds `at_ns`: clock bound plus resolution.
    pub uncertainty_ns: i64,
    /// Figures in the line.
    pub figures: BTreeMap<String, f64>,
    /// The line itself.
    pub text: String,
}

/// Where the time between fire and goodput went.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Decomposition {
    /// Every row of the method's table, in its order.
    pub segments: Vec<Segment>,
    /// Figures of the first matches after the fire, by name.
    pub log_figures: BTreeMap<String, f64>,
    /// The first matches after the fire, by key.
    pub boundaries: BTreeMap<String, BoundaryMatch>,
    /// The timeline from fire to goodput as consecutive phases.
    pub partition: Option<Partition>,
    /// Remarks (which victim's log, why there is none).
    pub notes: Vec<String>,
}

/// Sentence for a service-path segment when load goes straight to the only replica.
const NO_SERVICE: &str = "one replica addressed directly: no service";

/// Remark of a segment that ends before it starts.
const PREMATURE: &str =
    "premature: the service sent traffic before the direct probe saw the replica ready";

/// Remark of a length that is not larger than its uncertainty.
pub(crate) const UNRESOLVED: &str = "order not resolved: the boundaries' intervals overlap";

/// What the decomposition is made from.
pub(crate) struct DecompositionInput<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) records: &'a RunRecords,
    pub(crate) fire: &'a Fire,
    pub(crate) recovery: &'a Recovery,
    pub(crate) replicas: &'a [ReplicaLives],
    pub(crate) epoch_unix_ns: Option<i64>,
    pub(crate) direct: &'a Readiness,
    pub(crate) service: &'a Readiness,
}

/// A measured instant, or why there is none.
pub(crate) type Boundary = Result<Instant, String>;

/// An instant with the half-width of the interval that holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Instant {
    pub(crate) at_ns: i64,
    pub(crate) uncertainty_ns: i64,
}

impl Instant {
    fn exact(at_ns: i64) -> Self {
        Self {
            at_ns,
            uncertainty_ns: 0,
        }
    }
}

/// Instants that segments and the partition share.
pub(crate) struct Instants<'a> {
    pub(crate) fire: Boundary,
    pub(crate) process_exited: Boundary,
    pub(crate) orphans_gone: Boundary,
    pub(crate) container_start: Boundary,
    pub(crate) replica_ready: Boundary,
    pub(crate) traffic_restored: Boundary,
    pub(crate) goodput_restored: Boundary,
    log: &'a BTreeMap<String, BoundaryMatch>,
    log_absence: Option<String>,
    /// Boundaries that have lines, but no line whose time is known.
    unstamped: BTreeSet<String>,
    /// Why the victim was not started again, where the policy said so.
    not_restarted: Option<String>,
}

impl Instants<'_> {
    /// First match of a log boundary after the fire.
    pub(crate) fn log(&self, key: &str) -> Boundary {
        match (self.log.get(key), &self.log_absence) {
            (Some(found), _) => Ok(Instant {
                at_ns: found.at_ns,
                uncertainty_ns: found.uncertainty_ns,
            }),
            (None, Some(reason)) => Err(reason.clone()),
            (None, None) if self.unstamped.contains(key) => Err(format!(
                "no `{key}` line is known to come after the fire: one at least carries no usable stamp"
            )),
            (None, None) => Err(self.because(format!("no `{key}` line after the fire"))),
        }
    }

    /// An absence with its cause: what was never started again neither logs nor answers.
    fn because(&self, absence: String) -> String {
        match &self.not_restarted {
            Some(reason) => format!("{absence}: {reason}"),
            None => absence,
        }
    }
}

/// The decomposition of a run.
pub(crate) fn analyze(input: &DecompositionInput<'_>) -> Decomposition {
    let mut notes = Vec::new();
    let (boundaries, log_absence, unstamped) = first_matches(input, &mut notes);
    let log_figures = boundaries
        .values()
        .flat_map(|b| b.figures.iter().map(|(k, v)| (k.clone(), *v)))
        .collect();
    let instants = instants(input, &boundaries, log_absence, unstamped);
    let segments = rows(input, &instants);
    let partition = crate::partition::analyze(input, &instants);
    Decomposition {
        segments,
        log_figures,
        partition,
        boundaries,
        notes,
    }
}

/// First matches after the fire in the first victim's log, why there can be none, and the boundaries
/// of which a line carries no usable stamp.
fn first_matches(
    input: &DecompositionInput<'_>,
    notes: &mut Vec<String>,
) -> (
    BTreeMap<String, BoundaryMatch>,
    Option<String>,
    BTreeSet<String>,
) {
    let none = |reason: String| (BTreeMap::new(), Some(reason), BTreeSet::new());
    let Some(fire_ns) = input.fire.actual_ns else {
        return none(no_fire(input.fire));
    };
    let victims = input
        .plan
        .fault
        .as_ref()
        .map_or(&[][..], |f| &f.victims[..]);
    let Some(victim) = victims.first() else {
        return none("the plan names no victim".to_owned());
    };
    if victims.len() > 1 {
        notes.push(format!(
            "log boundaries are those of the first victim, {victim}"
        ));
    }
    let Some(log) = input
        .records
        .boundaries
        .iter()
        .find(|b| b.replica == *victim)
    else {
        return none(format!("{victim} has no log"));
    };
    if let LogCoverage::NotMeasured { reason } = &log.coverage {
        return none(reason.clone());
    }
    let Some(epoch) = input.epoch_unix_ns else {
        return none("the run's epoch was not recorded, so log stamps cannot be joined".to_owned());
    };
    let mut found = BTreeMap::<String, BoundaryMatch>::new();
    let mut lives = BTreeSet::new();
    let mut unstamped = 0_u64;
    let mut unstamped_keys = BTreeSet::new();
    // A stamp of another host is moved by the offset at arm time: by how much that clock moved away
    // from it until the second measurement is not known at the line.
    let (arm, after) = (input.fire.offset_at_arm, input.fire.offset_after);
    let remote_bound_ns = arm.bound_ns.max(after.bound_ns)
        + after
            .offset_ns
            .saturating_sub(arm.offset_ns)
            .saturating_abs();
    for b in &log.boundaries {
        // The instrument's own stamps are on its clock already; the others are shifted by the offset.
        let (offset, clock_bound_ns) = match b.stamp {
            StampSource::Capture => (0, 0),
            _ => (arm.offset_ns, remote_bound_ns),
        };
        let Some(at_ns) = b
            .at_unix_ns
            .and_then(|t| t.checked_sub(epoch)?.checked_sub(offset))
            .filter(|t| t.abs() <= TIME_LIMIT_NS)
        else {
            unstamped += 1;
            unstamped_keys.insert(b.key.clone());
            continue;
        };
        if at_ns < fire_ns {
            continue;
        }
        lives.insert(b.life);
        // First by time; file order decides between equal stamps.
        if found.get(&b.key).is_none_or(|kept| at_ns < kept.at_ns) {
            found.insert(
                b.key.clone(),
                to_match(b, victim, at_ns, epoch, clock_bound_ns),
            );
        }
    }
    if unstamped > 0 {
        notes.push(format!(
            "{unstamped} boundary lines of {victim} carry no usable stamp"
        ));
    }
    if lives.len() > 1 {
        notes.push(format!(
            "{victim}'s log shows {} lives after the fire; the first match of each boundary counts",
            lives.len()
        ));
    }
    (found, None, unstamped_keys)
}

fn to_match(
    b: &blackstart_record::Boundary,
    victim: &str,
    at_ns: i64,
    epoch_unix_ns: i64,
    clock_bound_ns: i64,
) -> BoundaryMatch {
    BoundaryMatch {
        key: b.key.clone(),
        replica: victim.to_owned(),
        line: b.line,
        life: b.life,
        at_ns,
        at: epoch_unix_ns.checked_add(at_ns).and_then(rfc3339),
        stamp: match b.stamp {
            StampSource::Capture => "capture",
            StampSource::Docker => "docker",
            StampSource::Kubernetes => "kubernetes",
            StampSource::Line => "line",
            StampSource::None => "none",
        }
        .to_owned(),
        resolution_ns: b.resolution_ns,
        // A stamp is cut off to its resolution, never rounded up.
        uncertainty_ns: clock_bound_ns + b.resolution_ns.unwrap_or(0).max(0),
        figures: b
            .measures
            .iter()
            .map(|m| (m.name.clone(), m.value))
            .collect(),
        text: b.text.clone(),
    }
}

fn no_fire(fire: &Fire) -> String {
    fire.note
        .clone()
        .unwrap_or_else(|| "the fire instant is not known".to_owned())
}

fn instants<'a>(
    input: &DecompositionInput<'_>,
    log: &'a BTreeMap<String, BoundaryMatch>,
    log_absence: Option<String>,
    unstamped: BTreeSet<String>,
) -> Instants<'a> {
    let fire = match (input.fire.actual_ns, input.fire.fire_uncertainty_ns) {
        (Some(at_ns), Some(uncertainty_ns)) => Ok(Instant {
            at_ns,
            uncertainty_ns,
        }),
        _ => Err(no_fire(input.fire)),
    };
    let probe = |readiness: &Readiness| match (readiness.ready_ns, &readiness.reason) {
        (Some(at_ns), _) => Ok(Instant {
            at_ns,
            uncertainty_ns: readiness.gap_ns,
        }),
        (None, Some(reason)) => Err(reason.clone()),
        (None, None) => Err("no probe was recorded".to_owned()),
    };
    let (process_exited, orphans_gone, container_start) = process_boundaries(input);
    let pre_fault = &input.recovery.pre_fault;
    let mut all = Instants {
        fire,
        process_exited,
        orphans_gone,
        container_start,
        replica_ready: probe(input.direct),
        traffic_restored: if input.plan.addressed_directly()
            || input.plan.target.service_url.is_none()
        {
            Err(NO_SERVICE.to_owned())
        } else {
            probe(input.service)
        },
        goodput_restored: match (pre_fault.status, pre_fault.entry_ns) {
            // The detector sees whole buckets.
            (RecoveryStatus::Recovered, Some(at_ns)) => Ok(Instant {
                at_ns,
                uncertainty_ns: input.plan.method.recovery.bucket_ns,
            }),
            _ => Err(pre_fault
                .note
                .clone()
                .unwrap_or_else(|| "the detector found no recovery".to_owned())),
        },
        log,
        log_absence,
        unstamped,
        not_restarted: not_restarted(input),
    };
    if let Err(absence) = &all.replica_ready {
        all.replica_ready = Err(all.because(absence.clone()));
    }
    all
}

/// That the first victim was not started again after the fire, and why.
fn not_restarted(input: &DecompositionInput<'_>) -> Option<String> {
    let victim = input.plan.fault.as_ref()?.victims.first()?;
    let lives = input.replicas.iter().find(|r| r.replica == *victim)?;
    let reason = lives.not_restarted.as_ref()?;
    (lives.restarts_after_fire == 0).then(|| format!("{victim} was not started again: {reason}"))
}

/// End of the victim's main process, end of its orphans, and its new start, all after the fire.
fn process_boundaries(input: &DecompositionInput<'_>) -> (Boundary, Boundary, Boundary) {
    let victim = input.plan.fault.as_ref().and_then(|f| f.victims.first());
    let lives = victim.and_then(|v| input.replicas.iter().find(|r| r.replica == *v));
    let (Some(fire_ns), Some(lives)) = (input.fire.actual_ns, lives) else {
        let reason = match input.fire.actual_ns {
            None => no_fire(input.fire),
            Some(_) => "the plan names no victim among its replicas".to_owned(),
        };
        return (Err(reason.clone()), Err(reason.clone()), Err(reason));
    };
    let exit = lives.exits.iter().find(|e| e.at_ns > fire_ns);
    let start = lives.starts.iter().find(|(at, _)| *at > fire_ns);
    let supervised = !lives.starts.is_empty() || !lives.exits.is_empty();
    let why = |what: &str| {
        if !supervised {
            format!(
                "no supervisor: the instrument did not start {}",
                lives.replica
            )
        } else if let Some(reason) = &lives.not_restarted {
            format!("{} was not started again: {reason}", lives.replica)
        } else {
            format!("{what} after the fire")
        }
    };
    (
        exit.map(|e| Instant::exact(e.at_ns))
            .ok_or_else(|| why("the main process did not end")),
        exit.and_then(|e| e.orphans_gone_ns)
            .map(Instant::exact)
            .ok_or_else(|| "no process outlived the main one".to_owned()),
        start
            .map(|(at, _)| Instant::exact(*at))
            .ok_or_else(|| why("no new main process was started")),
    )
}

/// Every row of the method's segment table.
fn rows(input: &DecompositionInput<'_>, at: &Instants<'_>) -> Vec<Segment> {
    let builder = Rows { input };
    let log = |key: &str| at.log(key);
    let mut download = download(at);
    if let (Err(note), Ok(_)) = (&mut download, at.log("weights_loaded")) {
        *note = "no download line after the fire: weights served from a local cache".to_owned();
    }
    let (download_start, download_end) = match download {
        Ok((start, end)) => (Ok(start), Ok(end)),
        Err(note) => (Err(note.clone()), Err(note)),
    };
    let fire = || at.fire.clone();
    let mut rows = vec![
        builder.unmeasured(
            "reschedule",
            SegmentSource::Api,
            "no scheduler: the supervisor restarts in place",
        ),
        builder.row(
            "container_start",
            SegmentSource::Api,
            fire(),
            at.container_start.clone(),
            Some("process supervisor: the new main process's start"),
        ),
        builder.row("log_bringup", SegmentSource::Log, log("banner"), log("server_start"), None),
        builder.row("engine_init", SegmentSource::Log, fire(), log("engine_init"), None),
        builder.row("weight_download", SegmentSource::Log, download_start, download_end, None),
        builder.row(
            "weight_load",
            SegmentSource::Log,
            log("model_load_start"),
            log("weights_loaded"),
            None,
        ),
        builder.row(
            "torch_compile",
            SegmentSource::Log,
            log("model_loaded"),
            log("torch_compile"),
            None,
        ),
        builder.row(
            "profile_kv_capture",
            SegmentSource::Log,
            log("torch_compile"),
            log("graph_capture"),
            None,
        ),
        builder.row("engine_ready", SegmentSource::Log, fire(), log("engine_ready"), None),
        builder.row("server_ready", SegmentSource::Log, fire(), log("startup_complete"), None),
        builder.row(
            "replica_ready",
            SegmentSource::Probe,
            fire(),
            at.replica_ready.clone(),
            Some(
                "first successful inference against the replica directly, after the fault was visible on that path",
            ),
        ),
        builder.row(
            "traffic_restored",
            SegmentSource::Probe,
            fire(),
            at.traffic_restored.clone(),
            Some("first successful inference through the service that the recovered replica served"),
        ),
        builder.row(
            "routing_propagation",
            SegmentSource::Probe,
            if at.traffic_restored.is_err() {
                at.traffic_restored.clone()
            } else {
                at.replica_ready.clone()
            },
            at.traffic_restored.clone(),
            None,
        ),
        builder.row(
            "goodput_restored",
            SegmentSource::Client,
            fire(),
            at.goodput_restored.clone(),
            Some("from the client stream per the detector"),
        ),
    ];
    censor(input, at, &mut rows);
    rows
}

/// Says of the ends that had not come how long they were watched for. An end in the log is not
/// among them: a line that lacks may be one that no matcher knows.
fn censor(input: &DecompositionInput<'_>, at: &Instants<'_>, rows: &mut [Segment]) {
    let recovery = input.recovery;
    // A main process that ended and was not started again: its start lies beyond the run.
    let ended = at.process_exited.is_ok();
    let watched = [
        (
            "container_start",
            &at.fire,
            ended.then_some(recovery.watched_until_ns),
        ),
        ("replica_ready", &at.fire, input.direct.watched_until_ns),
        ("traffic_restored", &at.fire, input.service.watched_until_ns),
        (
            "routing_propagation",
            &at.replica_ready,
            input.service.watched_until_ns,
        ),
        (
            "goodput_restored",
            &at.fire,
            censored_until(&recovery.pre_fault, recovery),
        ),
    ];
    let service = at.traffic_restored.as_ref().err().map(String::as_str) != Some(NO_SERVICE);
    for (name, start, until) in watched {
        let to_service = matches!(name, "traffic_restored" | "routing_propagation");
        let open = |s: &&mut Segment| s.name == name && s.applicable && !s.measured;
        if let (Ok(start), Some(until_ns)) = (start, until)
            && until_ns > start.at_ns
            && (service || !to_service)
            && let Some(row) = rows.iter_mut().find(open)
        {
            row.censored_at_s = Some(seconds(until_ns - start.at_ns));
        }
    }
}

/// The download's span: its line names the seconds that it took, and is printed at its end.
fn download(at: &Instants<'_>) -> Result<(Instant, Instant), String> {
    let end = at.log("weight_download")?;
    let took_s = at
        .log
        .get("weight_download")
        .and_then(|b| b.figures.get("weight_download_s"))
        .copied()
        .filter(|s| s.is_finite() && (0.0..1e6).contains(s))
        .ok_or_else(|| "the download line does not say how long it took".to_owned())?;
    let start = Instant {
        at_ns: end.at_ns - (took_s * 1e9) as i64,
        uncertainty_ns: end.uncertainty_ns,
    };
    Ok((start, end))
}

struct Rows<'a> {
    input: &'a DecompositionInput<'a>,
}

impl Rows<'_> {
    fn unmeasured(&self, name: &str, source: SegmentSource, note: &str) -> Segment {
        self.row(
            name,
            source,
            Err(note.to_owned()),
            Err(note.to_owned()),
            None,
        )
    }

    fn row(
        &self,
        name: &str,
        source: SegmentSource,
        start: Boundary,
        end: Boundary,
        note: Option<&str>,
    ) -> Segment {
        let mut segment = Segment {
            name: name.to_owned(),
            source,
            applicable: self.input.fire.planned,
            measured: false,
            start_at: None,
            end_at: None,
            start_ns: None,
            end_ns: None,
            duration_s: None,
            uncertainty_s: None,
            censored_at_s: None,
            note: None,
        };
        let excluded = self
            .input
            .plan
            .fault
            .as_ref()
            .and_then(|f| f.without_segments.get(name));
        if let Some(reason) = excluded {
            segment.applicable = false;
            segment.note = Some(format!("cannot occur under this fault: {reason}"));
            return segment;
        }
        match (start, end) {
            (Ok(start), Ok(end)) if end.at_ns < start.at_ns && name != "routing_propagation" => {
                let before = start.at_ns - end.at_ns;
                let uncertainty = start.uncertainty_ns + end.uncertainty_ns;
                let said = format!("its end lies {:.6} s before its start", seconds(before));
                segment.note = Some(if before <= uncertainty {
                    format!(
                        "{UNRESOLVED} ({said}, known to ±{:.6} s)",
                        seconds(uncertainty)
                    )
                } else {
                    format!("not claimed: {said}")
                });
            }
            (Ok(start), Ok(end)) => {
                let length = end.at_ns - start.at_ns;
                let uncertainty = start.uncertainty_ns + end.uncertainty_ns;
                segment.measured = true;
                segment.start_ns = Some(start.at_ns);
                segment.end_ns = Some(end.at_ns);
                segment.start_at = self.wall(start.at_ns);
                segment.end_at = self.wall(end.at_ns);
                segment.duration_s = Some(seconds(length));
                segment.uncertainty_s = Some(seconds(uncertainty));
                segment.note = match (length < 0, length.abs() <= uncertainty) {
                    (true, true) => Some(format!("{PREMATURE}; {UNRESOLVED}")),
                    (true, false) => Some(PREMATURE.to_owned()),
                    (false, true) => Some(UNRESOLVED.to_owned()),
                    (false, false) => note.map(str::to_owned),
                };
            }
            (Err(reason), _) | (_, Err(reason)) => segment.note = Some(reason),
        }
        segment
    }

    fn wall(&self, at_ns: i64) -> Option<String> {
        self.input
            .epoch_unix_ns
            .and_then(|e| e.checked_add(at_ns))
            .and_then(rfc3339)
    }
}
