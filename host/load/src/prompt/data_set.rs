//! Data sets: one request a line, as JSON.

use std::collections::BTreeMap;

use blackstart_plan::MAX_TURNS;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::LoadError;
use crate::text::{bounded, bounded_reason};

/// Largest data set, in bytes.
pub const MAX_DATA_SET_BYTES: usize = 256 << 20;
/// Most lines of a data set.
pub const MAX_DATA_SET_LINES: usize = 1_000_000;
/// Latest timestamp of a trace, in seconds from its first one: a year.
const MAX_TRACE_S: f64 = 366.0 * 86_400.0;

/// The requests of a data set.
#[derive(Debug, Clone, PartialEq)]
pub struct DataSet {
    /// The requests, in the file's order.
    pub(crate) lines: Vec<Line>,
    /// When each was sent, from the first one, in nanoseconds; only if every line says it.
    timestamps_ns: Option<Vec<i64>>,
    sha256: String,
}

/// One request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    pub(crate) content: Content,
    pub(crate) max_tokens: Option<u32>,
}

/// What it asks.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Content {
    Prompt(String),
    Messages(Value),
    /// What the user says in each turn of a conversation.
    Turns(Vec<String>),
}

impl Line {
    fn turns(&self) -> u32 {
        match &self.content {
            // Bounded when it was read.
            Content::Turns(turns) => turns.len() as u32,
            Content::Prompt(_) | Content::Messages(_) => 1,
        }
    }
}

#[derive(Deserialize)]
struct Written {
    prompt: Option<String>,
    messages: Option<Value>,
    turns: Option<Vec<String>>,
    max_tokens: Option<u32>,
    timestamp: Option<f64>,
}

/// The keys that mean something.
const KEYS: [&str; 5] = ["prompt", "messages", "turns", "max_tokens", "timestamp"];
/// Longest key that is shown.
const MAX_KEY_CHARS: usize = 40;

/// What is wrong with a line, without the line number that its parser counts by itself.
fn json_error(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    format!("column {}: {}", error.column(), bounded_reason(what))
}

/// The key that another one is probably meant for: written in another way, or with a slip. Keys that
/// are nothing like them belong to somebody else.
fn meant(key: &str) -> Option<&'static str> {
    let letters = |text: &str| -> String {
        let kept = text.chars().filter(char::is_ascii_alphanumeric);
        kept.map(|c| c.to_ascii_lowercase())
            .take(MAX_KEY_CHARS)
            .collect()
    };
    let key = letters(key);
    KEYS.into_iter().find(|known| {
        let known = letters(known);
        let slips = if known.len() > 6 { 2 } else { 1 };
        strsim::osa_distance(&key, &known) <= slips
    })
}

impl DataSet {
    /// Reads JSON lines: each an object with `prompt` (a text), `messages` (as in the chat API) or
    /// `turns` (a list of texts: what the user says, one after the other), and optionally `max_tokens` and `timestamp` (seconds, ascending). Other keys are left alone unless one
    /// of these is meant, empty lines are skipped.
    ///
    /// # Errors
    /// [`LoadError::Plan`] with the line's number.
    pub fn parse(bytes: &[u8]) -> Result<Self, LoadError> {
        let wrong = |what: String| LoadError::Plan { what };
        if bytes.len() > MAX_DATA_SET_BYTES {
            return Err(wrong(format!(
                "a data set of {} bytes; at most {MAX_DATA_SET_BYTES}",
                bytes.len()
            )));
        }
        let mut lines = Vec::new();
        let mut stamps = Vec::new();
        let mut first_s = None;
        for (number, text) in (1..).zip(bytes.split(|b| *b == b'\n')) {
            let at = |what: String| wrong(format!("line {number}: {what}"));
            let not_json = |e: serde_json::Error| {
                wrong(format!(
                    "line {number}, {}; write one object a line, with `prompt`, `messages` or `turns`",
                    json_error(&e)
                ))
            };
            if text.trim_ascii().is_empty() {
                continue;
            }
            if lines.len() == MAX_DATA_SET_LINES {
                return Err(at(format!("more than {MAX_DATA_SET_LINES} requests")));
            }
            let keys: BTreeMap<String, IgnoredAny> =
                serde_json::from_slice(text).map_err(not_json)?;
            let misspelt = keys
                .keys()
                .filter(|key| !KEYS.contains(&key.as_str()))
                .find_map(|key| meant(key).map(|known| (key, known)))
                .filter(|(_, known)| !keys.contains_key(*known));
            if let Some((key, known)) = misspelt {
                let key = bounded(key, MAX_KEY_CHARS);
                return Err(at(format!(
                    "unknown key `{key}`; did you mean `{known}`? rename the key, also if it means something else"
                )));
            }
            let written: Written = serde_json::from_slice(text).map_err(not_json)?;
            if written.max_tokens == Some(0) {
                return Err(at(
                    "`max_tokens` is 0: a completion of no tokens has no first one; write 1 or more".to_owned(),
                ));
            }
            let content = match (written.prompt, written.messages, written.turns) {
                (Some(prompt), None, None) => Content::Prompt(prompt),
                (None, Some(messages), None) if messages.is_array() => Content::Messages(messages),
                (None, Some(_), None) => return Err(at("`messages` is no list".to_owned())),
                (None, None, Some(turns)) if (1..=MAX_TURNS as usize).contains(&turns.len()) => {
                    Content::Turns(turns)
                }
                (None, None, Some(turns)) => {
                    let turns = turns.len();
                    return Err(at(format!("{turns} turns; write 1 to {MAX_TURNS}")));
                }
                _ => {
                    return Err(at("give either `prompt`, `messages` or `turns`".to_owned()));
                }
            };
            lines.push(Line {
                content,
                max_tokens: written.max_tokens,
            });
            if let Some(stamp_s) = written.timestamp {
                let since_s = stamp_s - *first_s.get_or_insert(stamp_s);
                if !(0.0..=MAX_TRACE_S).contains(&since_s) {
                    return Err(at(format!(
                        "timestamp {stamp_s} is before the first one, or more than a year after it"
                    )));
                }
                let since_ns = (since_s * 1e9).round() as i64;
                if stamps.last().is_some_and(|last| since_ns < *last) {
                    return Err(at(format!("timestamp {stamp_s} is before the line above")));
                }
                stamps.push(since_ns);
            }
        }
        if lines.is_empty() {
            return Err(wrong("the data set holds no request".to_owned()));
        }
        Ok(Self {
            timestamps_ns: (stamps.len() == lines.len()).then_some(stamps),
            sha256: hex::encode(Sha256::digest(bytes)),
            lines,
        })
    }

    /// How many requests it holds; at least one.
    pub fn requests(&self) -> usize {
        self.lines.len()
    }

    /// Most turns that a line has; `None` unless some line has `turns`.
    pub fn most_turns(&self) -> Option<u32> {
        let turns = |line: &Line| match &line.content {
            Content::Turns(_) => Some(line.turns()),
            Content::Prompt(_) | Content::Messages(_) => None,
        };
        self.lines.iter().filter_map(turns).max()
    }

    /// Turns of the line that a conversation takes, counted from 0.
    pub fn turns(&self, conversation: u32) -> u32 {
        // A data set is never empty.
        self.lines[conversation as usize % self.lines.len()].turns()
    }

    /// When each request was sent, from the first one, in nanoseconds; `None` unless every line says
    /// it.
    pub fn timestamps_ns(&self) -> Option<&[i64]> {
        self.timestamps_ns.as_deref()
    }

    /// SHA-256 of the file, in hexadecimal.
    pub fn sha256(&self) -> &str {
        &self.sha256
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_and_their_times() {
        let set = DataSet::parse(
            b"{\"prompt\":\"a\",\"timestamp\":10.5}\n\n{\"messages\":[],\"max_tokens\":3,\"timestamp\":11,\"x\":1}\n",
        )
        .unwrap();
        assert_eq!(set.requests(), 2);
        assert_eq!(set.timestamps_ns(), Some(&[0, 500_000_000][..]));
        assert_eq!(set.lines[0].content, Content::Prompt("a".to_owned()));
        assert_eq!(set.lines[1].max_tokens, Some(3));
        let half =
            DataSet::parse(b"{\"prompt\":\"a\",\"timestamp\":1}\n{\"prompt\":\"b\"}").unwrap();
        assert_eq!((half.timestamps_ns(), half.most_turns()), (None, None));
        let talk = DataSet::parse(b"{\"turns\":[\"a\",\"b\"]}\n{\"prompt\":\"c\"}\n").unwrap();
        assert_eq!(talk.most_turns(), Some(2));
        assert_eq!([0, 1, 2].map(|c| talk.turns(c)), [2, 1, 2]);
    }

    #[test]
    fn mistakes_name_their_line() {
        for (text, why) in [
            ("", "holds no request"),
            ("{\"prompt\":\"a\"}\nnonsense", "line 2, column "),
            (
                "{\"prompt\":\"a\"}\n{\"prompt\" \"b\"}",
                "line 2, column 11: expected `:`; write",
            ),
            ("[1]", "line 1, column 0: invalid type: sequence"),
            ("{\"prompt\":1}", "line 1, column 11: invalid type"),
            ("{\"promt\":\"a\"}", "`promt`; did you mean `prompt`?"),
            (
                "{\"prompt\":\"a\",\"maxTokens\":3}",
                "`maxTokens`; did you mean `max_tokens`?",
            ),
            (
                "{\"prompt\":\"a\",\"max_token\":3}",
                "did you mean `max_tokens`?",
            ),
            (
                "{\"prompt\":\"a\",\"time_stamp\":3}",
                "did you mean `timestamp`?",
            ),
            ("{\"turn\":[\"a\"]}", "did you mean `turns`?"),
            (
                "{\"prompt\":\"a\",\"max_tokens\":0}",
                "line 1: `max_tokens` is 0",
            ),
            ("{}", "line 1: give either"),
            ("{\"prompt\":\"a\",\"messages\":[]}", "give either"),
            ("{\"messages\":{}}", "no list"),
            ("{\"turns\":[]}", "0 turns"),
            ("{\"turns\":\"a\"}", "line 1, column "),
            ("{\"turns\":[\"a\"],\"prompt\":\"a\"}", "give either"),
            (
                "{\"prompt\":\"a\",\"timestamp\":2}\n{\"prompt\":\"a\",\"timestamp\":1}",
                "line 2: timestamp 1",
            ),
            (
                "{\"prompt\":\"a\",\"timestamp\":0}\n{\"prompt\":\"a\",\"timestamp\":1e300}",
                "more than a year",
            ),
        ] {
            let error = DataSet::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn keys_of_other_tools_are_left_alone() {
        for key in [
            "id",
            "x",
            "time",
            "role",
            "tokens",
            "text",
            "return",
            "prompt_len",
            "max",
            "",
        ] {
            let line = format!("{{\"prompt\":\"a\",\"{key}\":[{{}}]}}");
            assert!(DataSet::parse(line.as_bytes()).is_ok(), "{key}");
        }
        let both = b"{\"prompt\":\"a\",\"timestamp\":1,\"timestamp_ms\":1000}";
        assert!(DataSet::parse(both).is_ok());
        let long = format!(
            "{{\"prompt\":\"a\",\"timestamp\":\"{}\"}}",
            "a".repeat(100_000)
        );
        let error = DataSet::parse(long.as_bytes()).unwrap_err().to_string();
        assert!(error.len() < 400, "{}", error.len());
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = DataSet::parse(&bytes);
        }
    }
}
