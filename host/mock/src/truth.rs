//! The scripted truth: what the mock did and when, as JSON lines on CLOCK_MONOTONIC.
//!
//! Every line is one `write(2)` to a file opened with `O_APPEND`, so several
//! processes and several lives can share a file and a SIGKILL never leaves half
//! a line. Every line has `ns` (when it happened), `event`, `role` (`api`,
//! `engine`) and `pid`. Instants are nanoseconds; `null` = did not happen.
//!
//! | event | fields |
//! | --- | --- |
//! | `process_start` | api: `release`, `start` (with a state file), `port`, `replica`; engine: `ppid` |
//! | `worker_start` | `worker_pid` |
//! | `boundary` | `key` as log matchers name it, taken just before the line is written; a figure in seconds named after the key (`weights_loaded_s`) where the line has one |
//! | `device_taken`, `device_busy` | the engine got, or did not get, the device |
//! | `ready` | the port is open: `port`, `engine_pid` |
//! | `request` | `n` (number in this life), `id` (client's `x-request-id`); `ns` is the arrival |
//! | `request_end` | `n`, `id`, `end`, `status`, `arrival_ns`, `admitted_ns`, `first_token_due_ns`, `last_token_due_ns` (the script), `first_token_ns`, `last_token_ns` (handed to the socket), `tokens` (handed to the socket), `prompt_tokens` |
//! | `fault` | `fault`: mode and parameters set over the admin interface |
//! | `engine_frozen` | the engine woke from a stop: `until_ns` |
//! | `engine_gone` | seen by the API process: `status` = exit code, or minus the signal |
//! | `engine_orphaned` | the engine lost its API process |
//! | `signal`, `drain_overrun`, `realtime` | `name`; `open` requests; `granted` |
//! | `exit` | `code`; missing when the process was killed |
//!
//! A `request` without `request_end` before the next life's `process_start` was
//! in flight when its API process was killed.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::{Map, Value};

use crate::mono::now_ns;

/// An append-only truth file, or nothing when none was asked for.
#[derive(Debug)]
pub struct Truth {
    file: Option<File>,
    role: &'static str,
    pid: u32,
}

impl Truth {
    /// Opens `path` for appending; `None` records nothing.
    ///
    /// # Errors
    /// When the file cannot be created or opened for appending.
    pub fn open(path: Option<&Path>, role: &'static str) -> io::Result<Self> {
        let file = match path {
            None => None,
            Some(p) => Some(OpenOptions::new().create(true).append(true).open(p)?),
        };
        Ok(Truth {
            file,
            role,
            pid: std::process::id(),
        })
    }

    /// True when something is recorded: lets callers skip building the fields.
    pub fn on(&self) -> bool {
        self.file.is_some()
    }

    /// Appends one line that happened at `ns`.
    pub fn write_at(&self, ns: u64, event: &str, fields: Value) {
        let Some(file) = &self.file else { return };
        let mut line = Map::new();
        line.insert("ns".into(), ns.into());
        line.insert("event".into(), event.into());
        line.insert("role".into(), self.role.into());
        line.insert("pid".into(), self.pid.into());
        if let Value::Object(more) = fields {
            line.extend(more);
        }
        let mut bytes = Value::Object(line).to_string().into_bytes();
        bytes.push(b'\n');
        // A full disk must not stop the server under test; the reader of the
        // file sees the missing lines.
        let _ = (&mut &*file).write_all(&bytes);
    }

    /// Appends one line that happens now; returns the stamp.
    pub fn write(&self, event: &str, fields: Value) -> u64 {
        let ns = now_ns();
        self.write_at(ns, event, fields);
        ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn two_writers_append_whole_lines() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("truth.jsonl");
        let a = Truth::open(Some(&path), "api").unwrap();
        let b = Truth::open(Some(&path), "engine").unwrap();
        for i in 0..50 {
            a.write("x", json!({ "i": i }));
            b.write("y", json!({ "i": i }));
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 100);
        assert!(lines.iter().all(|l| l["ns"].is_u64() && l["pid"].is_u64()));
        assert!(!Truth::open(None, "api").unwrap().on());
    }
}
