//! One HTTP/1.1 request on one TCP connection, with stamps taken at the socket.
//!
//! hyper's connection is used bare: a pooled client repeats a request whose reused connection died,
//! and it hides when bytes really came. Here the stamp is taken in the read call itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll};

use blackstart_clock::{RunClock, RunNs};
use blackstart_tls::{TlsClient, TlsPeer};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::http::{HeaderMap, Method, Request, Uri, header, response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::failure::{Failure, Stage, excerpt};

/// Largest response head that is read, in bytes.
const MAX_HEAD_BYTES: usize = 64 * 1024;

/// An address that requests are sent to, taken from a base URL.
#[derive(Debug, Clone)]
pub(crate) struct HttpTarget {
    host: String,
    port: u16,
    authority: String,
    prefix: String,
    /// Whom to speak TLS with, if at all.
    tls: Option<TlsPeer>,
}

impl HttpTarget {
    /// From `http://host[:port][/prefix]`; from `https://` where it is known how to speak TLS.
    ///
    /// # Errors
    /// A text that says what is wrong with the URL and what it should be.
    pub(crate) fn parse(url: &str, tls: Option<&TlsClient>) -> Result<Self, String> {
        let uri: Uri = url
            .parse()
            .map_err(|e| format!("{e}; write it as http://host:port"))?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(tls.ok_or_else(|| {
                "the observers speak plain HTTP only; give the address behind the TLS proxy"
                    .to_owned()
            })?),
            _ => return Err("it does not begin with http://".to_owned()),
        };
        let authority = uri
            .authority()
            .ok_or_else(|| "it names no host; write it as http://host:port".to_owned())?;
        if authority.as_str().contains('@') {
            return Err("it holds a user name; give credentials by api_key_env".to_owned());
        }
        let host = authority.host();
        // The parser takes any digits for a port, and then has none: port 80 would be probed.
        let port = match authority.as_str()[host.len()..].strip_prefix(':') {
            None if tls.is_some() => 443,
            None => 80,
            Some(digits) => digits
                .parse::<u16>()
                .map_err(|_| format!("port `{digits}` is not between 0 and 65535"))?,
        };
        let host = host
            .strip_prefix('[')
            .and_then(|h| h.strip_suffix(']'))
            .unwrap_or(host);
        if host.is_empty() {
            return Err("it names no host; write it as http://host:port".to_owned());
        }
        if uri.query().is_some() {
            return Err("it holds a query; give the address alone".to_owned());
        }
        Ok(Self {
            host: host.to_owned(),
            port,
            authority: authority.as_str().to_owned(),
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls: tls
                .map(|client| client.peer(host))
                .transpose()
                .map_err(|e| e.to_string())?,
        })
    }

    /// `host:port` as the URL writes it.
    pub(crate) fn authority(&self) -> &str {
        &self.authority
    }

    /// The whole URL of a path below the base.
    pub(crate) fn url(&self, path: &str) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}{}{path}", self.authority, self.prefix)
    }

    /// A request for a path below the base: GET without a body, POST of JSON with one.
    pub(crate) fn request(
        &self,
        path: &str,
        headers: &HeaderMap,
        json: Option<Vec<u8>>,
    ) -> Result<Request<Full<Bytes>>, Failure> {
        let mut builder = Request::builder()
            .method(if json.is_some() {
                Method::POST
            } else {
                Method::GET
            })
            .uri(format!("{}{path}", self.prefix))
            .header(header::HOST, &self.authority);
        if let Some(own) = builder.headers_mut() {
            own.extend(headers.iter().map(|(k, v)| (k.clone(), v.clone())));
            own.insert(
                header::CONNECTION,
                header::HeaderValue::from_static("close"),
            );
            if json.is_some() {
                own.insert(
                    header::CONTENT_TYPE,
                    header::HeaderValue::from_static("application/json"),
                );
            }
        }
        builder
            .body(Full::new(Bytes::from(json.unwrap_or_default())))
            .map_err(|e| Failure::Malformed(format!("the request cannot be written: {e}")))
    }
}

type Connection = http1::Connection<TokioIo<Stamped>, Full<Bytes>>;

/// A response whose head has arrived.
pub(crate) struct Exchange {
    /// Status and headers.
    pub(crate) head: response::Parts,
    body: Incoming,
    /// `None` once the connection has ended.
    connection: Option<Pin<Box<Connection>>>,
    last_read_ns: Arc<AtomicI64>,
}

impl Exchange {
    /// Connects, sends the request and waits for the response head. `connected` is called when the
    /// connection stands.
    pub(crate) async fn send(
        target: &HttpTarget,
        request: Request<Full<Bytes>>,
        clock: RunClock,
        connected: impl FnOnce(),
    ) -> Result<Self, Failure> {
        let stream = TcpStream::connect((target.host.as_str(), target.port))
            .await
            .map_err(|e| Failure::from_connect(&e))?;
        connected();
        // Without it the request body can wait for the acknowledgement of its head. A refusal only
        // costs that wait.
        let _ = stream.set_nodelay(true);
        let stream: Box<dyn Socket> = match &target.tls {
            None => Box::new(stream),
            Some(peer) => match peer.handshake(stream).await {
                Ok(stream) => Box::new(stream),
                Err(e) => return Err(Failure::Tls(excerpt(&peer.explain(&e)))),
            },
        };
        let last_read_ns = Arc::new(AtomicI64::new(i64::MIN));
        let io = TokioIo::new(Stamped {
            stream,
            clock,
            last_read_ns: Arc::clone(&last_read_ns),
        });
        let (mut sender, connection) = http1::Builder::new()
            .max_buf_size(MAX_HEAD_BYTES)
            .handshake(io)
            .await
            .map_err(|e| Failure::from_hyper(&e, Stage::Waiting))?;
        let mut connection = Some(Box::pin(connection));
        let response = {
            let sent = sender.send_request(request);
            tokio::pin!(sent);
            loop {
                match connection.as_mut() {
                    Some(running) => tokio::select! {
                        biased;
                        done = &mut sent => break done,
                        _ = running => connection = None,
                    },
                    None => break sent.await,
                }
            }
        };
        let (head, body) = response
            .map_err(|e| Failure::from_hyper(&e, Stage::Waiting))?
            .into_parts();
        Ok(Self {
            head,
            body,
            connection,
            last_read_ns,
        })
    }

    /// The next piece of the body; `None` at its end.
    pub(crate) async fn chunk(&mut self) -> Result<Option<Bytes>, Failure> {
        loop {
            let frame = match self.connection.as_mut() {
                Some(running) => tokio::select! {
                    biased;
                    frame = self.body.frame() => frame,
                    _ = running => {
                        self.connection = None;
                        continue;
                    }
                },
                None => self.body.frame().await,
            };
            match frame {
                None => return Ok(None),
                Some(Err(e)) => return Err(Failure::from_hyper(&e, Stage::Streaming)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
            }
        }
    }

    /// The whole body, or its first `limit` bytes.
    pub(crate) async fn text(&mut self, limit: usize) -> Result<String, Failure> {
        let mut all = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            let room = limit.saturating_sub(all.len());
            all.extend_from_slice(&chunk[..chunk.len().min(room)]);
            if all.len() >= limit {
                break;
            }
        }
        Ok(String::from_utf8_lossy(&all).into_owned())
    }

    /// When bytes were last read from the socket.
    pub(crate) fn last_read_ns(&self) -> RunNs {
        self.last_read_ns.load(Ordering::Relaxed)
    }
}

/// TCP, or TLS over it.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A stream that stamps each read that brought bytes.
struct Stamped {
    stream: Box<dyn Socket>,
    clock: RunClock,
    last_read_ns: Arc<AtomicI64>,
}

impl AsyncRead for Stamped {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(cx, buf);
        if buf.filled().len() > before {
            self.last_read_ns.store(self.clock.now(), Ordering::Relaxed);
        }
        polled
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls() {
        let t = HttpTarget::parse("http://127.0.0.1:8000", None).unwrap();
        assert_eq!(t.url("/v1/models"), "http://127.0.0.1:8000/v1/models");
        assert_eq!((t.host.as_str(), t.port), ("127.0.0.1", 8000));
        let t = HttpTarget::parse("http://[::1]:9/llm/", None).unwrap();
        assert_eq!((t.host.as_str(), t.port), ("::1", 9));
        assert_eq!(t.url("/metrics"), "http://[::1]:9/llm/metrics");
        assert_eq!(HttpTarget::parse("http://example", None).unwrap().port, 80);
        for bad in [
            "",
            "127.0.0.1:8000",
            "https://h",
            "http://",
            "http://u:p@h",
            "http://h?x=1",
            "ftp://h",
            "http://h:99999",
            "http://h:",
        ] {
            assert!(
                HttpTarget::parse(bad, None).is_err(),
                "{bad:?} was accepted"
            );
        }
    }
}
