//! Requests as they are written to their sockets.

use std::io::Write;

use blackstart_plan::Endpoint;
use http::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderMap, HeaderValue, USER_AGENT};

use crate::LoadError;
use crate::address::Address;

/// Header that carries a request's identity to the server's log.
const REQUEST_ID: &str = "x-request-id";
/// Room for what is written behind the head.
const TAIL_BYTES: usize = 128;

/// Headers that every request has.
pub(crate) fn base_headers(address: &Address) -> HeaderMap {
    let mut headers = HeaderMap::new();
    headers.insert(HOST, address.host.clone());
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert(
        USER_AGENT,
        HeaderValue::from_static(concat!("blackstart/", env!("CARGO_PKG_VERSION"))),
    );
    headers
}

/// The head of every request of a load, up to what differs. It may hold the API key: no `Debug`.
#[derive(Clone)]
pub(crate) struct RequestHead {
    bytes: Vec<u8>,
}

impl RequestHead {
    /// # Errors
    /// When the address's path is none.
    pub(crate) fn new(
        address: &Address,
        endpoint: Endpoint,
        headers: &HeaderMap,
    ) -> Result<Self, LoadError> {
        let path = format!("{}{}", address.prefix, endpoint.path());
        let uri: http::Uri = path.parse().map_err(|_| LoadError::Url {
            url: path.clone(),
            what: "not a path".to_owned(),
        })?;
        let mut bytes = format!("POST {uri} HTTP/1.1\r\n").into_bytes();
        for (name, value) in headers {
            bytes.extend_from_slice(name.as_str().as_bytes());
            bytes.extend_from_slice(b": ");
            bytes.extend_from_slice(value.as_bytes());
            bytes.extend_from_slice(b"\r\n");
        }
        Ok(Self { bytes })
    }

    /// A whole request. Its identity is a prefix, which must be fit for a header, and a number.
    pub(crate) fn with(&self, id: Option<(&str, u64)>, body: &[u8]) -> Vec<u8> {
        let prefix = id.map_or(0, |(prefix, _)| prefix.len());
        let room = self.bytes.len() + TAIL_BYTES + prefix + body.len();
        let mut request = Vec::with_capacity(room);
        request.extend_from_slice(&self.bytes);
        let written = match id {
            Some((prefix, index)) => write!(request, "{REQUEST_ID}: {prefix}-{index}\r\n"),
            None => Ok(()),
        }
        .and_then(|()| write!(request, "content-length: {}\r\n\r\n", body.len()));
        written.expect("a vector takes every write");
        request.extend_from_slice(body);
        request
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_whole() {
        let address = Address::resolve("http://127.0.0.1:9/llm", None).unwrap();
        let mut headers = base_headers(&address);
        headers.insert("x-team", HeaderValue::from_static("a"));
        let head = RequestHead::new(&address, Endpoint::Chat, &headers).unwrap();
        let text = String::from_utf8(head.with(Some(("run", 7)), b"{}")).unwrap();
        assert!(
            text.starts_with("POST /llm/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:9\r\n")
        );
        assert!(text.contains("\r\nx-team: a\r\n"), "{text}");
        assert!(text.ends_with("\r\nx-request-id: run-7\r\ncontent-length: 2\r\n\r\n{}"));
        assert!(
            !String::from_utf8(head.with(None, b""))
                .unwrap()
                .contains("request-id")
        );
    }
}
