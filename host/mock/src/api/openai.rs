//! The OpenAI bodies: parsing requests, rendering chunks exactly as vLLM's bytes look.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::Value;

use crate::args::Config;
use crate::ipc::Finish;
use crate::release::{ChunkFields, ENGINE_DEAD};

/// The words the make-believe model says, one a token.
const WORDS: [&str; 32] = [
    " alder",
    " birch",
    " cedar",
    " dogwood",
    " elm",
    " fir",
    " ginkgo",
    " hazel",
    " ironwood",
    " juniper",
    " katsura",
    " larch",
    " maple",
    " nutmeg",
    " oak",
    " pine",
    " quince",
    " rowan",
    " spruce",
    " teak",
    " ulmo",
    " viburnum",
    " willow",
    " yew",
    " zelkova",
    " aspen",
    " beech",
    " cypress",
    " hornbeam",
    " linden",
    " poplar",
    " sequoia",
];

/// Text of token `index`.
pub fn word(index: u32) -> &'static str {
    WORDS[index as usize % WORDS.len()]
}

/// The two endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// `/v1/chat/completions`.
    Chat,
    /// `/v1/completions`.
    Completions,
}

#[derive(Debug, Default, Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
    #[serde(default)]
    continuous_usage_stats: Option<bool>,
}

#[derive(Debug, Deserialize)]
struct Body {
    #[serde(default)]
    model: Option<String>,
    #[serde(default)]
    messages: Option<Value>,
    #[serde(default)]
    prompt: Option<Value>,
    #[serde(default)]
    max_tokens: Option<u64>,
    #[serde(default)]
    max_completion_tokens: Option<u64>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    #[serde(default)]
    ignore_eos: Option<bool>,
}

/// A request that can be scheduled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parsed {
    /// Endpoint.
    pub api: Api,
    /// Streamed answer.
    pub stream: bool,
    /// Usage in a final chunk.
    pub include_usage: bool,
    /// Usage in every chunk.
    pub continuous_usage: bool,
    /// Prompt length, tokens.
    pub prompt_tokens: u32,
    /// Tokens to generate.
    pub max_tokens: u32,
    /// The answer ends with `stop`.
    pub stops: bool,
}

/// A refusal: status and error object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP status.
    pub status: u16,
    kind: &'static str,
    message: String,
    param: Option<&'static str>,
}

impl Refusal {
    fn bad(message: String, param: Option<&'static str>) -> Self {
        Refusal {
            status: 400,
            kind: "BadRequestError",
            message,
            param,
        }
    }

    /// The JSON body.
    pub fn body(&self) -> Bytes {
        error_body(&self.message, self.kind, self.param, self.status)
    }
}

fn quote(s: &str) -> String {
    Value::from(s).to_string()
}

/// vLLM's error object (compact form, as non-streamed responses carry it).
pub fn error_body(message: &str, kind: &str, param: Option<&str>, code: u16) -> Bytes {
    let param = param.map_or_else(|| "null".to_owned(), quote);
    format!(
        "{{\"error\":{{\"message\":{},\"type\":{},\"param\":{param},\"code\":{code}}}}}",
        quote(message),
        quote(kind)
    )
    .into()
}

/// The error object for a dead engine.
pub fn engine_dead_body() -> Bytes {
    error_body(ENGINE_DEAD, "InternalServerError", None, 500)
}

/// The error event in a stream whose engine died (spaced form, as recorded).
pub fn engine_dead_event() -> Bytes {
    format!(
        "data: {{\"error\": {{\"message\": {}, \"type\": \"InternalServerError\", \"param\": null, \"code\": 500}}}}\n\n",
        quote(ENGINE_DEAD)
    )
    .into()
}

/// The end marker.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Counts the prompt's tokens: whitespace-separated words of all text in it (a list
/// of integers counts its length), at least 1. One word, one token.
pub fn count_tokens(prompt: &Value) -> u64 {
    /// Nesting followed; deeper text is not counted.
    const MAX_DEPTH: u32 = 8;
    fn walk(v: &Value, depth: u32) -> u64 {
        if depth > MAX_DEPTH {
            return 0;
        }
        match v {
            Value::String(s) => s.split_whitespace().count() as u64,
            Value::Number(_) => 1,
            Value::Array(items) => items.iter().map(|i| walk(i, depth + 1)).sum(),
            Value::Object(o) => o
                .get("content")
                .or_else(|| o.get("text"))
                .map_or(0, |c| walk(c, depth + 1)),
            Value::Null | Value::Bool(_) => 0,
        }
    }
    walk(prompt, 0).max(1)
}

/// Checks a request body against the configuration.
///
/// # Errors
/// vLLM's refusal: bad JSON or missing prompt 400, unknown model 404, overlong 400.
pub fn parse(api: Api, body: &[u8], config: &Config) -> Result<Parsed, Refusal> {
    let body: Body = serde_json::from_slice(body)
        .map_err(|e| Refusal::bad(format!("the request body is not valid: {e}"), None))?;
    if let Some(model) = &body.model
        && *model != config.model
    {
        return Err(Refusal {
            status: 404,
            kind: "NotFoundError",
            message: format!(
                "The model `{model}` does not exist. Valid aliases: {}.",
                config.model
            ),
            param: Some("model"),
        });
    }
    let (prompt, name) = match api {
        Api::Chat => (&body.messages, "messages"),
        Api::Completions => (&body.prompt, "prompt"),
    };
    let Some(prompt) = prompt else {
        return Err(Refusal::bad(
            format!("the field `{name}` is required"),
            Some(name),
        ));
    };
    let asked = match api {
        Api::Chat => body.max_completion_tokens.or(body.max_tokens),
        Api::Completions => body.max_tokens,
    };
    if asked == Some(0) {
        return Err(Refusal::bad(
            "max_tokens must be at least 1, got 0.".into(),
            Some("max_tokens"),
        ));
    }
    let context = u64::from(config.max_model_len);
    let prompt_tokens = count_tokens(prompt);
    if prompt_tokens >= context || asked.is_some_and(|m| m.saturating_add(prompt_tokens) > context)
    {
        return Err(Refusal::bad(
            format!(
                "This model's maximum context length is {context} tokens. However, you requested {} output tokens \
                 and your prompt contains {prompt_tokens} input tokens. Please reduce the length of the input prompt \
                 or the number of requested output tokens. (parameter=input_tokens, value={prompt_tokens})",
                asked.unwrap_or(0)
            ),
            Some("input_tokens"),
        ));
    }
    let room = context - prompt_tokens;
    let budget = asked.unwrap_or_else(|| u64::from(config.default_max_tokens).min(room));
    let eos = config
        .eos_after
        .map(u64::from)
        .filter(|_| body.ignore_eos != Some(true));
    let stops = eos.is_some_and(|n| n < budget);
    let max_tokens = if stops { eos.unwrap_or(budget) } else { budget };
    let options = body.stream_options.unwrap_or_default();
    let fits = "at most the context length, which is a u32";
    Ok(Parsed {
        api,
        stream: body.stream == Some(true),
        include_usage: options.include_usage == Some(true),
        continuous_usage: options.continuous_usage_stats == Some(true),
        prompt_tokens: u32::try_from(prompt_tokens).expect(fits),
        max_tokens: u32::try_from(max_tokens).expect(fits),
        stops,
    })
}

/// Renders the chunks of one stream (or the body of one answer).
#[derive(Debug)]
pub struct Renderer {
    api: Api,
    fields: ChunkFields,
    /// `{"id":…,"object":…,"created":…,"model":…`
    head: String,
    fingerprint: String,
    prompt_tokens: u32,
    usage_each: bool,
}

impl Renderer {
    /// For request `id` (the part after `chatcmpl-`), created at Unix time `created`.
    pub fn new(
        parsed: &Parsed,
        fields: ChunkFields,
        config: &Config,
        id: &str,
        created: u64,
    ) -> Self {
        let (prefix, object) = match (parsed.api, parsed.stream) {
            (Api::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
            (Api::Chat, false) => ("chatcmpl", "chat.completion"),
            (Api::Completions, _) => ("cmpl", "text_completion"),
        };
        Renderer {
            api: parsed.api,
            fields,
            head: format!(
                "{{\"id\":{},\"object\":\"{object}\",\"created\":{created},\"model\":{}",
                quote(&format!("{prefix}-{id}")),
                quote(&config.model)
            ),
            fingerprint: if fields.fingerprint {
                format!(",\"system_fingerprint\":\"vllm-{}-mock\"", config.release)
            } else {
                String::new()
            },
            prompt_tokens: parsed.prompt_tokens,
            usage_each: parsed.continuous_usage,
        }
    }

    fn usage(&self, tokens: u32) -> String {
        let prompt = self.prompt_tokens;
        let total = u64::from(prompt) + u64::from(tokens);
        format!(
            "\"usage\":{{\"prompt_tokens\":{prompt},\"total_tokens\":{total},\"completion_tokens\":{tokens}}}"
        )
    }

    fn event(&self, rest: &str, tokens: u32) -> Bytes {
        if self.usage_each {
            format!("data: {}{rest},{}}}\n\n", self.head, self.usage(tokens)).into()
        } else {
            format!("data: {}{rest}}}\n\n", self.head).into()
        }
    }

    /// The role-only first chunk of a chat stream; completions have none.
    pub fn role(&self) -> Option<Bytes> {
        if self.api == Api::Completions {
            return None;
        }
        let prompt = match (self.fields.token_ids, self.fields.fingerprint) {
            (true, true) => ",\"prompt_token_ids\":null,\"prompt_text\":null",
            (true, false) => ",\"prompt_token_ids\":null",
            (false, _) => "",
        };
        Some(self.event(
            &format!(
                ",\"choices\":[{{\"index\":0,\"delta\":{{\"role\":\"assistant\",\"content\":\"\"}},\
                 \"logprobs\":null,\"finish_reason\":null}}]{prompt}"
            ),
            0,
        ))
    }

    /// One token, or with `text` empty the bare end of an abort.
    pub fn token(&self, text: &str, tokens: u32, finish: Option<Finish>) -> Bytes {
        let reason = finish.map_or_else(|| "null".to_owned(), |f| format!("\"{}\"", f.word()));
        let ids = if self.fields.token_ids {
            ",\"token_ids\":null"
        } else {
            ""
        };
        let rest = match self.api {
            Api::Chat => {
                let stop = if finish.is_some() {
                    ",\"stop_reason\":null"
                } else {
                    ""
                };
                format!(
                    ",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{text}\"}},\"logprobs\":null,\
                     \"finish_reason\":{reason}{stop}{ids}}}]"
                )
            }
            Api::Completions => {
                let ids = if self.fields.token_ids {
                    ",\"prompt_token_ids\":null,\"token_ids\":null"
                } else {
                    ""
                };
                format!(
                    ",\"choices\":[{{\"index\":0,\"text\":\"{text}\",\"logprobs\":null,\"finish_reason\":{reason},\
                     \"stop_reason\":null{ids}}}]"
                )
            }
        };
        self.event(&rest, tokens)
    }

    /// The usage-only final chunk.
    pub fn final_usage(&self, tokens: u32) -> Bytes {
        format!(
            "data: {},\"choices\":[],{}{}}}\n\n",
            self.head,
            self.usage(tokens),
            self.fingerprint
        )
        .into()
    }

    /// A whole non-streamed answer of `tokens` tokens.
    pub fn whole(&self, tokens: u32, finish: Finish) -> Bytes {
        let text: String = (0..tokens).map(word).collect();
        let choice = match self.api {
            Api::Chat => format!("\"message\":{{\"role\":\"assistant\",\"content\":\"{text}\"}}"),
            Api::Completions => format!("\"text\":\"{text}\""),
        };
        format!(
            "{},\"choices\":[{{\"index\":0,{choice},\"logprobs\":null,\"finish_reason\":\"{}\",\"stop_reason\":null}}]\
             {},{}}}",
            self.head,
            finish.word(),
            self.fingerprint,
            self.usage(tokens)
        )
        .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::MockArgs;
    use clap::Parser;

    #[derive(Parser)]
    struct Cli {
        #[command(flatten)]
        args: MockArgs,
    }

    fn config() -> Config {
        Cli::parse_from(["mock", "--model", "tiny", "--max-model-len", "100"])
            .args
            .config()
            .unwrap()
    }

    #[test]
    fn chunks_have_the_recorded_shape() {
        let c = config();
        let p = parse(
            Api::Chat,
            br#"{"model":"tiny","messages":[{"role":"user","content":"a b c"}],"stream":true,"max_tokens":4,
                 "stream_options":{"include_usage":true}}"#,
            &c,
        )
        .unwrap();
        assert_eq!(
            (p.prompt_tokens, p.max_tokens, p.include_usage),
            (3, 4, true)
        );
        let fields = ChunkFields {
            token_ids: true,
            fingerprint: true,
        };
        let r = Renderer::new(&p, fields, &c, "a10986c54eca7c67", 1_795_997_313);
        // Byte shapes as recorded from release 0.32.0; only the text differs.
        assert_eq!(
            r.role().unwrap(),
            r#"data: {"id":"chatcmpl-a10986c54eca7c67","object":"chat.completion.chunk","created":1795997313,"model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],"prompt_token_ids":null,"prompt_text":null}"#.to_owned() + "\n\n"
        );
        assert_eq!(
            r.token(" sha", 1, None),
            r#"data: {"id":"chatcmpl-a10986c54eca7c67","object":"chat.completion.chunk","created":1795997313,"model":"tiny","choices":[{"index":0,"delta":{"content":" sha"},"logprobs":null,"finish_reason":null,"token_ids":null}]}"#.to_owned() + "\n\n"
        );
        assert_eq!(
            r.token(" dolo", 4, Some(Finish::Length)),
            r#"data: {"id":"chatcmpl-a10986c54eca7c67","object":"chat.completion.chunk","created":1795997313,"model":"tiny","choices":[{"index":0,"delta":{"content":" dolo"},"logprobs":null,"finish_reason":"length","stop_reason":null,"token_ids":null}]}"#.to_owned() + "\n\n"
        );
        let usage = String::from_utf8(r.final_usage(4).to_vec()).unwrap();
        assert!(usage.contains(r#""choices":[],"usage":{"prompt_tokens":3,"total_tokens":7,"completion_tokens":4},"system_fingerprint":"#));
    }

    #[test]
    fn completion_chunks_carry_continuous_usage() {
        let c = config();
        let p = parse(
            Api::Completions,
            br#"{"prompt":[1,2,3,4,5,6,7,8],"stream":true,"max_tokens":8,"stream_options":{"include_usage":true,"continuous_usage_stats":true}}"#,
            &c,
        )
        .unwrap();
        let fields = ChunkFields {
            token_ids: true,
            fingerprint: true,
        };
        let r = Renderer::new(&p, fields, &c, "9d75654e3c53ccc4", 1_795_997_314);
        assert!(r.role().is_none());
        assert_eq!(
            r.token(" sha", 2, None),
            r#"data: {"id":"cmpl-9d75654e3c53ccc4","object":"text_completion","created":1795997314,"model":"tiny","choices":[{"index":0,"text":" sha","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":null,"token_ids":null}],"usage":{"prompt_tokens":8,"total_tokens":10,"completion_tokens":2}}"#.to_owned() + "\n\n"
        );
    }

    #[test]
    fn refusals() {
        let c = config();
        let refuse = |api, body: &str| parse(api, body.as_bytes(), &c).unwrap_err();
        let e = refuse(Api::Chat, r#"{"model":"no-such-model","messages":[]}"#);
        assert_eq!(e.status, 404);
        assert_eq!(
            e.body(),
            r#"{"error":{"message":"The model `no-such-model` does not exist. Valid aliases: tiny.","type":"NotFoundError","param":"model","code":404}}"#
        );
        assert_eq!(refuse(Api::Chat, "{").status, 400);
        assert_eq!(refuse(Api::Chat, r#"{"model":"tiny"}"#).status, 400);
        assert_eq!(
            refuse(Api::Completions, r#"{"prompt":"a","max_tokens":0}"#).status,
            400
        );
        let e = refuse(Api::Completions, r#"{"prompt":"a","max_tokens":100}"#);
        assert!(e.message.contains("maximum context length is 100 tokens"));
        let words = "w ".repeat(100);
        assert_eq!(
            refuse(Api::Completions, &format!(r#"{{"prompt":"{words}"}}"#)).status,
            400
        );
        assert_eq!(
            refuse(
                Api::Completions,
                r#"{"prompt":"a","max_tokens":18446744073709551615}"#
            )
            .status,
            400
        );
    }

    #[test]
    fn end_of_answer() {
        let mut c = config();
        c.eos_after = Some(5);
        let get = |body: &str| parse(Api::Completions, body.as_bytes(), &c).unwrap();
        let p = get(r#"{"prompt":"a","max_tokens":9}"#);
        assert_eq!((p.max_tokens, p.stops), (5, true));
        let p = get(r#"{"prompt":"a","max_tokens":9,"ignore_eos":true}"#);
        assert_eq!((p.max_tokens, p.stops), (9, false));
        let p = get(r#"{"prompt":"a","max_tokens":5}"#);
        assert_eq!((p.max_tokens, p.stops), (5, false));
        c.eos_after = None;
        let p = parse(Api::Completions, br#"{"prompt":"a"}"#, &c).unwrap();
        assert_eq!(p.max_tokens, 99);
    }

    #[test]
    fn prompt_tokens_are_words() {
        let count = |s: &str| count_tokens(&serde_json::from_str(s).unwrap());
        assert_eq!(count(r#""one two  three""#), 3);
        assert_eq!(count("[5,6,7]"), 3);
        assert_eq!(
            count(r#"[{"role":"user","content":[{"type":"text","text":"a b"}]},{"content":"c"}]"#),
            3
        );
        assert_eq!(count(r#""""#), 1);
    }
}
