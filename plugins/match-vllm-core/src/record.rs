//! Takes one physical line apart into records: who printed it, when, and the message.
//!
//! The core of a line is `LEVEL MM-DD HH:MM:SS [file.py:123] message`, searched
//! anywhere in the line, because bars, wrappers and other processes write before
//! and after it. What lies before the first core is a record of its own without a
//! head: server framework lines, tracebacks and re-logged messages look like that.

/// What a head tells about the record behind it.
#[derive(Debug, Clone, Copy)]
pub struct Head<'a> {
    /// `INFO`, `ERROR`, ...
    pub level: &'a str,
    /// `MM-DD HH:MM:SS`.
    pub stamp: &'a str,
    /// `file.py:123`.
    pub place: &'a str,
}

/// A part of a physical line that one process printed as one record.
#[derive(Debug, Clone, Copy)]
pub struct Record<'a> {
    /// `None` for text without vLLM's own head.
    pub head: Option<Head<'a>>,
    /// Name and process id in the last parenthesis before the head.
    pub process: Option<Process<'a>>,
    /// The message, or all text of a record without a head.
    pub text: &'a str,
}

/// `(EngineCore pid=72) `, `(VllmWorker rank=1 pid=9, ip=192.0.2.7) `.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Process<'a> {
    /// `EngineCore`, `VllmWorker rank=1`.
    pub name: &'a str,
    /// Decimal process id.
    pub pid: &'a str,
}

/// Records read of one physical line; glued records beyond that are ignored.
const MAX_RECORDS: usize = 16;
/// How far before a head its process prefix is looked for.
const MAX_PREFIX_BYTES: usize = 4096;
/// Longest process name and process id.
const MAX_NAME_BYTES: usize = 64;
const MAX_PID_DIGITS: usize = 10;
const STAMP_BYTES: usize = 14;
const LEVELS: [&str; 5] = ["DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"];
/// Messages whose text is a client's: nothing in them is a record.
pub const CLIENT_TEXT: [&str; 2] = ["Received request", "Generated response"];

struct FoundHead<'a> {
    head: Head<'a>,
    /// Where the level word starts.
    at: usize,
    /// Where the message starts.
    message_at: usize,
}

/// Splits a clean line into records, in order.
pub fn records(line: &str) -> Vec<Record<'_>> {
    let mut heads: Vec<FoundHead<'_>> = Vec::new();
    let mut from = 0;
    while heads.len() < MAX_RECORDS {
        let Some(found) = find_head(line, from) else {
            break;
        };
        from = found.message_at;
        if let Some(previous) = heads.last() {
            let between = &line[previous.message_at..found.at];
            // A head inside a quotation is a client's or a configuration's text.
            let quoted = |quote| between.bytes().filter(|byte| *byte == quote).count() % 2 == 1;
            if quoted(b'\'')
                || quoted(b'"')
                || CLIENT_TEXT.iter().any(|text| between.starts_with(text))
            {
                continue;
            }
        }
        heads.push(found);
    }
    let mut out = Vec::with_capacity(heads.len() + 1);
    let mut start = 0;
    for (index, found) in heads.iter().enumerate() {
        if index == 0 && found.at > 0 {
            out.push(Record {
                head: None,
                process: None,
                text: &line[..found.at],
            });
        }
        let end = heads.get(index + 1).map_or(line.len(), |next| {
            prefix_start(line, found.message_at, next.at)
        });
        out.push(Record {
            head: Some(found.head),
            process: last_process(&line[start..found.at]),
            text: &line[found.message_at..end],
        });
        start = end;
    }
    if heads.is_empty() {
        out.push(Record {
            head: None,
            process: None,
            text: line,
        });
    }
    out
}

fn find_head(line: &str, mut from: usize) -> Option<FoundHead<'_>> {
    loop {
        let dot = from + line[from..].find(".py:")?;
        from = dot + 4;
        if let Some(found) = head_around(line, dot) {
            return Some(found);
        }
    }
}

fn head_around(line: &str, dot: usize) -> Option<FoundHead<'_>> {
    let bytes = line.as_bytes();
    let digits_at = dot + 4;
    let digits = bytes[digits_at..]
        .iter()
        .take(MAX_PID_DIGITS)
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let close = digits_at + digits;
    if digits == 0 || bytes.get(close) != Some(&b']') {
        return None;
    }
    let message_at = match bytes.get(close + 1) {
        None => close + 1,
        Some(b' ') => close + 2,
        Some(b'\r') => close + 1,
        Some(_) => return None,
    };
    let file_bytes = bytes[..dot]
        .iter()
        .rev()
        .take(MAX_PREFIX_BYTES)
        .take_while(|byte| {
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.' | b'/' | b'-')
        })
        .count();
    let file_at = dot - file_bytes;
    let before = line[..file_at]
        .strip_suffix('[')
        .unwrap_or(&line[..file_at]);
    let before = before.strip_suffix(' ')?.trim_end_matches(' ');
    let stamp_at = before.len().checked_sub(STAMP_BYTES)?;
    let stamp = before.get(stamp_at..)?;
    if !is_stamp(stamp) {
        return None;
    }
    let before = before[..stamp_at].strip_suffix(' ')?.trim_end_matches(' ');
    let level = LEVELS.iter().find(|level| before.ends_with(**level))?;
    let at = before.len() - level.len();
    let boundary = |byte: &u8| !(byte.is_ascii_alphanumeric() || *byte == b'_');
    if !bytes[..at].last().is_none_or(boundary) {
        return None;
    }
    Some(FoundHead {
        head: Head {
            level: &before[at..],
            stamp,
            place: &line[file_at..close],
        },
        at,
        message_at,
    })
}

/// `MM-DD HH:MM:SS` with each part in its range.
fn is_stamp(stamp: &str) -> bool {
    let bytes = stamp.as_bytes();
    let shape = bytes.len() == STAMP_BYTES
        && bytes.iter().enumerate().all(|(at, byte)| match at {
            2 => *byte == b'-',
            5 => *byte == b' ',
            8 | 11 => *byte == b':',
            _ => byte.is_ascii_digit(),
        });
    let part = |at: usize| (bytes[at] - b'0') * 10 + (bytes[at + 1] - b'0');
    shape
        && (1..=12).contains(&part(0))
        && (1..=31).contains(&part(3))
        && part(6) < 24
        && part(9) < 60
        && part(12) <= 60
}

/// The last `(NAME pid=I)` or `(NAME pid=I, ip=A)` of `text`.
pub fn last_process(text: &str) -> Option<Process<'_>> {
    let from = crate::text::ceil_char(text, text.len().saturating_sub(MAX_PREFIX_BYTES));
    let mut text = &text[from..];
    loop {
        let at = text.rfind(" pid=")?;
        if let Some((process, _)) = process_around(text, at) {
            return Some(process);
        }
        text = &text[..at];
    }
}

/// The process whose ` pid=` is at `at`, and where its parenthesis opens.
fn process_around(text: &str, at: usize) -> Option<(Process<'_>, usize)> {
    let pid_at = at + 5;
    let digits = text[pid_at..]
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count();
    let after = &text[pid_at + digits..];
    let closes = after.starts_with(')')
        || (after.starts_with(", ip=") && after.find(')').is_some_and(|end| end <= MAX_NAME_BYTES));
    if digits == 0 || digits > MAX_PID_DIGITS || !closes {
        return None;
    }
    let open = text[..at].rfind(['(', ')'])?;
    let name = &text[open + 1..at];
    let valid = text.as_bytes()[open] == b'('
        && !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && !name.contains(char::is_control);
    valid.then(|| {
        let pid = &text[pid_at..pid_at + digits];
        (Process { name, pid }, open)
    })
}

/// Where the process prefixes that stand directly before `head_at` begin, so that
/// they do not count as the tail of the record before.
fn prefix_start(line: &str, from: usize, head_at: usize) -> usize {
    let mut end = head_at;
    loop {
        let text = &line[from..end];
        let Some(trimmed) = text.trim_end_matches(' ').strip_suffix(')') else {
            return end;
        };
        let Some(at) = trimmed.rfind(" pid=") else {
            return end;
        };
        match process_around(text, at) {
            Some((_, open)) => end = from + open,
            None => return end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn heads(line: &str) -> Vec<(Option<&str>, Option<&str>, &str)> {
        records(line)
            .into_iter()
            .map(|record| {
                (
                    record.head.map(|head| head.stamp),
                    record.process.map(|process| process.name),
                    record.text,
                )
            })
            .collect()
    }

    #[test]
    fn reads_every_shape_of_head() {
        let stamp = Some("01-02 03:04:05");
        for (line, process) in [
            ("INFO 01-02 03:04:05 loader.py:1] m", None),
            ("INFO 01-02 03:04:05 [v1/engine/core.py:1] m", None),
            (
                "(Worker_TP0 pid=9) INFO 01-02 03:04:05 [entrypoints/.../a.py:1] m",
                Some("Worker_TP0"),
            ),
            (
                "(A pid=1) (Worker_DP3_TP1_EP13 pid=2) ERROR 01-02 03:04:05 [a.py:1] m",
                Some("Worker_DP3_TP1_EP13"),
            ),
            (
                "(RayWorkerWrapper pid=1, ip=192.0.2.7) INFO 01-02 03:04:05 [a.py:1] m",
                Some("RayWorkerWrapper"),
            ),
            (
                "(VllmWorker rank=1 pid=77) INFO 01-02 03:04:05 [a.py:1] m",
                Some("VllmWorker rank=1"),
            ),
            (
                "(APIServer pid=1) [prefix] INFO 01-02 03:04:05 [a.py:1] m",
                Some("APIServer"),
            ),
            (
                "vllm-1  | (APIServer pid=1) INFO 01-02 03:04:05 [a.py:1] m",
                Some("APIServer"),
            ),
            (
                "Oct 02 16:15:43 host vllm[9]: INFO 01-02 03:04:05 [a.py:1] m",
                None,
            ),
        ] {
            let last = *heads(line).last().expect("one record");
            assert_eq!(last, (stamp, process, "m"), "{line}");
        }
    }

    #[test]
    fn splits_glued_records() {
        assert_eq!(
            heads(
                "bar 4.58it/s](Worker_TP2 pid=3) INFO 01-02 03:04:05 [a.py:1] one(X pid=4) (Y pid=5) INFO 01-02 03:04:06 [b.py:2] two"
            ),
            [
                (None, None, "bar 4.58it/s](Worker_TP2 pid=3) "),
                (Some("01-02 03:04:05"), Some("Worker_TP2"), "one"),
                (Some("01-02 03:04:06"), Some("Y"), "two"),
            ]
        );
        let quoted = "INFO 01-02 03:04:05 [a.py:1] prompt: 'x INFO 01-02 03:04:06 [b.py:2] two'";
        assert_eq!(heads(quoted).len(), 1);
        let request =
            "INFO 01-02 03:04:05 [a.py:1] Received request x INFO 01-02 03:04:06 [b.py:2] two";
        assert_eq!(heads(request).len(), 1);
    }

    #[test]
    fn rejects_what_only_resembles_a_head() {
        for line in [
            "INFO 13-02 03:04:05 [a.py:1] m",
            "INFO 01-02 24:04:05 [a.py:1] m",
            "XINFO 01-02 03:04:05 [a.py:1] m",
            "INFO 01-02 03:04:05 [a.py:x] m",
            "INFO 01-02 03:04:05 [a.py:1]m",
            "  File \"/a/core.py:1] m",
            "é.py:1] x",
        ] {
            assert!(records(line)[0].head.is_none(), "{line}");
        }
    }
}
