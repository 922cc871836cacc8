//! Where requests go: parsed and resolved once, before the epoch.

use std::net::{SocketAddr, ToSocketAddrs};

use blackstart_tls::{TlsClient, TlsPeer};
use http::Uri;
use http::header::HeaderValue;

use crate::LoadError;

/// Most addresses of a host name that are tried for one connection.
const MAX_ADDRESSES: usize = 8;

/// A server, by its resolved addresses.
#[derive(Debug, Clone)]
pub(crate) struct Address {
    /// Addresses, in the resolver's order.
    pub(crate) sockets: Vec<SocketAddr>,
    /// The `Host` header.
    pub(crate) host: HeaderValue,
    /// Path before the API's own, without a slash at its end.
    pub(crate) prefix: String,
    /// Whom to speak TLS with, if at all.
    pub(crate) tls: Option<TlsPeer>,
}

impl Address {
    /// Parses `http://host:port[/prefix]`, or `https://`, and resolves its host.
    ///
    /// # Errors
    /// [`LoadError::Url`], [`LoadError::Https`], [`LoadError::Tls`], [`LoadError::Resolve`].
    pub(crate) fn resolve(url: &str, tls: Option<&TlsClient>) -> Result<Self, LoadError> {
        let wrong = |what: &str| LoadError::Url {
            url: url.to_owned(),
            what: what.to_owned(),
        };
        let uri: Uri = url
            .parse()
            .map_err(|e: http::uri::InvalidUri| wrong(&e.to_string()))?;
        let tls = match uri.scheme_str() {
            Some("http") => None,
            Some("https") => Some(tls.ok_or_else(|| LoadError::Https {
                url: url.to_owned(),
            })?),
            Some(_) => return Err(wrong("not an http:// or https:// address")),
            None => return Err(wrong("the scheme is missing")),
        };
        if uri.query().is_some() {
            return Err(wrong("a query does not belong into a base address"));
        }
        let authority = uri.authority().ok_or_else(|| wrong("no host"))?;
        if authority.as_str().contains('@') {
            return Err(wrong(
                "a user name or password does not belong into an address",
            ));
        }
        let host = authority.host();
        let port = match authority.as_str().get(host.len()..) {
            None | Some("") => {
                if tls.is_some() {
                    443
                } else {
                    80
                }
            }
            // One beyond the range must not become the scheme's own.
            Some(rest) => rest
                .strip_prefix(':')
                .and_then(|digits| digits.parse().ok())
                .filter(|port| *port != 0)
                .ok_or_else(|| wrong("its port is no number from 1 to 65535"))?,
        };
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let tls = tls
            .map(|client| client.peer(name))
            .transpose()
            .map_err(|source| LoadError::Tls {
                url: url.to_owned(),
                source,
            })?;
        let sockets: Vec<_> = (name, port)
            .to_socket_addrs()
            .map_err(|e| LoadError::Resolve {
                url: url.to_owned(),
                reason: e.to_string(),
            })?
            .take(MAX_ADDRESSES)
            .collect();
        if sockets.is_empty() {
            return Err(LoadError::Resolve {
                url: url.to_owned(),
                reason: "no address".to_owned(),
            });
        }
        Ok(Self {
            sockets,
            host: HeaderValue::from_str(authority.as_str())
                .map_err(|_| wrong("its host is no header value"))?,
            prefix: uri.path().trim_end_matches('/').to_owned(),
            tls,
        })
    }
}

/// Whether a load can be sent to an address: its form, and that its host has an address.
///
/// # Errors
/// Why not.
pub fn check_url(url: &str, tls: Option<&TlsClient>) -> Result<(), LoadError> {
    Address::resolve(url, tls).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_tls::Trust;

    fn resolve(url: &str) -> Result<Address, LoadError> {
        Address::resolve(url, Some(&TlsClient::new(Trust::Anyone).unwrap()))
    }

    #[test]
    fn addresses_that_work() {
        let a = resolve("http://127.0.0.1:8000/").unwrap();
        assert_eq!(a.sockets, ["127.0.0.1:8000".parse().unwrap()]);
        assert_eq!(
            (a.host.to_str().unwrap(), a.prefix.as_str()),
            ("127.0.0.1:8000", "")
        );
        let a = resolve("http://[::1]:9/llm/").unwrap();
        assert_eq!(a.sockets, ["[::1]:9".parse().unwrap()]);
        assert_eq!(
            (a.host.to_str().unwrap(), a.prefix.as_str()),
            ("[::1]:9", "/llm")
        );
        assert_eq!(resolve("http://127.0.0.1").unwrap().sockets[0].port(), 80);
        let a = resolve("https://[::1]/llm").unwrap();
        assert_eq!(a.sockets, ["[::1]:443".parse().unwrap()]);
        assert!(a.tls.is_some());
    }

    #[test]
    fn addresses_that_do_not_say_why() {
        let error = Address::resolve("https://127.0.0.1", None).unwrap_err();
        assert!(error.to_string().contains("https is not spoken here"));
        for (url, why) in [
            ("ftp://127.0.0.1", "not an http:// or https:// address"),
            ("127.0.0.1:8000", "http://host:port"),
            ("http://", "http://host:port"),
            ("http://u:p@127.0.0.1", "user name"),
            ("http://127.0.0.1/?a=1", "query"),
            ("http://127.0.0.1:99999", "port"),
            ("http://127.0.0.1:0", "port"),
            ("http://no-such-host.invalid:1", "cannot resolve"),
        ] {
            let error = resolve(url).unwrap_err().to_string();
            assert!(error.contains(why), "{url}: {error}");
        }
    }
}
