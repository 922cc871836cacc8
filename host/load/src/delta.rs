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
    pub text: Option<&'a str>,
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

/// Largest frame that is kept: more than a server writes around a token.
const MAX_FRAME_BYTES: usize = 2 << 10;

/// Parses the events of one stream, most of which differ in one string only.
///
/// An event whose text of choice 0 is the only thing that it says leaves its frame behind: the bytes
/// before and after the inside of that string. A later event in the same frame, whose own inside is
/// plain (valid UTF-8 without quotes, escapes and control characters) and not empty, can say nothing
/// else than that text: the JSON around it is the same, byte for byte. It is not parsed again.
#[derive(Debug, Default)]
pub struct EventParser {
    frame: Vec<u8>,
    /// Where the text stood in it: the frame's bytes before are the front, the others the back.
    at: usize,
}

impl EventParser {
    /// Parses the data of the stream's next event, as [`parse`] does.
    ///
    /// # Errors
    /// Those of [`parse`].
    pub fn parse<'a>(&mut self, data: &'a [u8]) -> Result<Parsed<'a>, String> {
        if let Some(text) = self.text_in_frame(data) {
            return Ok(Parsed::Chunk(Chunk {
                content: 1,
                text: Some(text),
                ..Chunk::default()
            }));
        }
        let parsed = parse(data)?;
        if let Parsed::Chunk(chunk) = &parsed {
            self.keep_frame(data, chunk);
        }
        Ok(parsed)
    }

    /// The text of an event in the frame, with its quotes.
    fn text_in_frame<'a>(&self, data: &'a [u8]) -> Option<&'a str> {
        let (front, back) = self.frame.split_at(self.at);
        let inside = data.strip_prefix(front)?.strip_suffix(back)?;
        let plain = |&b: &u8| b >= b' ' && b != b'"' && b != b'\\';
        if front.is_empty() || inside.is_empty() || !inside.iter().all(plain) {
            return None;
        }
        std::str::from_utf8(&data[front.len() - 1..=front.len() + inside.len()]).ok()
    }

    fn keep_frame(&mut self, data: &[u8], chunk: &Chunk<'_>) {
        let Some(text) = chunk.text else { return };
        let inside = text.strip_prefix('"').and_then(|t| t.strip_suffix('"'));
        if chunk.content != 1
            || chunk.finish.is_some()
            || chunk.usage.is_some()
            || inside.is_none_or(str::is_empty)
            || data.len() > MAX_FRAME_BYTES
        {
            return;
        }
        // The text is a part of the data.
        let start = text.as_ptr().addr() - data.as_ptr().addr();
        self.at = start + 1;
        self.frame.clear();
        self.frame.extend_from_slice(&data[..self.at]);
        self.frame
            .extend_from_slice(&data[start + text.len() - 1..]);
    }
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
    // A list in the place of an object would be taken for its fields in order.
    if !text.starts_with('{') {
        return Err("an event is not a JSON object".to_owned());
    }
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
        usage: object.usage.and_then(usage),
        ..object.choices.0
    }))
}

/// Counts, if they are an object of them. A stream is not broken by what is none.
fn usage(raw: &RawValue) -> Option<Usage> {
    let text = raw.get();
    text.starts_with('{')
        .then(|| serde_json::from_str(text).ok())
        .flatten()
}

/// The parts of an event that matter; every other key is skipped.
#[derive(Deserialize)]
struct Object<'a> {
    #[serde(borrow, default)]
    choices: Choices<'a>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
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
        if index == 0
            && let Some(text) = text
        {
            chunk.text = Some(text.get());
        }
        let aborted = |raw: &RawValue| raw.get() == "\"abort\"";
        // Some servers write "not finished" into every chunk, as an empty text or as "null".
        let finish = self.finish_reason.filter(|raw| {
            let raw = raw.get();
            raw.starts_with('"') && raw != "\"\"" && raw != "\"null\""
        });
        if let Some(finish) = finish
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
    fn what_says_not_finished_is_no_finish_reason() {
        for none in ["null", r#""""#, r#""null""#, "false", "0", "{}"] {
            let json = format!(r#"{{"choices":[{{"index":0,"finish_reason":{none}}}]}}"#);
            assert!(chunk(&json).finish.is_none(), "{none}");
        }
    }

    #[test]
    fn counts_that_are_none_do_not_break_a_stream() {
        for none in ["null", "[1,2]", r#""none""#, "5"] {
            let json = format!(r#"{{"choices":[],"usage":{none}}}"#);
            assert_eq!(chunk(&json).usage, None, "{none}");
        }
        assert!(parse(br#"[[[0,["x"]]]]"#).is_err());
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

    fn said(parsed: Result<Parsed<'_>, String>) -> String {
        format!("{parsed:?}")
    }

    #[test]
    fn an_event_in_a_frame_says_what_parsing_it_would_say() {
        let event = |text: &str, finish: &str| {
            format!(
                r#"{{"id":"a","choices":[{{"index":0,"delta":{{"content":{text}}},"finish_reason":{finish}}}]}}"#
            )
        };
        let mut parser = EventParser::default();
        let mut in_frame = 0;
        for (text, finish) in [
            ("\"x\"", "null"),
            ("\"a longer one, ü\"", "null"),
            ("\"\"", "null"),
            ("\"y\"", "null"),
            (r#""\n""#, "null"),
            (r#""a\"},"b":{"c":"d""#, "null"),
            (r#""a"},"error":{"message":"m"},"b":{"c":"d""#, "null"),
            ("\"a\tb\"", "null"),
            ("null", "null"),
            ("\"z\"", "\"abort\""),
            ("\"z\"", "null"),
            ("\"w\"", "null"),
        ] {
            let json = event(text, finish);
            in_frame += usize::from(parser.text_in_frame(json.as_bytes()).is_some());
            assert_eq!(
                said(parser.parse(json.as_bytes())),
                said(parse(json.as_bytes())),
                "{json}"
            );
        }
        assert_eq!(in_frame, 3, "the plain ones behind one in the same frame");
        let broken = [&event("\"", "null").as_bytes()[..30], b"\xff"].concat();
        assert_eq!(said(parser.parse(&broken)), said(parse(&broken)));
    }

    proptest! {
        #[test]
        fn a_frame_changes_nothing(
            texts in prop::collection::vec(r#"("(a|\\n|\\|"|\t|ü|\},\{|,"error":1){0,3}"|null|1|\[\])"#, 1..8),
            shape in 0..4,
        ) {
            let mut parser = EventParser::default();
            for text in texts {
                let json = match shape {
                    0 => format!(r#"{{"choices":[{{"index":0,"delta":{{"content":{text}}}}}]}}"#),
                    1 => format!(r#"{{"choices":[{{"text":{text},"delta":{{"content":"b"}}}},{{"index":0}}]}}"#),
                    2 => format!(r#"{{"choices":[{{"index":1,"text":{text}}},{{"index":0,"text":{text}}}],"usage":null}}"#),
                    _ => format!(r#" {{"error":{text},"choices":[{{"delta":{{"reasoning":{text},"content":{text}}}}}]}} "#),
                };
                prop_assert_eq!(said(parser.parse(json.as_bytes())), said(parse(json.as_bytes())), "{}", json);
            }
        }

        #[test]
        fn no_bytes_in_a_frame_change_anything(bytes in prop::collection::vec(any::<u8>(), 0..6)) {
            let event = |inside: &[u8]| [&br#"{"choices":[{"delta":{"content":""#[..], inside, br#""}}]}"#].concat();
            let mut parser = EventParser::default();
            parser.parse(&event(b"x")).unwrap();
            let data = event(&bytes);
            prop_assert_eq!(said(parser.parse(&data)), said(parse(&data)));
        }

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
