//! Shutdown in good order, and preemption.

use super::Anchor::{Free, Message};
use super::{Found, Rule, Site};
use crate::text::Cursor;

const SHUTDOWN: &str = "shutdown";

pub(super) fn rules() -> Vec<Rule> {
    let rule = |literal, anchor, key, read| Rule {
        literal,
        anchor,
        key,
        read,
    };
    vec![
        rule(
            "Shutting down FastAPI HTTP server",
            Message,
            SHUTDOWN,
            |_| Some(asked(component("API server", "shutting down"))),
        ),
        rule("Shutting down", Free, SHUTDOWN, framework_shutdown),
        rule("Application shutdown complete.", Message, SHUTDOWN, |_| {
            Some(component("HTTP server", "shutdown complete"))
        }),
        rule("WorkerProc shutting down.", Message, SHUTDOWN, |_| {
            Some(component("WorkerProc", "shutting down"))
        }),
        rule("Shutdown initiated (timeout=", Message, SHUTDOWN, |site| {
            let timeout = site.after.split_once(')').map(|(timeout, _)| timeout);
            let found = asked(component("API server", "initiated"));
            Some(found.field_if("timeout", timeout))
        }),
        rule("[shutdown] ", Message, SHUTDOWN, family),
        rule(
            " is preempted by PreemptionMode.",
            Free,
            "preempted",
            preempted_v0,
        ),
        rule("Preemptions: ", Free, "preempted", preempted_v1),
    ]
}

fn component(component: &str, event: &str) -> Found {
    Found::default()
        .field("component", component)
        .field("event", event)
}

fn asked(found: Found) -> Found {
    Found {
        stop_asked: true,
        ..found
    }
}

/// The server framework's `INFO:     Shutting down`: the words alone are too common.
fn framework_shutdown(site: &Site<'_>) -> Option<Found> {
    let before = site.before.trim_end();
    let starts = if site.headed() {
        before.trim_start().is_empty()
    } else {
        before.ends_with("INFO:")
    };
    let after = site
        .after
        .trim_matches(|c: char| c.is_whitespace() || c == '│');
    (starts && after.is_empty()).then(|| asked(component("HTTP server", "shutting down")))
}

/// 0.23+: `[shutdown] COMPONENT: event key=value …`.
fn family(site: &Site<'_>) -> Option<Found> {
    /// Pairs kept of one line.
    const MAX_PAIRS: usize = 8;
    const NAMES: [&str; 7] = [
        "API server",
        "AsyncLLM",
        "MPClient",
        "EngineCore",
        "Executor",
        "WorkerProc",
        "Process manager",
    ];
    let text = site.after.trim_end();
    let named = text
        .split_once(": ")
        .filter(|(name, _)| NAMES.contains(name) || !name.contains(['=', '\'', '"']));
    let (mut found, rest) = match named {
        Some((name, rest)) if name.len() <= 40 => (Found::default().field("component", name), rest),
        _ => (Found::default(), text),
    };
    let mut event_end = rest.len();
    let mut pairs = Vec::new();
    let mut at = 0;
    for word in rest.split(' ') {
        if let Some((key, value)) = word.split_once('=')
            && let Some(key) = KNOWN_PAIRS.iter().find(|known| **known == key)
            && pairs.len() < MAX_PAIRS
        {
            event_end = event_end.min(at);
            pairs.push((*key, value));
        }
        at += word.len() + 1;
    }
    let event = rest[..event_end].trim();
    // The rest of the family also comes when the engine died by itself.
    found.stop_asked = matches!(event, "shutdown triggered" | "trigger received");
    found = found.field("event", event);
    for (key, value) in pairs {
        found = found.field(key, value);
    }
    Some(found)
}

/// Keys seen behind an event.
const KNOWN_PAIRS: [&str; 5] = ["timeout", "mode", "signal", "count", "pid"];

/// V0, every 50th: `Sequence group ID is preempted by PreemptionMode.MODE mode because …
/// total_num_cumulative_preemption=I`.
fn preempted_v0(site: &Site<'_>) -> Option<Found> {
    if !super::free_of_quotes(site.before) {
        return None;
    }
    let (_, request) = site.before.rsplit_once("Sequence group ")?;
    let mut cursor = site.cursor();
    let mode = cursor.run(|c| c.is_ascii_alphabetic() || c == '_')?;
    let total = site
        .after
        .split_once("total_num_cumulative_preemption=")
        .and_then(|(_, total)| Cursor(total).integer_text());
    Some(
        Found::default()
            .field("request", request)
            .field("mode", mode)
            .field_if("cumulative", total),
    )
}

/// 0.12+: the end of the statistics line, where there were any.
fn preempted_v1(site: &Site<'_>) -> Option<Found> {
    let before = site.before.trim_start();
    let statistics = before.starts_with("Engine ") && before.contains("Avg prompt throughput");
    let count = site.cursor().integer_text()?;
    let any = count.bytes().any(|byte| byte != b'0');
    (statistics && any).then(|| Found::default().field("preemptions", count))
}
