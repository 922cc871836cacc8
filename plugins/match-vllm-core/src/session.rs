//! The parser of one replica's log, fed batch by batch.

use std::borrow::Cow;

use crate::json::{self, LogObject};
use crate::prefilter::{Prefilter, count_newlines};
use crate::record::{self, CLIENT_TEXT, Head, Process, Record};
use crate::rules::{self, Found, Rule, Site};
use crate::text::{ceil_char, clean, floor_char};
use crate::{Boundary, Field};

/// Longest part of a physical line that is read at once. A bar's history and a dumped
/// configuration fit; of longer lines, the surroundings of each literal are read.
const MAX_VIEW_BYTES: usize = 64 * 1024;
/// How much before the first literal a view of a longer line begins.
const VIEW_LEAD_BYTES: usize = 16 * 1024;
/// Views read of one physical line.
const MAX_VIEWS: usize = 8;
/// Literals looked at in one record.
const MAX_HITS: usize = 32;
/// Lines behind the banner's release in which its model is looked for: other
/// processes may write in between.
const BANNER_LINES: u64 = 8;
/// Lines read of one multi-line message or traceback in JSON form.
const MAX_MESSAGE_LINES: usize = 512;

/// State of one replica's log.
///
/// Its size is bounded: it keeps at most one boundary back, and no text of the log
/// beyond that boundary's fields.
pub struct Session {
    prefilter: Prefilter,
    rules: Vec<Rule>,
    /// Physical lines fed so far.
    line: u64,
    /// The banner whose model has not been seen.
    pending: Option<Boundary>,
    /// Head of a record whose further lines are a client's text.
    client_head: Option<String>,
    /// The server of this life answered already.
    started: bool,
    /// Something of this life failed.
    failed: bool,
    /// The server of this life was asked to stop before anything failed.
    stopping: bool,
}

impl Default for Session {
    fn default() -> Self {
        Self::new()
    }
}

impl Session {
    /// A parser at the start of a log.
    pub fn new() -> Self {
        let rules = rules::table();
        let literals = rules.iter().map(|rule| rule.literal).chain(CLIENT_TEXT);
        Self {
            prefilter: Prefilter::new(literals),
            rules,
            line: 0,
            pending: None,
            client_head: None,
            started: false,
            failed: false,
            stopping: false,
        }
    }

    /// Reads whole lines joined by `\n`, without a last one; the empty text is one
    /// empty line. Boundaries come in line order. A banner may come with a later
    /// batch, when its model has been seen.
    pub fn feed(&mut self, text: &str) -> Vec<Boundary> {
        let mut out = Vec::new();
        let bytes = text.as_bytes();
        // Start of the first line not yet looked at, and its number.
        let mut from = 0;
        let mut line = self.line;
        while from <= bytes.len() {
            if self.pending.is_some() {
                let end = line_end(bytes, from);
                self.physical_line(&text[from..end], line, &mut out);
                self.age_banner(line, &mut out);
                from = end + 1;
                line += 1;
                continue;
            }
            let Some(hit) = self.prefilter.find(bytes, from) else {
                break;
            };
            let start = bytes[from..hit.at]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(from, |at| from + at + 1);
            line += count_newlines(&bytes[from..start]);
            let end = line_end(bytes, hit.at);
            self.physical_line(&text[start..end], line, &mut out);
            from = end + 1;
            line += 1;
        }
        let rest = bytes.get(from..).map(|rest| count_newlines(rest) + 1);
        self.line = line + rest.unwrap_or(0);
        out
    }

    /// Boundaries that only the end of the log decides.
    pub fn finish(&mut self) -> Vec<Boundary> {
        self.pending.take().into_iter().collect()
    }

    /// Bytes of log text that the session holds on to.
    pub fn retained_bytes(&self) -> usize {
        let client_head = self.client_head.as_ref().map_or(0, String::capacity);
        let pending = self.pending.iter().flat_map(|banner| &banner.fields);
        client_head + pending.map(|field| field.value.capacity()).sum::<usize>()
    }

    fn age_banner(&mut self, line: u64, out: &mut Vec<Boundary>) {
        let old = |banner: &mut Boundary| line >= banner.line + BANNER_LINES;
        out.extend(self.pending.take_if(old));
    }

    fn physical_line(&mut self, raw: &str, line: u64, out: &mut Vec<Boundary>) {
        if raw.len() <= MAX_VIEW_BYTES {
            self.view(raw, line, out);
            return;
        }
        let mut from = 0;
        for _ in 0..MAX_VIEWS {
            let Some(hit) = self.prefilter.find(raw.as_bytes(), from) else {
                return;
            };
            let start = ceil_char(raw, hit.at.saturating_sub(VIEW_LEAD_BYTES).max(from));
            let end = floor_char(raw, start + MAX_VIEW_BYTES);
            self.view(&raw[start..end], line, out);
            from = end;
        }
    }

    fn view(&mut self, raw: &str, line: u64, out: &mut Vec<Boundary>) {
        let text = clean(raw);
        match find_object(&text) {
            Some((before, object)) => self.object(before, object, line, out),
            None => self.plain(&text, line, out),
        }
    }

    fn plain(&mut self, text: &str, line: u64, out: &mut Vec<Boundary>) {
        for record in record::records(text) {
            let head = record.head.map(|head| head_key(&head, record.process));
            if head.is_some() && self.client_head == head {
                continue;
            }
            if CLIENT_TEXT
                .iter()
                .any(|start| record.text.starts_with(start))
            {
                self.client_head = head;
                continue;
            }
            let stamp = record.head.map(|head| text_stamp(head.stamp));
            self.record(&record, stamp, line, out);
        }
    }

    /// One record of the JSON formatter: message and traceback may have many lines,
    /// of which each key counts once.
    fn object(&mut self, before: &str, object: LogObject<'_>, line: u64, out: &mut Vec<Boundary>) {
        if let Some(log) = object.log {
            self.plain(&clean(log.trim_end()), line, out);
            return;
        }
        let stamp = object.asctime.as_deref().and_then(json_stamp);
        let wrapper = record::last_process(before);
        let name = object
            .vllm_process
            .as_deref()
            .or(wrapper.map(|process| process.name))
            .or(object.python_process.as_deref());
        let pid = object.pid.or(wrapper.map(|process| process.pid));
        let process = name.map(|name| Process {
            name,
            pid: pid.unwrap_or(""),
        });
        let message = object.message.unwrap_or(Cow::Borrowed(""));
        let message = clean(&message);
        if CLIENT_TEXT.iter().any(|start| message.starts_with(start)) {
            return;
        }
        let mut found = Vec::new();
        let traceback = object.exc_info.as_deref().unwrap_or("");
        let lines = message.split('\n').chain(traceback.split('\n'));
        for text in lines.take(MAX_MESSAGE_LINES) {
            let record = Record {
                head: Some(Head {
                    // Without a level, the place in the message must do.
                    level: object.level.as_deref().unwrap_or("ERROR"),
                    stamp: "",
                    place: "",
                }),
                process,
                text,
            };
            self.record(&record, stamp.clone(), line, &mut found);
        }
        found.extend(self.pending.take_if(|banner| banner.line == line));
        let mut seen: Vec<&'static str> = Vec::new();
        for boundary in found {
            if boundary.line != line {
                out.push(boundary);
            } else if !seen.contains(&boundary.key) {
                seen.push(boundary.key);
                out.push(boundary);
            }
        }
    }

    fn record(
        &mut self,
        record: &Record<'_>,
        stamp: Option<String>,
        line: u64,
        out: &mut Vec<Boundary>,
    ) {
        if record.head.is_some()
            && let Some(banner) = &mut self.pending
            && banner.process.as_deref() == record.process.map(|process| process.name)
            && let Some(model) = rules::logo_model(record.text)
        {
            banner.fields.push(Field {
                key: "model",
                value: model.to_owned(),
            });
            out.extend(self.pending.take());
            return;
        }
        let Some((rule, found, at)) = self.first_rule(record) else {
            return;
        };
        let key = found.key.unwrap_or(self.rules[rule].key);
        let process = record
            .process
            .or_else(|| record::last_process(&record.text[..at]));
        self.boundary(key, found, process, stamp, line, out);
    }

    /// The first rule of the table that fits the record, and where its literal is.
    fn first_rule(&self, record: &Record<'_>) -> Option<(usize, Found, usize)> {
        let bytes = record.text.as_bytes();
        let mut best: Option<(usize, Found, usize)> = None;
        let mut from = 0;
        for _ in 0..MAX_HITS {
            let Some(hit) = self.prefilter.find(bytes, from) else {
                break;
            };
            from = hit.at + 1;
            for index in self.prefilter.all_at(bytes, hit.at) {
                let Some(rule) = self.rules.get(index) else {
                    continue;
                };
                if best.as_ref().is_some_and(|(known, ..)| *known <= index) {
                    continue;
                }
                let site = Site {
                    before: &record.text[..hit.at],
                    after: &record.text[hit.at + rule.literal.len()..],
                    level: record.head.map(|head| head.level),
                };
                if let Some(found) = rule.apply(&site) {
                    best = Some((index, found, hit.at));
                }
            }
        }
        best
    }

    fn boundary(
        &mut self,
        key: &'static str,
        found: Found,
        process: Option<Process<'_>>,
        stamp: Option<String>,
        line: u64,
        out: &mut Vec<Boundary>,
    ) {
        let key = if found.start_or_death && key.starts_with("failure.engine_") {
            if self.started {
                "failure.engine_dead"
            } else {
                "failure.engine_start"
            }
        } else {
            key
        };
        let mut fields = found.fields;
        if let Some(process) = process.filter(|process| !process.pid.is_empty()) {
            fields.push(Field {
                key: "pid",
                value: process.pid.to_owned(),
            });
        }
        if key == "banner" || (key == "engine_init" && self.started) {
            (self.started, self.failed, self.stopping) = (false, false, false);
        }
        self.started |= key == "startup_complete";
        self.stopping |= found.stop_asked && !self.failed;
        if key.starts_with("failure.") {
            self.failed = true;
            if self.stopping {
                fields.push(Field {
                    key: "during",
                    value: "shutdown".to_owned(),
                });
            }
        }
        let boundary = Boundary {
            line,
            key,
            process: process.map(|process| process.name.to_owned()),
            stamp,
            measures: found.measures,
            fields,
        };
        // Boundaries leave in line order, so a banner without its model goes first.
        out.extend(self.pending.take());
        let complete = boundary.fields.iter().any(|field| field.key == "model");
        if key == "banner" && !complete {
            self.pending = Some(boundary);
        } else {
            out.push(boundary);
        }
    }
}

fn line_end(bytes: &[u8], from: usize) -> usize {
    bytes[from..]
        .iter()
        .position(|byte| *byte == b'\n')
        .map_or(bytes.len(), |at| from + at)
}

/// The log object of a line and the text before it.
fn find_object(text: &str) -> Option<(&str, LogObject<'_>)> {
    let at = text.find("{\"")?;
    // Behind a head of its own, an object is part of a text message.
    if record::records(&text[..at])
        .iter()
        .any(|r| r.head.is_some())
    {
        return None;
    }
    let object = json::read_object(&text[at..]);
    let known = object.log.is_some()
        || (object.message.is_some() && (object.level.is_some() || object.asctime.is_some()));
    known.then_some((&text[..at], object))
}

fn head_key(head: &Head<'_>, process: Option<Process<'_>>) -> String {
    let (name, pid) = process.map_or(("", ""), |process| (process.name, process.pid));
    format!("{} {} {name} {pid}", head.stamp, head.place)
}

/// `12-31 23:59:50` → `--12-31T23:59:50`.
fn text_stamp(stamp: &str) -> String {
    format!("--{}", stamp.replacen(' ', "T", 1))
}

/// `2026-12-31 23:59:50,000` → `2026-12-31T23:59:50.000`.
fn json_stamp(asctime: &str) -> Option<String> {
    let bytes = asctime.as_bytes();
    let shape = bytes.len() >= 19
        && bytes.len() <= 32
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            4 | 7 => *byte == b'-',
            10 => matches!(byte, b' ' | b'T'),
            13 | 16 => *byte == b':',
            19 => matches!(byte, b',' | b'.'),
            _ => byte.is_ascii_digit(),
        })
        && bytes.len() != 20;
    shape.then(|| {
        let stamp = asctime.replacen(' ', "T", 1);
        stamp.replacen(',', ".", 1)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps() {
        assert_eq!(text_stamp("01-01 00:00:02"), "--01-01T00:00:02");
        assert_eq!(
            json_stamp("2027-01-01 00:00:02,000").as_deref(),
            Some("2027-01-01T00:00:02.000")
        );
        assert_eq!(
            json_stamp("2027-01-01 00:00:02").as_deref(),
            Some("2027-01-01T00:00:02")
        );
        for bad in [
            "",
            "2027-01-01",
            "2027-01-01 00:00:02,",
            "x027-01-01 00:00:02",
            "é",
        ] {
            assert_eq!(json_stamp(bad), None, "{bad}");
        }
    }
}
