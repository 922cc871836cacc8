//! What the JSON of one event means.
//!
//! Parsed with borrowed structures: values that are only tested for presence stay raw slices, so
//! that an ordinary event allocates nothing.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Choices told apart for gaps; the content of further ones counts as the last one's.
pub const MAX_CHOICES: u32 = 8;

/// The end marker of a stream.
pub const DONE: &[u8] = b"[DONE]";

/// One parsed event.
#[derive(Debug, Clone, Copy)]
pub enum Parsed<'a> {
    /// `[DONE]`
    Done,
    /// No data at all: a keep-alive.
    Nothing,
    /// An error object; the slice is the event's whole JSON.
    Error(&'a str),
    /// A chunk of a completion.
    Chunk(Chunk<'a>),
}

/// A chunk of a completion.
#[derive(Debug, Clone, Copy, Default)]
pub struct Chunk<'a> {
    /// Bit `i` = choice `i` got generated content: text, reasoning, a refusal or a tool call. A role
    /// alone and an empty text are no content.
    pub content: u32,
    /// Visible text of choice 0, as raw JSON.
    pub text: Option<&'a RawValue>,
    /// Finish reason, as raw JSON: `abort` of any choice, else choice 0's.
    pub finish: Option<&'a RawValue>,
    /// The server's own count so far.
    pub usage: Option<Usage>,
}

/// Token counts of the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Usage {
    /// Tokens of the prompt.
    #[serde(default, deserialize_with = "count")]
    pub prompt_tokens: Option<u64>,
    /// Tokens generated so far.
    #[serde(default, deserialize_with = "count")]
    pub completion_tokens: Option<u64>,
}

/// A count, also one that is written as `12.0`. What is none (`-1`, a text) is not known: a stream is
/// not broken by it.
fn count<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let raw = Option::<&RawValue>::deserialize(deserializer)?;
    Ok(raw.and_then(|raw| {
        let text = raw.get();
        text.parse().ok().or_else(|| {
            let number: f64 = text.parse().ok()?;
            (number.fract() == 0.0 && (0.0..9e15).contains(&number)).then_some(number as u64)
        })
    }))
}

/// Parses the data of one event.
///
/// # Errors
/// A short reason, when it is not UTF-8, not JSON, or not an object of the protocol's shape.
pub fn parse(data: &[u8]) -> Result<Parsed<'_>, String> {
    let data = data.trim_ascii();
    if data == DONE {
        return Ok(Parsed::Done);
    }
    if data.is_empty() {
        return Ok(Parsed::Nothing);
    }
    let text = std::str::from_utf8(data).map_err(|e| format!("an event is not UTF-8: {e}"))?;
    let object: Object<'_> =
        serde_json::from_str(text).map_err(|e| format!("an event is not a JSON chunk: {e}"))?;
    // Some servers write "no error" into every chunk.
    let error = object
        .error
        .filter(|e| !matches!(e.get(), "null" | "false" | "\"\"" | "{}"));
    if error.is_some() || object.object.is_some_and(|o| o.get() == "\"error\"") {
        return Ok(Parsed::Error(text));
    }
    Ok(Parsed::Chunk(Chunk {
        usage: object.usage,
        ..object.choices.0
    }))
}

/// The parts of an event that matter; every other key is skipped.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    choices: Choices<'a>,
    #[serde(default)]
    usage: Option<Usage>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    #[serde(borrow, default)]
    object: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(default)]
    index: Option<u32>,
    #[serde(borrow, default)]
    delta: Option<Delta<'a>>,
    /// `/v1/completions`
    #[serde(borrow, default)]
    text: Option<&'a RawValue>,
    #[serde(borrow, default)]
    finish_reason: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Delta<'a> {
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning_content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    reasoning: Option<&'a RawValue>,
    #[serde(borrow, default)]
    refusal: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
    #[serde(borrow, default)]
    function_call: Option<&'a RawValue>,
}

/// All choices of an event folded into one chunk, without a list.
#[derive(Default)]
struct Choices<'a>(Chunk<'a>);

impl<'de: 'a, 'a> Deserialize<'de> for Choices<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Fold;
        impl<'de> Visitor<'de> for Fold {
            type Value = Choices<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of choices")
            }

            fn visit_unit<E>(self) -> Result<Self::Value, E> {
                Ok(Choices::default())
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Self::Value, A::Error> {
                let mut chunk = Chunk::default();
                while let Some(choice) = seq.next_element::<Choice<'de>>()? {
                    choice.fold_into(&mut chunk);
                }
                Ok(Choices(chunk))
            }
        }
        deserializer.deserialize_any(Fold)
    }
}

impl<'a> Choice<'a> {
    fn fold_into(self, chunk: &mut Chunk<'a>) {
        let index = self.index.unwrap_or(0);
        let mut text = self.text;
        let mut content = self.text.is_some_and(holds_content);
        if let Some(delta) = self.delta {
            text = text.or(delta.content);
            content |= [
                delta.content,
                delta.reasoning_content,
                delta.reasoning,
                delta.refusal,
                delta.tool_calls,
                delta.function_call,
            ]
            .into_iter()
            .flatten()
            .any(holds_content);
        }
        if content {
            chunk.content |= 1 << index.min(MAX_CHOICES - 1);
        }
        if index == 0 && text.is_some() {
            chunk.text = text;
        }
        let aborted = |raw: &RawValue| raw.get() == "\"abort\"";
        if let Some(finish) = self.finish_reason
            && (index == 0 || aborted(finish))
            && !chunk.finish.is_some_and(aborted)
        {
            chunk.finish = Some(finish);
        }
    }
}

fn holds_content(raw: &RawValue) -> bool {
    !matches!(raw.get(), "null" | "\"\"" | "[]" | "{}")
}

/// Code and message of an error object, in the shapes that servers use: `{"error": {"message",
/// "code"}}`, `{"error": "…"}`, `{"object": "error", "message", "code"}`, `{"detail": "…"}`. `None` if
/// the JSON is none of them.
pub fn error_object(json: &str) -> Option<(Option<i64>, String)> {
    let value: serde_json::Value = serde_json::from_str(json).ok()?;
    let inner = match value.get("error") {
        Some(serde_json::Value::String(text)) => return Some((None, text.clone())),
        Some(inner @ serde_json::Value::Object(_)) => inner,
        Some(serde_json::Value::Null) | None => {
            if value.get("object").and_then(|o| o.as_str()) == Some("error") {
                &value
            } else {
                return value.get("detail").map(|d| {
                    let text = d.as_str().map_or_else(|| d.to_string(), str::to_owned);
                    (None, text)
                });
            }
        }
        Some(other) => return Some((None, other.to_string())),
    };
    let code = inner.get("code").and_then(|c| match c {
        serde_json::Value::String(text) => text.parse().ok(),
        number => number.as_i64(),
    });
    let message = inner
        .get("message")
        .and_then(|m| m.as_str())
        .map_or_else(|| inner.to_string(), str::to_owned);
    Some((code, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn chunk(json: &str) -> Chunk<'_> {
        match parse(json.as_bytes()).unwrap() {
            Parsed::Chunk(chunk) => chunk,
            other => panic!("{other:?}"),
        }
    }

    fn content(delta: &str) -> bool {
        let json = format!(r#"{{"choices":[{{"index":0,"delta":{delta},"finish_reason":null}}]}}"#);
        chunk(&json).content != 0
    }

    #[test]
    fn what_is_content_and_what_is_not() {
        for yes in [
            r#"{"content":"x"}"#,
            r#"{"content":"\n"}"#,
            r#"{"content":"\u0000"}"#,
            r#"{"reasoning":"x"}"#,
            r#"{"reasoning_content":"x","content":null}"#,
            r#"{"refusal":"no"}"#,
            r#"{"tool_calls":[{"index":0,"function":{"arguments":""}}]}"#,
            r#"{"content":[{"type":"text","text":"x"}]}"#,
        ] {
            assert!(content(yes), "{yes}");
        }
        for no in [
            r"{}",
            r"null",
            r#"{"role":"assistant","content":""}"#,
            r#"{"role":"assistant","content":null,"tool_calls":[]}"#,
            r#"{"reasoning_content":""}"#,
            r#"{"unknown":{"nested":[1,{"a":2}]}}"#,
        ] {
            assert!(!content(no), "{no}");
        }
    }

    #[test]
    fn an_abort_of_any_choice_wins() {
        let json = r#"{"choices":[{"index":1,"finish_reason":"abort"},{"index":0,"finish_reason":"stop"}]}"#;
        assert_eq!(chunk(json).finish.unwrap().get(), "\"abort\"");
        let json = r#"{"choices":[{"index":1,"finish_reason":"stop"}]}"#;
        assert!(chunk(json).finish.is_none());
    }

    #[test]
    fn choices_beyond_the_bound_do_not_overflow() {
        let json = r#"{"choices":[{"index":4000000000,"delta":{"content":"x"}}]}"#;
        assert_eq!(chunk(json).content, 1 << (MAX_CHOICES - 1));
    }

    #[test]
    fn markers_errors_and_rubbish() {
        assert!(matches!(parse(b" [DONE] "), Ok(Parsed::Done)));
        assert!(matches!(parse(b""), Ok(Parsed::Nothing)));
        for error in [
            r#"{"error":{"message":"m","code":500}}"#,
            r#"{"error":"m"}"#,
            r#"{"object":"error","message":"m","code":500}"#,
        ] {
            assert!(
                matches!(parse(error.as_bytes()), Ok(Parsed::Error(_))),
                "{error}"
            );
        }
        for none in ["null", "false", "\"\"", "{}"] {
            let json = format!(r#"{{"error":{none},"choices":[]}}"#);
            assert!(
                matches!(parse(json.as_bytes()), Ok(Parsed::Chunk(_))),
                "{json}"
            );
        }
        for (count, known) in [
            ("12", Some(12)),
            ("12.0", Some(12)),
            ("-1", None),
            ("\"x\"", None),
        ] {
            let json = format!(r#"{{"choices":[],"usage":{{"completion_tokens":{count}}}}}"#);
            let usage = chunk(&json).usage.unwrap();
            assert_eq!(usage.completion_tokens, known, "{json}");
        }
        for bad in [
            &b"{"[..],
            b"[1,2]",
            b"5",
            b"<html>",
            b"{\"a\":\"\xff\"}",
            b"{} {}",
        ] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn codes_and_messages_of_error_objects() {
        let of = |json: &str| error_object(json).unwrap();
        let m = || "m".to_owned();
        assert_eq!(
            of(r#"{"error":{"message":"m","code":500}}"#),
            (Some(500), m())
        );
        assert_eq!(
            of(r#"{"error":{"message":"m","code":"503"}}"#),
            (Some(503), m())
        );
        assert_eq!(
            of(r#"{"error":{"message":"m","code":"rate_limit"}}"#),
            (None, m())
        );
        assert_eq!(of(r#"{"error":"m"}"#), (None, m()));
        assert_eq!(
            of(r#"{"object":"error","message":"m","code":404}"#),
            (Some(404), m())
        );
        assert_eq!(of(r#"{"detail":"m"}"#), (None, m()));
        assert_eq!(error_object(r#"{"choices":[]}"#), None);
        assert_eq!(error_object("<html>"), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = parse(&bytes);
        }

        #[test]
        fn no_json_makes_it_panic(text in r#"(\{|\}|\[|\]|,|:|"choices"|"index"|"delta"|"error"|"usage"|"a"|1|-5|null){0,40}"#) {
            let _ = parse(text.as_bytes());
            let _ = error_object(&text);
        }
    }
}
