//! Whether a log's first lines are this server's.

use crate::Session;
use crate::record;
use crate::text::{clean, floor_char};

/// Longest text looked at.
const MAX_PROBE_BYTES: usize = 1024 * 1024;
/// Lines searched for vLLM's head when no boundary decides.
const MAX_PROBE_LINES: usize = 1000;

/// Answer of [`probe`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Release read from the first banner or engine line.
    pub version: Option<String>,
    /// 0 = not vLLM, 100 = certain.
    pub confidence: u8,
}

/// Looks at the first lines of a log, joined by `\n`.
///
/// A banner or an engine line is certain. Other boundaries are telling, but the
/// framework's own lines (`Application startup complete.`) come from any server, and
/// the shape of the head alone may be borrowed.
pub fn probe(head: &str) -> Probe {
    const CERTAIN: u8 = 100;
    const OWN_BOUNDARY: u8 = 80;
    const OWN_HEAD: u8 = 50;
    const FRAMEWORK_ONLY: u8 = 10;
    let head = &head[..floor_char(head, MAX_PROBE_BYTES)];
    let mut session = Session::new();
    let mut boundaries = session.feed(head);
    boundaries.extend(session.finish());
    let mut telling = boundaries
        .iter()
        .filter(|boundary| matches!(boundary.key, "banner" | "engine_init"))
        .peekable();
    if telling.peek().is_some() {
        return Probe {
            version: telling
                .flat_map(|boundary| &boundary.fields)
                .find(|field| field.key == "version")
                .map(|field| field.value.clone()),
            confidence: CERTAIN,
        };
    }
    let framework = |key| matches!(key, "startup_complete" | "shutdown");
    let own = boundaries.iter().any(|boundary| {
        // Failures of libraries below vLLM are anyone's.
        !framework(boundary.key)
            && (!boundary.key.starts_with("failure.") || boundary.key.contains("engine"))
    });
    let confidence = if own {
        OWN_BOUNDARY
    } else if head.lines().take(MAX_PROBE_LINES).any(has_head) {
        OWN_HEAD
    } else if boundaries.iter().any(|boundary| framework(boundary.key)) {
        FRAMEWORK_ONLY
    } else {
        0
    };
    Probe {
        version: None,
        confidence,
    }
}

fn has_head(line: &str) -> bool {
    let line = clean(&line[..floor_char(line, 4096)]).into_owned();
    record::records(&line)
        .iter()
        .any(|record| record.head.is_some())
}
