//! Whether an answer of a completion API holds a token.
//!
//! A token is content, reasoning or a tool call. A token whose text is empty (a piece of a UTF-8
//! sequence, say) counts only if the answer has a finish reason other than `abort` *and* the server's
//! usage says that it generated at least one: a gateway that turns an upstream reset into an empty
//! `stop` has no such figure.

use serde_json::Value;

use crate::failure::{Failure, Stage, excerpt};
use crate::sse::{MAX_EVENT_BYTES, SseDecoder};

/// What is known after some bytes of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Nothing yet.
    Open,
    /// There is a token.
    Token,
    /// There will be none.
    Failed(Failure),
}

/// Reads a streamed answer up to its first token.
#[derive(Debug, Default)]
pub(crate) struct StreamReader {
    decoder: SseDecoder,
    facts: Facts,
    events: u64,
}

impl StreamReader {
    /// Feeds bytes of the body. The first verdict that is not [`Verdict::Open`] is final.
    pub(crate) fn feed(&mut self, bytes: &[u8]) -> Verdict {
        let mut verdict = Verdict::Open;
        let (facts, events) = (&mut self.facts, &mut self.events);
        let fed = self.decoder.feed(bytes, |data| {
            if verdict == Verdict::Open {
                *events += 1;
                verdict = facts.event(data);
            }
        });
        match (verdict, fed) {
            (Verdict::Open, Err(_)) => Verdict::Failed(Failure::Malformed(format!(
                "an event of more than {MAX_EVENT_BYTES} bytes"
            ))),
            (verdict, _) => verdict,
        }
    }

    /// The verdict when the body ended in good order while it was open.
    pub(crate) fn end(&self) -> Failure {
        match (&self.facts.finish, self.events) {
            (None, 0) => Failure::NoToken("the event stream ended without an event".to_owned()),
            (None, _) => Failure::Truncated(Stage::Streaming),
            (Some(_), _) => self.facts.without_token(),
        }
    }
}

/// The verdict on an answer that came as one JSON document.
pub(crate) fn whole(body: &[u8]) -> Verdict {
    let Ok(document) = serde_json::from_slice::<Value>(body) else {
        return Verdict::Failed(Failure::NotInference {
            what: "JSON that cannot be read".to_owned(),
            excerpt: excerpt(&String::from_utf8_lossy(body)),
        });
    };
    let mut facts = Facts::default();
    match facts.document(&document) {
        Verdict::Open if document.get("choices").is_none() => {
            Verdict::Failed(Failure::NotInference {
                what: "JSON that is no completion".to_owned(),
                excerpt: excerpt(&String::from_utf8_lossy(body)),
            })
        }
        Verdict::Open => Verdict::Failed(facts.without_token()),
        verdict => verdict,
    }
}

/// The message of an error body, or an excerpt of whatever it is.
pub(crate) fn error_message(body: &str) -> String {
    serde_json::from_str::<Value>(body)
        .ok()
        .and_then(|v| message_of(&v))
        .unwrap_or_else(|| excerpt(body))
}

/// What was said besides content.
#[derive(Debug, Default)]
struct Facts {
    finish: Option<String>,
    generated: Option<u64>,
}

impl Facts {
    fn event(&mut self, data: &[u8]) -> Verdict {
        if data == b"[DONE]" {
            return Verdict::Failed(self.without_token());
        }
        match serde_json::from_slice::<Value>(data) {
            Ok(document) => self.document(&document),
            Err(_) => Verdict::Failed(Failure::Malformed(format!(
                "an event that is not JSON: {}",
                excerpt(&String::from_utf8_lossy(data))
            ))),
        }
    }

    fn document(&mut self, document: &Value) -> Verdict {
        if let Some(message) = message_of(document) {
            return Verdict::Failed(Failure::InAnswer(message));
        }
        if let Some(n) = document
            .pointer("/usage/completion_tokens")
            .and_then(Value::as_u64)
        {
            self.generated = Some(n);
        }
        let choices = document.get("choices").and_then(Value::as_array);
        for choice in choices.into_iter().flatten() {
            if has_token(choice) {
                return Verdict::Token;
            }
            if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str) {
                self.finish = Some(excerpt(finish));
            }
        }
        match (&self.finish, self.generated) {
            (Some(finish), Some(1..)) if finish != "abort" => Verdict::Token,
            _ => Verdict::Open,
        }
    }

    fn without_token(&self) -> Failure {
        match self.finish.as_deref() {
            Some("abort") => Failure::Aborted,
            Some(finish) => Failure::NoToken(format!(
                "finish reason `{finish}` without a token{}",
                match self.generated {
                    Some(n) => format!(", usage says {n} tokens"),
                    None => ", no usage".to_owned(),
                }
            )),
            None => Failure::NoToken("the answer ended without a token".to_owned()),
        }
    }
}

fn has_token(choice: &Value) -> bool {
    let text = |v: Option<&Value>| v.and_then(Value::as_str).is_some_and(|s| !s.is_empty());
    if text(choice.get("text")) {
        return true;
    }
    [choice.get("delta"), choice.get("message")]
        .into_iter()
        .flatten()
        .any(|part| {
            text(part.get("content"))
                || text(part.get("reasoning_content"))
                || text(part.get("reasoning"))
                || part
                    .get("tool_calls")
                    .and_then(Value::as_array)
                    .is_some_and(|calls| !calls.is_empty())
        })
}

/// The message of an error object, in the shapes that servers use: `{"error": {...}}`,
/// `{"error": "..."}`, `{"object": "error", "message": ...}`, `{"detail": ...}`.
fn message_of(document: &Value) -> Option<String> {
    let error = match document.get("error") {
        Some(Value::Null) | None if document.get("object")?.as_str() == Some("error") => document,
        Some(Value::Null) | None => return None,
        Some(error) => error,
    };
    let message = error
        .as_str()
        .or_else(|| error.get("message").and_then(Value::as_str))
        .map_or_else(|| error.to_string(), str::to_owned);
    Some(match error.get("code") {
        Some(code @ (Value::Number(_) | Value::String(_))) => {
            let code = code
                .as_str()
                .map_or_else(|| code.to_string(), str::to_owned);
            excerpt(&format!("{code} {message}"))
        }
        _ => excerpt(&message),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(text: &str) -> Result<(), String> {
        let mut reader = StreamReader::default();
        match reader.feed(text.as_bytes()) {
            Verdict::Token => Ok(()),
            Verdict::Failed(f) => Err(f.to_string()),
            Verdict::Open => Err(reader.end().to_string()),
        }
    }

    #[test]
    fn tokens_of_every_kind() {
        for event in [
            r#"{"choices":[{"delta":{"content":" a"}}]}"#,
            r#"{"choices":[{"text":" a","finish_reason":"length"}]}"#,
            r#"{"choices":[{"delta":{"reasoning_content":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"reasoning":"hm"}}]}"#,
            r#"{"choices":[{"delta":{"tool_calls":[{"index":0}]}}]}"#,
            // An empty text, but the server counted a token.
            r#"{"choices":[{"text":"","finish_reason":"length"}],"usage":{"completion_tokens":1}}"#,
        ] {
            assert_eq!(stream(&format!("data: {event}\n\n")), Ok(()), "{event}");
        }
        let apart = "data: {\"choices\":[{\"delta\":{\"content\":\"\"},\"finish_reason\":\"stop\"}]}\n\ndata: {\"choices\":[],\"usage\":{\"completion_tokens\":1}}\n\n";
        assert_eq!(stream(apart), Ok(()));
    }

    #[test]
    fn answers_without_a_token() {
        let role = r#"data: {"choices":[{"delta":{"role":"assistant","content":""}}]}"#;
        let cases = [
            (String::new(), "empty: "),
            (format!("{role}\n\n"), "truncated: "),
            (format!("{role}\n\ndata: [DONE]\n\n"), "empty: "),
            (
                "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n".into(),
                "empty: finish reason `stop` without a token, no usage",
            ),
            (
                "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"stop\"}],\"usage\":{\"completion_tokens\":0}}\n\ndata: [DONE]\n\n".into(),
                "empty: finish reason `stop` without a token, usage says 0 tokens",
            ),
            (
                "data: {\"choices\":[{\"text\":\"\",\"finish_reason\":\"abort\"}],\"usage\":{\"completion_tokens\":1}}\n\ndata: [DONE]\n\n".into(),
                "aborted: ",
            ),
            (
                "data: {\"error\":{\"message\":\"EngineCore died\",\"code\":500}}\n\ndata: [DONE]\n\n".into(),
                "in_stream_error: 500 EngineCore died",
            ),
            ("data: {\"choices\": [\n\n".into(), "malformed_stream: "),
        ];
        for (text, expected) in cases {
            let reason = stream(&text).unwrap_err();
            assert!(reason.starts_with(expected), "{text:?}: {reason}");
        }
    }

    #[test]
    fn whole_documents() {
        let verdict = |s: &str| match whole(s.as_bytes()) {
            Verdict::Failed(f) => f.to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(
            verdict(r#"{"choices":[{"message":{"content":"x"}}]}"#),
            "Token"
        );
        assert_eq!(
            verdict(r#"{"object":"error","message":"dead","code":500}"#),
            "in_stream_error: 500 dead"
        );
        assert_eq!(verdict(r#"{"error":"no"}"#), "in_stream_error: no");
        assert!(verdict(r#"{"status":"ok"}"#).contains("no completion"));
        assert!(verdict("{").contains("cannot be read"));
        assert!(verdict(r#"{"choices":[]}"#).starts_with("empty: "));
    }

    #[test]
    fn error_bodies() {
        assert_eq!(
            error_message(r#"{"error":{"message":"m","code":404}}"#),
            "404 m"
        );
        assert_eq!(error_message("<html>\n"), "<html>");
        assert_eq!(error_message(""), "");
    }
}
