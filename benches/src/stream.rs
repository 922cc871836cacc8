//! The stream that the null target answers with, as vLLM writes it: a role chunk, the tokens, the
//! usage and the end.

/// Time to first token.
pub const TTFT_NS: i64 = 20_000_000;
/// Time between tokens.
pub const ITL_NS: i64 = 10_000_000;
/// Tokens of a stream.
pub const TOKENS: usize = 32;
/// Events of a stream: the role, the tokens, the usage, `[DONE]`.
pub const EVENTS: usize = TOKENS + 3;

fn event(data: &str) -> String {
    let event = format!("data: {data}\n\n");
    format!("{:x}\r\n{event}\r\n", event.len())
}

fn chunk(delta: &str, finish: &str) -> String {
    event(&format!(
        "{{\"id\":\"chatcmpl-9f2f0a4be1b14b5ba9d54b0e9a3cb5f1\",\"object\":\"chat.completion.chunk\",\
         \"created\":1790000000,\"model\":\"mock-8b\",\"choices\":[{{\"index\":0,\"delta\":{delta},\
         \"logprobs\":null,\"finish_reason\":{finish}}}]}}"
    ))
}

/// What is written at each of a stream's instants: the head, the role and the first token; a token; …;
/// the last token, the usage and the end.
pub fn writes() -> Vec<Vec<u8>> {
    let token = chunk("{\"content\":\" token\"}", "null");
    let mut writes = vec![token.clone(); TOKENS - 1];
    writes[0] = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\n\
         transfer-encoding: chunked\r\n\r\n{}{token}",
        chunk("{\"role\":\"assistant\",\"content\":\"\"}", "null"),
    );
    writes.push(format!(
        "{}{}{}0\r\n\r\n",
        chunk("{\"content\":\" token\"}", "\"length\""),
        event(
            "{\"id\":\"chatcmpl-9f2f0a4be1b14b5ba9d54b0e9a3cb5f1\",\"object\":\"chat.completion.chunk\",\
             \"created\":1790000000,\"model\":\"mock-8b\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\
             \"total_tokens\":41,\"completion_tokens\":32}}"
        ),
        event("[DONE]"),
    ));
    writes.into_iter().map(String::into_bytes).collect()
}

/// The body of a request that any of the tools sends.
pub fn request_body() -> String {
    serde_json::json!({
        "model": "mock-8b",
        "messages": [{"role": "user", "content": "word ".repeat(128)}],
        "max_tokens": TOKENS,
        "ignore_eos": true,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_has_its_events() {
        let text = String::from_utf8(writes().concat()).unwrap();
        assert_eq!(writes().len(), TOKENS);
        assert_eq!(text.matches("data: ").count(), EVENTS);
    }
}
