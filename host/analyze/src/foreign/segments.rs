//! The decomposition's segments, from fire, container and log boundaries.

use super::boundaries::Boundaries;
use super::checker::{Checker, TOLERANCE_EXACT_NS, TOLERANCE_F64_NS, TOLERANCE_S};
use super::container::ForeignFire;
use crate::time::seconds;

/// A row of the method's table: name, source, start and end.
struct Row {
    name: &'static str,
    source: &'static str,
    start: Edge,
    end: Edge,
}

#[derive(Clone, Copy)]
enum Edge {
    /// The fire, by integer arithmetic.
    Fire,
    /// The fire, after it went through `f64`.
    FireF64,
    /// A log boundary.
    Log(&'static str),
    /// The container's new start.
    Started,
    /// Not in the evidence.
    Unknown,
    /// The row is never measured in a report of this kind.
    Never,
}

const fn row(name: &'static str, source: &'static str, start: Edge, end: Edge) -> Row {
    Row {
        name,
        source,
        start,
        end,
    }
}

const ROWS: [Row; 14] = [
    row("reschedule", "api", Edge::Never, Edge::Never),
    row("container_start", "api", Edge::Fire, Edge::Started),
    row(
        "log_bringup",
        "log",
        Edge::Log("banner"),
        Edge::Log("server_start"),
    ),
    row("engine_init", "log", Edge::Fire, Edge::Log("engine_init")),
    row(
        "weight_download",
        "log",
        Edge::Unknown,
        Edge::Log("weight_download"),
    ),
    row(
        "weight_load",
        "log",
        Edge::Log("model_load_start"),
        Edge::Log("weights_loaded"),
    ),
    row(
        "torch_compile",
        "log",
        Edge::Log("model_loaded"),
        Edge::Log("torch_compile"),
    ),
    row(
        "profile_kv_capture",
        "log",
        Edge::Log("torch_compile"),
        Edge::Log("graph_capture"),
    ),
    row("engine_ready", "log", Edge::Fire, Edge::Log("engine_ready")),
    row(
        "server_ready",
        "log",
        Edge::Fire,
        Edge::Log("startup_complete"),
    ),
    row("replica_ready", "probe", Edge::FireF64, Edge::Unknown),
    row("traffic_restored", "probe", Edge::Never, Edge::Never),
    row("routing_propagation", "probe", Edge::Never, Edge::Never),
    row("goodput_restored", "client", Edge::FireF64, Edge::Unknown),
];

/// Largest accepted fire error, in seconds.
const FIRE_ERROR_MAX_S: f64 = 0.5;

/// Path of a key of the named segment.
pub(crate) fn path(check: &Checker<'_>, run: &str, name: &str, key: &str) -> Option<String> {
    let list = format!("{run}.decomposition.segments");
    (0..check.doc.len(&list))
        .map(|i| format!("{list}[{i}]"))
        .find(|s| check.doc.text(&format!("{s}.name")) == Some(name))
        .map(|s| format!("{s}.{key}"))
}

/// Checks every row of one run.
pub(crate) fn check(
    check: &mut Checker<'_>,
    run: &str,
    fire: Option<&ForeignFire>,
    boundaries: &Boundaries,
) {
    let list = format!("{run}.decomposition.segments");
    if check.doc.get(&list).is_none() {
        return;
    }
    for (i, row) in ROWS.iter().enumerate() {
        let s = format!("{list}[{i}]");
        check.eq_text(&format!("{s}.name"), "table-order", row.name, &[]);
        check.eq_text(&format!("{s}.source"), "table", row.source, &[]);
        // Without a fire no edge is known; its absence has failed an assertion already, or the
        // document carries no such evidence.
        if let Some(fire) = fire {
            one(check, run, &s, row, fire, boundaries);
        }
    }
    let extra = check.doc.len(&list);
    check.require(
        &list,
        "rows",
        extra == ROWS.len(),
        format!("{} rows", ROWS.len()),
        format!("{extra} rows"),
        &[],
    );
    outage(check, run);
    goodput(check, run);
}

fn one(
    check: &mut Checker<'_>,
    run: &str,
    s: &str,
    row: &Row,
    fire: &ForeignFire,
    boundaries: &Boundaries,
) {
    let start = edge(check, run, row.start, fire, boundaries);
    let end = edge(check, run, row.end, fire, boundaries);
    let measured = format!("{s}.measured");
    let expected = match (row.start, row.end) {
        (Edge::Never, _) => Some(false),
        // What the probe and the client saw is not in the evidence, but their figures are.
        (Edge::FireF64, Edge::Unknown) => Some(
            check
                .doc
                .get(&format!(
                    "{run}.{}",
                    if row.name == "replica_ready" {
                        "outage_s"
                    } else {
                        "ttr_pre_fault_s"
                    }
                ))
                .is_some(),
        ),
        (Edge::Unknown, Edge::Log(key)) => Some(boundaries.contains_key(key)),
        _ => Some(start.is_some() && end.is_some()),
    };
    if let Some(expected) = expected {
        check.eq_flag(&measured, "by-evidence", expected, &[]);
        for key in ["start_at", "end_at"] {
            let path = format!("{s}.{key}");
            let present = check.doc.get(&path).is_some();
            check.require(
                &path,
                "present-iff-measured",
                present == expected,
                if expected { "a stamp" } else { "none" }.to_owned(),
                if present { "a stamp" } else { "none" }.to_owned(),
                &[&measured],
            );
        }
        if !expected {
            let note = check.doc.text(&format!("{s}.note")).unwrap_or("");
            check.require(
                &format!("{s}.note"),
                "says-why-not",
                !note.is_empty(),
                "a reason".to_owned(),
                note.to_owned(),
                &[&measured],
            );
            return;
        }
    }
    for (key, edge) in [("start_at", start), ("end_at", end)] {
        if let Some((at_ns, tolerance, evidence)) = edge {
            let evidence: Vec<&str> = evidence.iter().map(String::as_str).collect();
            check.eq_stamp(
                &format!("{s}.{key}"),
                "formula",
                at_ns,
                tolerance,
                &evidence,
            );
        }
    }
}

/// An instant, how closely it must agree, and what it rests on.
type Known = Option<(i64, i64, Vec<String>)>;

fn edge(
    check: &mut Checker<'_>,
    run: &str,
    edge: Edge,
    fire: &ForeignFire,
    boundaries: &Boundaries,
) -> Known {
    let offset = || format!("{run}.container.offset_at_arm.offset_ns");
    match edge {
        Edge::Fire => Some((fire.at_ns, TOLERANCE_EXACT_NS, fire.evidence.clone())),
        Edge::FireF64 => Some((fire.at_ns, TOLERANCE_F64_NS, fire.evidence.clone())),
        Edge::Log(key) => {
            let (path, at) = boundaries.get(key)?;
            let local = at.checked_sub(fire.offset_ns)?;
            Some((local, TOLERANCE_EXACT_NS, vec![path.clone(), offset()]))
        }
        Edge::Started => {
            let path = format!("{run}.container.after.started_at");
            let local = check.stamp(&path)?.checked_sub(fire.offset_ns)?;
            let figure = format!("{run}.container_start_s");
            let evidence = [
                path.as_str(),
                fire.evidence[0].as_str(),
                fire.evidence[1].as_str(),
            ];
            check.eq_num(
                &figure,
                "formula",
                seconds(local.saturating_sub(fire.at_ns)),
                TOLERANCE_S,
                &evidence,
            );
            Some((local, TOLERANCE_EXACT_NS, vec![path, offset()]))
        }
        Edge::Unknown | Edge::Never => None,
    }
}

/// `outage_s` = end − start of `replica_ready`.
fn outage(check: &mut Checker<'_>, run: &str) {
    let (Some(start_path), Some(end_path)) = (
        path(check, run, "replica_ready", "start_at"),
        path(check, run, "replica_ready", "end_at"),
    ) else {
        return;
    };
    let (start, end) = (check.stamp(&start_path), check.stamp(&end_path));
    let figure = format!("{run}.outage_s");
    if let (Some(start), Some(end)) = (start, end) {
        check.eq_num(
            &figure,
            "formula",
            seconds(end.saturating_sub(start)),
            TOLERANCE_S,
            &[&end_path, &start_path],
        );
    } else if check.doc.get(&figure).is_some() {
        check.equal(
            &figure,
            "formula",
            false,
            "absent: replica_ready has no boundaries".to_owned(),
            "a figure".to_owned(),
            &[&start_path, &end_path],
        );
    }
    if let Some(server) = path(check, run, "log_bringup", "end_at") {
        check.ascending("serves-after-start", &[&server, &end_path]);
    }
}

/// Time to recovery counts from the anchor, the segment from the fire: they differ by the fire error.
fn goodput(check: &mut Checker<'_>, run: &str) {
    let (Some(start_path), Some(end_path)) = (
        path(check, run, "goodput_restored", "start_at"),
        path(check, run, "goodput_restored", "end_at"),
    ) else {
        return;
    };
    let figure = format!("{run}.ttr_pre_fault_s");
    let (start, end, ttr) = (
        check.stamp(&start_path),
        check.stamp(&end_path),
        check.num(&figure),
    );
    if let (Some(start), Some(end), Some(ttr)) = (start, end, ttr) {
        let fire_error = ttr - seconds(end.saturating_sub(start));
        check.within(
            &figure,
            "fire-error",
            fire_error,
            (-TOLERANCE_S, FIRE_ERROR_MAX_S),
            &[&end_path, &start_path],
        );
        // Buckets are whole seconds, and so is the plan.
        check.require(
            &figure,
            "whole-buckets",
            (ttr - ttr.round()).abs() < TOLERANCE_S,
            "a whole number of 1 s buckets".to_owned(),
            ttr.to_string(),
            &[],
        );
    }
}
