//! The engine or one of its workers fails to start, or dies.

use super::Anchor::{Exception, Message, Within};
use super::{Found, Rule, Site};

const START: &str = "failure.engine_start";
const DEAD: &str = "failure.engine_dead";
const WORKER: &str = "failure.worker_died";

pub(super) fn rules() -> Vec<Rule> {
    let rule = |literal, anchor, key, read| Rule {
        literal,
        anchor,
        key,
        read,
    };
    vec![
        // Start. The first two wordings of 0.3–0.8 serve a later death as well.
        rule("AsyncEngineDeadError", Exception, DEAD, start_or_death_name),
        rule(
            "EngineCore hit an exception: Traceback",
            Message,
            START,
            |_| {
                Some(Found {
                    start_or_death: true,
                    ..Found::default()
                })
            },
        ),
        rule("EngineCore failed to start.", Message, START, plain),
        rule(
            "Engine core initialization failed.",
            Exception,
            START,
            |site| {
                const WITHIN_BYTES: usize = 256;
                let mut cursor = site.cursor();
                let found = Found::default();
                if !cursor.skip_past("ailed core proc(s): ", WITHIN_BYTES) {
                    return Some(found);
                }
                let end = cursor.0.find('}').map_or(0, |end| end + 1);
                Some(found.field("failed", &cursor.0[..end]))
            },
        ),
        rule(
            "Timed out waiting for engine core processes to start",
            Exception,
            START,
            plain,
        ),
        rule(
            "Frontend process failed during engine core initialization",
            Exception,
            START,
            plain,
        ),
        // Death, V0.
        rule("Engine background task failed", Message, DEAD, plain),
        rule(
            "Background loop has errored already",
            Exception,
            DEAD,
            plain,
        ),
        rule("Engine iteration timed out.", Message, DEAD, plain),
        rule("AsyncLLMEngine is already dead", Message, DEAD, plain),
        rule("MQLLMEngine is already dead", Message, DEAD, plain),
        // Death, V1. `MQEngineDeadError: ` and `vllm.….EngineDeadError: ` both end so.
        rule("EngineDeadError: ", Exception, DEAD, plain),
        rule("MulitprocExecutor got fatal signal", Message, DEAD, plain),
        rule(
            "Got fatal signal from worker processes",
            Message,
            DEAD,
            plain,
        ),
        rule(
            "EngineCore encountered a fatal error.",
            Message,
            DEAD,
            plain,
        ),
        rule("Engine core proc ", Message, DEAD, engine_process),
        rule("Engine core process ", Exception, DEAD, engine_process),
        rule("AsyncLLM output_handler failed.", Message, DEAD, plain),
        rule(
            "[shutdown] MPClient: engine core exited unexpectedly",
            Message,
            DEAD,
            plain,
        ),
        // Workers.
        rule(" died, exit code: ", Within, WORKER, worker_v0),
        rule("Worker proc ", Message, WORKER, worker_process),
        rule("RayWorkerProc rank=", Message, WORKER, |site| {
            let rank = site.cursor().integer_text()?;
            site.after[rank.len()..]
                .starts_with(" died unexpectedly")
                .then(|| event("died unexpectedly").field("rank", rank))
        }),
        rule("WorkerProc hit an exception", Message, WORKER, |_| {
            Some(event("hit an exception"))
        }),
        rule("WorkerProc failed to start.", Message, WORKER, |_| {
            Some(event("failed to start"))
        }),
        rule("WorkerProc was terminated", Message, WORKER, |_| {
            Some(event("was terminated"))
        }),
    ]
}

fn plain(_: &Site<'_>) -> Option<Found> {
    Some(Found::default())
}

fn event(text: &str) -> Found {
    Found::default().field("event", text)
}

fn start_or_death_name(site: &Site<'_>) -> Option<Found> {
    let after = site.after.trim_end();
    (after.is_empty() || after.starts_with(':')).then(|| Found {
        start_or_death: true,
        ..Found::default()
    })
}

/// `Engine core proc[ess] NAME died unexpectedly`.
fn engine_process(site: &Site<'_>) -> Option<Found> {
    let (name, _) = site.after.split_once(" died unexpectedly")?;
    (!name.contains(' ') && !name.is_empty()).then(|| Found::default().field("engine", name))
}

/// `Worker NAME pid I died, exit code: X`.
fn worker_v0(site: &Site<'_>) -> Option<Found> {
    let at = site.before.rfind("Worker ")?;
    let (name, pid) = site.before[at + 7..].split_once(" pid ")?;
    let digits = !pid.is_empty() && pid.bytes().all(|byte| byte.is_ascii_digit());
    if !digits || name.contains(' ') {
        return None;
    }
    let code = site.cursor().integer_text()?;
    Some(
        event("died")
            .field("worker", name)
            .field("worker_pid", pid)
            .field("exit_code", code),
    )
}

/// `Worker proc NAME died unexpectedly[ (exit code: X)], shutting down executor.`
fn worker_process(site: &Site<'_>) -> Option<Found> {
    let (name, rest) = site.after.split_once(" died unexpectedly")?;
    if name.is_empty() || name.contains(' ') {
        return None;
    }
    let mut cursor = crate::text::Cursor(rest);
    let code = cursor
        .skip(" (exit code: ")
        .then(|| cursor.integer_text())
        .flatten();
    Some(
        event("died unexpectedly")
            .field("worker", name)
            .field_if("exit_code", code),
    )
}
