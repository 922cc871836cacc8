//! `events.jsonl`: one JSON object a line, appended and handed to the kernel event by event.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use super::plain::open_regular;
use crate::{Event, RecordError};

/// Longest line that is written or read.
pub const MAX_EVENT_LINE_BYTES: usize = 1 << 20;
/// Most events of one file.
pub const MAX_EVENTS: usize = 5_000_000;

/// Appends events. Each one survives a kill of this process once [`append`](Self::append) returned.
#[derive(Debug)]
pub struct EventWriter {
    path: PathBuf,
    file: File,
    line: Vec<u8>,
}

impl EventWriter {
    /// Opens a file for appending, creating it if it is not there.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn create(path: &Path) -> Result<Self, RecordError> {
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .map_err(|e| RecordError::io(path, "create it", e))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            line: Vec::new(),
        })
    }

    /// Opens a file whose writer was killed: a last line that it did not complete
    /// ([`EventLog::torn_bytes`]) goes away, so that more can follow.
    ///
    /// # Errors
    /// When it cannot be opened or shortened.
    pub fn resume(path: &Path, torn_bytes: u64) -> Result<Self, RecordError> {
        let writer = Self::create(path)?;
        if torn_bytes > 0 {
            writer
                .file
                .metadata()
                .and_then(|m| writer.file.set_len(m.len().saturating_sub(torn_bytes)))
                .map_err(|e| RecordError::io(path, "shorten it", e))?;
        }
        Ok(writer)
    }

    /// Appends one event.
    ///
    /// # Errors
    /// When the disk refuses, or the event is longer than [`MAX_EVENT_LINE_BYTES`].
    pub fn append(&mut self, event: &Event) -> Result<(), RecordError> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, event)
            .map_err(|e| RecordError::damaged(&self.path, format!("unwritable event: {e}")))?;
        self.line.push(b'\n');
        if self.line.len() > MAX_EVENT_LINE_BYTES {
            return Err(RecordError::damaged(
                &self.path,
                format!("an event of {} bytes is over the bound", self.line.len()),
            ));
        }
        // One write: a kill leaves whole lines, or one torn line at the end.
        self.file
            .write_all(&self.line)
            .map_err(|e| RecordError::io(&self.path, "append to it", e))
    }
}

/// The events of a file.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EventLog {
    /// The events, in file order.
    pub events: Vec<Event>,
    /// Bytes of a last line that its writer did not complete; 0 = the file was whole.
    pub torn_bytes: u64,
}

impl EventLog {
    /// Lines (from 1) that say the same as an earlier line, each with that line. No writer makes
    /// them, for two events of one instant differ: somebody changed the file.
    pub fn repeats(&self) -> Vec<(u64, u64)> {
        /// Events of one instant that are compared with each other; a file of nothing but one
        /// instant is not to take for ever.
        const MAX_COMPARED: usize = 64;
        let mut order: Vec<usize> = (0..self.events.len()).collect();
        order.sort_by_key(|&i| self.events[i].at_ns);
        let mut found = Vec::new();
        for instant in order.chunk_by(|&a, &b| self.events[a].at_ns == self.events[b].at_ns) {
            for (n, &later) in instant.iter().enumerate() {
                let earlier = &instant[..n.min(MAX_COMPARED)];
                let same = earlier
                    .iter()
                    .find(|&&i| self.events[i].kind == self.events[later].kind);
                // One event a line.
                found.extend(same.map(|&i| (later as u64 + 1, i as u64 + 1)));
            }
        }
        found.sort_unstable();
        found
    }
}

/// Reads a file of events. A last line without its newline is torn and reported; any other line that
/// is no event is an error.
///
/// # Errors
/// When the file cannot be read, a line is no event (with its number), or a bound is exceeded.
pub fn read_events(path: &Path) -> Result<EventLog, RecordError> {
    let file = open_regular(path).map_err(|e| RecordError::io(path, "open it", e))?;
    let mut lines = BufReader::new(file);
    let mut log = EventLog::default();
    let mut line = Vec::new();
    for number in 1_u64.. {
        line.clear();
        let read = (&mut lines)
            .take(MAX_EVENT_LINE_BYTES as u64 + 1)
            .read_until(b'\n', &mut line)
            .map_err(|e| RecordError::io(path, "read it", e))?;
        if read == 0 {
            break;
        }
        if read > MAX_EVENT_LINE_BYTES || log.events.len() == MAX_EVENTS {
            return Err(RecordError::damaged(
                path,
                format!("line {number}: over {MAX_EVENT_LINE_BYTES} bytes or {MAX_EVENTS} events"),
            ));
        }
        if line.last() != Some(&b'\n') {
            log.torn_bytes = read as u64;
            break;
        }
        match serde_json::from_slice(&line) {
            Ok(event) => log.events.push(event),
            Err(e) => return Err(RecordError::damaged(path, format!("line {number}: {e}"))),
        }
    }
    Ok(log)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        CanaryStream, ClockSample, EffectStep, EventKind, Fact, ProbeOutcome, ProbePath,
        ProofVerdict, ReplicaStep,
    };

    fn every_kind() -> Vec<Event> {
        let r0 = || "r0".to_owned();
        let kinds = vec![
            EventKind::Epoch {
                monotonic_ns: 5,
                unix_ns: 1_800_000_000_000_000_001,
            },
            EventKind::Effect(EffectStep {
                effect: 1,
                step: "started".to_owned(),
                action: "signal KILL".to_owned(),
                replica: Some(r0()),
                planned_ns: 7,
                before_ns: Some(8),
                after_ns: None,
                detail: None,
                by: "instrument".to_owned(),
            }),
            EventKind::Replica(ReplicaStep::Exited {
                replica: r0(),
                pid: 3,
                code: None,
                signal: Some(9),
                orphans: vec!["4 VLLM::EngineCore".to_owned()],
            }),
            EventKind::Probe(ProbeOutcome {
                path: ProbePath::Direct,
                replica: Some(r0()),
                sent_ns: -1,
                first_token_ns: None,
                ok: false,
                reason: Some("refused \u{2028} \n".to_owned()),
            }),
            EventKind::Canary(CanaryStream {
                sent_ns: 1,
                completed: true,
                ttft_dev_ns: Some(-3),
                itl_dev_ns: vec![1, -2],
                event_lag_ns: vec![4],
            }),
            EventKind::ClientCpu {
                interval_ns: 1,
                host_percent: 12.5,
                steal_percent: 0.0,
                process_percent: 1.25,
            },
            EventKind::Heartbeat {
                thread: 0,
                ticks: 1,
                late_ns_p50: 2,
                late_ns_p99: 3,
                late_ns_max: 4,
                real_time: Err("EPERM".to_owned()),
            },
            EventKind::Heartbeat {
                thread: 1,
                ticks: 1,
                late_ns_p50: 2,
                late_ns_p99: 3,
                late_ns_max: 4,
                real_time: Ok(()),
            },
            EventKind::Facts {
                phase: "before".to_owned(),
                facts: vec![Fact {
                    replica: r0(),
                    name: "pid".to_owned(),
                    value: None,
                }],
            },
            EventKind::Proof {
                verdict: ProofVerdict::CannotTell,
                statement: "x".to_owned(),
            },
            EventKind::Clock(ClockSample {
                phase: "arm".to_owned(),
                offset_ns: -9,
                bound_ns: 1,
                samples: 0,
            }),
            EventKind::ScrapeError {
                replica: r0(),
                reason: "refused".to_owned(),
            },
            EventKind::Fingerprint {
                replica: r0(),
                phase: "after".to_owned(),
                accelerators: Err("none".to_owned()),
            },
            EventKind::Interrupted {
                signal: "SIGINT".to_owned(),
            },
            EventKind::LoadEnded {
                scheduled: 2,
                recorded: 2,
            },
            EventKind::Killed {
                filled_in: None,
                due: 0,
                records: 7,
                unread_bytes: 12,
                damaged: true,
            },
            EventKind::ReceiveStampsRefused {
                reason: "not permitted".to_owned(),
            },
            EventKind::Note {
                text: "caveat".to_owned(),
            },
        ];
        (0..)
            .zip(kinds)
            .map(|(i, kind)| Event { at_ns: i - 3, kind })
            .collect()
    }

    #[test]
    fn every_kind_round_trips() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut writer = EventWriter::create(&path).unwrap();
        for event in every_kind() {
            writer.append(&event).unwrap();
        }
        let log = read_events(&path).unwrap();
        assert_eq!(log.events, every_kind());
        assert_eq!(log.torn_bytes, 0);
    }

    #[test]
    fn a_torn_last_line_is_tolerated_and_reported() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let mut writer = EventWriter::create(&path).unwrap();
        for event in every_kind() {
            writer.append(&event).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        let whole = every_kind();
        for cut in 0..bytes.len() {
            std::fs::write(&path, &bytes[..cut]).unwrap();
            let log = read_events(&path).unwrap();
            assert_eq!(log.events[..], whole[..log.events.len()]);
            let complete = cut == 0 || bytes[cut - 1] == b'\n';
            assert_eq!(log.torn_bytes == 0, complete, "cut at {cut}");
        }
    }

    #[test]
    fn a_torn_last_line_makes_room_for_what_follows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        let whole = every_kind();
        let mut writer = EventWriter::create(&path).unwrap();
        for event in &whole {
            writer.append(event).unwrap();
        }
        let bytes = std::fs::read(&path).unwrap();
        std::fs::write(&path, &bytes[..bytes.len() - 3]).unwrap();
        let torn_bytes = read_events(&path).unwrap().torn_bytes;
        let mut writer = EventWriter::resume(&path, torn_bytes).unwrap();
        writer.append(&whole[0]).unwrap();
        let log = read_events(&path).unwrap();
        let (last, before) = log.events.split_last().unwrap();
        assert_eq!(before, &whole[..whole.len() - 1]);
        assert_eq!((last, log.torn_bytes), (&whole[0], 0));
    }

    #[test]
    fn repeated_lines_are_found_wherever_they_stand() {
        let whole = every_kind();
        let mut log = EventLog {
            events: whole.clone(),
            torn_bytes: 0,
        };
        assert_eq!(log.repeats(), []);
        log.events.insert(3, whole[2].clone());
        log.events.push(whole[0].clone());
        let lines = log.events.len() as u64;
        assert_eq!(log.repeats(), [(4, 3), (lines, 1)]);
        // The same said again later is another event.
        let mut again = whole[2].clone();
        again.at_ns += 1_000_000;
        log.events = whole;
        log.events.push(again);
        assert_eq!(log.repeats(), []);
    }

    #[test]
    fn damage_in_the_middle_is_an_error_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events.jsonl");
        std::fs::write(&path, "{\"at_ns\":1,\"kind\":\"nonsense\"}\n{}\n").unwrap();
        let error = read_events(&path).unwrap_err().to_string();
        assert!(error.contains("line 1"), "{error}");
    }
}
