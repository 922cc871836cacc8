//! The mock's scripted truth (`blackstart mock --truth FILE`), life by life.

use std::path::Path;

use serde_json::Value;

/// One line of it.
pub type TruthLine = Value;

/// All lines, in the order in which they were written.
///
/// # Panics
/// When the file cannot be read, or a line is no JSON.
pub fn read_truth(path: &Path) -> Vec<TruthLine> {
    std::fs::read_to_string(path)
        .unwrap_or_else(|e| panic!("{}: {e}", path.display()))
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|e| panic!("{line}: {e}")))
        .collect()
}

/// What one start of the server said of itself: its API process and the engine below it.
#[derive(Debug, Default)]
pub struct Life {
    /// Process id of the API process.
    pub pid: u64,
    /// All its lines.
    pub lines: Vec<TruthLine>,
}

impl Life {
    /// Lines of one event.
    pub fn events<'a>(&'a self, event: &'a str) -> impl Iterator<Item = &'a TruthLine> {
        self.lines.iter().filter(move |l| l["event"] == event)
    }

    /// Instant of the first line of an event, `CLOCK_MONOTONIC`, nanoseconds.
    pub fn at(&self, event: &str) -> Option<i64> {
        self.events(event).next()?["ns"].as_i64()
    }

    /// Instant of a start's boundary, `CLOCK_MONOTONIC`, nanoseconds.
    pub fn boundary(&self, key: &str) -> Option<i64> {
        self.events("boundary").find(|l| l["key"] == key)?["ns"].as_i64()
    }

    /// Requests that arrived and never ended: client's id of each. Requests without an id of the
    /// client's are left out.
    pub fn unended(&self) -> Vec<String> {
        let ended: Vec<&Value> = self.events("request_end").map(|l| &l["n"]).collect();
        self.events("request")
            .filter(|l| !ended.contains(&&l["n"]))
            .filter_map(|l| l["id"].as_str().map(str::to_owned))
            .collect()
    }
}

/// The lines by life of the server, in order. An engine's lines belong to the API process above it.
pub fn lives(lines: &[TruthLine]) -> Vec<Life> {
    let mut lives: Vec<Life> = Vec::new();
    let mut engines: Vec<(u64, usize)> = Vec::new();
    for line in lines {
        let pid = line["pid"].as_u64().unwrap_or(0);
        let start = line["event"] == "process_start";
        let at = if line["role"] == "api" {
            if start {
                lives.push(Life {
                    pid,
                    lines: Vec::new(),
                });
            }
            lives.iter().rposition(|l| l.pid == pid)
        } else {
            if start && let Some(parent) = line["ppid"].as_u64() {
                engines.extend(
                    lives
                        .iter()
                        .rposition(|l| l.pid == parent)
                        .map(|at| (pid, at)),
                );
            }
            engines
                .iter()
                .rev()
                .find(|(engine, _)| *engine == pid)
                .map(|(_, at)| *at)
        };
        if let Some(at) = at {
            lives[at].lines.push(line.clone());
        }
    }
    lives
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn lines_find_their_life() {
        let line = |event: &str, role: &str, pid: u64, more: Value| {
            let mut l = json!({ "ns": pid, "event": event, "role": role, "pid": pid });
            l.as_object_mut()
                .expect("an object")
                .extend(more.as_object().expect("an object").clone());
            l
        };
        let lines = vec![
            line("process_start", "api", 1, json!({})),
            line("process_start", "engine", 2, json!({ "ppid": 1 })),
            line("boundary", "engine", 2, json!({ "key": "kv_cache" })),
            line("request", "api", 1, json!({ "n": 0, "id": "a" })),
            line("request", "api", 1, json!({ "n": 1, "id": "b" })),
            line("request_end", "api", 1, json!({ "n": 0, "id": "a" })),
            line("process_start", "api", 3, json!({})),
            // An orphan's last words come after the next life began.
            line("engine_orphaned", "engine", 2, json!({})),
            line("process_start", "engine", 4, json!({ "ppid": 3 })),
            line("boundary", "engine", 4, json!({ "key": "kv_cache" })),
        ];
        let lives = lives(&lines);
        assert_eq!(lives.len(), 2);
        assert_eq!(lives[0].unended(), ["b"]);
        assert_eq!(lives[0].boundary("kv_cache"), Some(2));
        assert_eq!(lives[0].at("engine_orphaned"), Some(2));
        assert_eq!(lives[1].boundary("kv_cache"), Some(4));
    }
}
