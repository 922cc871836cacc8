//! URLs as grants compare them: taken apart strictly, so that two spellings of one
//! place cannot differ between the check and the client that sends the request.

/// Longest URL, in bytes.
pub(crate) const MAX_URL_BYTES: usize = 8 << 10;

/// An absolute `http` or `https` URL without user information or fragment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Url<'a> {
    pub https: bool,
    /// Lower case; an IPv6 address keeps its brackets.
    pub host: String,
    pub port: u16,
    /// From the first slash, with the query; `/` when the URL has none.
    pub path: &'a str,
}

impl<'a> Url<'a> {
    /// Takes `text` apart. `Err` says what it may not contain.
    pub fn parse(text: &'a str) -> Result<Url<'a>, &'static str> {
        if text.len() > MAX_URL_BYTES {
            return Err("it is too long");
        }
        // Clients strip, normalise or re-encode these, each in its own way.
        if text.bytes().any(|b| {
            !b.is_ascii_graphic()
                || matches!(
                    b,
                    b'\\' | b'"' | b'<' | b'>' | b'`' | b'{' | b'}' | b'|' | b'^'
                )
        }) {
            return Err("it has characters that a URL must encode");
        }
        if text.contains('#') {
            return Err("it has a fragment");
        }
        let (https, rest) = if let Some(rest) = text.strip_prefix("http://") {
            (false, rest)
        } else if let Some(rest) = text.strip_prefix("https://") {
            (true, rest)
        } else {
            return Err("it does not begin with http:// or https://");
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.contains('@') {
            return Err("it has user information before the host");
        }
        let (host, port) = split_authority(authority)?;
        let port = match port {
            None => {
                if https {
                    443
                } else {
                    80
                }
            }
            Some(digits)
                if !digits.is_empty()
                    && digits.len() <= 5
                    && digits.bytes().all(|b| b.is_ascii_digit()) =>
            {
                digits.parse().map_err(|_| "its port is not a port")?
            }
            Some(_) => return Err("its port is not a port"),
        };
        if path.starts_with('?') {
            return Err("it has a query but no path");
        }
        let path = if path.is_empty() { "/" } else { path };
        check_path(path)?;
        Ok(Url {
            https,
            host: host.to_ascii_lowercase(),
            port,
            path,
        })
    }

    /// True when both name the same server.
    pub fn same_server(&self, other: &Url<'_>) -> bool {
        self.https == other.https && self.port == other.port && self.host == other.host
    }
}

fn split_authority(authority: &str) -> Result<(&str, Option<&str>), &'static str> {
    let not_a_host = "its host is not a name or an address";
    if authority.starts_with('[') {
        let end = authority.find(']').ok_or(not_a_host)?;
        let (host, rest) = authority.split_at(end + 1);
        let inside = &host[1..end];
        if inside.parse::<std::net::Ipv6Addr>().is_err() {
            return Err(not_a_host);
        }
        return match rest.strip_prefix(':') {
            Some(port) => Ok((host, Some(port))),
            None if rest.is_empty() => Ok((host, None)),
            None => Err(not_a_host),
        };
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_');
    if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) {
        return Err(not_a_host);
    }
    Ok((host, port))
}

/// Refuses what a client or a server may fold into another path.
fn check_path(path: &str) -> Result<(), &'static str> {
    let (segments, _query) = path.split_once('?').unwrap_or((path, ""));
    let bytes = segments.as_bytes();
    for (i, &b) in bytes.iter().enumerate() {
        if b != b'%' {
            continue;
        }
        let code = match (bytes.get(i + 1), bytes.get(i + 2)) {
            (Some(&a), Some(&b)) if a.is_ascii_hexdigit() && b.is_ascii_hexdigit() => {
                [a.to_ascii_lowercase(), b.to_ascii_lowercase()]
            }
            _ => return Err("it has a `%` that encodes nothing"),
        };
        // A dot, a slash, a backslash, a percent sign or a control character.
        if matches!(&code, b"2e" | b"2f" | b"5c" | b"25" | b"7f") || matches!(code[0], b'0' | b'1')
        {
            return Err("its path encodes a character that could change the path");
        }
    }
    // A segment's parameters (`..;x`) do not make it another segment to all servers.
    let name = |segment: &str| -> bool {
        let bare = segment.split(';').next().unwrap_or("");
        bare == "." || bare == ".."
    };
    if segments.split('/').any(name) {
        return Err("its path has a `.` or `..` segment");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_urls_are_taken_apart() {
        let url = Url::parse("http://LocalHost:9000/admin/stall?ms=5").unwrap();
        assert_eq!(url.host, "localhost");
        assert_eq!((url.https, url.port), (false, 9000));
        assert_eq!(url.path, "/admin/stall?ms=5");
        assert_eq!(Url::parse("https://a.b").unwrap().port, 443);
        assert_eq!(Url::parse("http://a").unwrap().path, "/");
        let six = Url::parse("http://[::1]:8000/x").unwrap();
        assert_eq!((six.host.as_str(), six.port), ("[::1]", 8000));
    }

    #[test]
    fn tricks_are_refused() {
        for text in [
            "",
            "ftp://a/",
            "HTTP://a/",
            "http://",
            "http:///x",
            "http://user@host/",
            "http://127.0.0.1:9000@evil/",
            "http://127.0.0.1:9000#@evil/",
            "http://a/\\evil",
            "http:\\\\a",
            "http://a:99999/",
            "http://a:/",
            "http://a:+80/",
            "http://a:80:81/",
            "http://a/x/../y",
            "http://a/..",
            "http://a/./y",
            "http://a/..;/y",
            "http://a/%2e%2e/y",
            "http://a/.%2E/y",
            "http://a/x%2fy",
            "http://a/x%252e",
            "http://a/x%00",
            "http://a/x%",
            "http://a/x%zz",
            "http://a/\tx",
            "http://a/x y",
            "http://a/\r\nHost: b",
            "http://ä/",
            "http://[::1/",
            "http://[evil]/",
            "http://[::1]x/",
            "http://a?x",
        ] {
            assert!(Url::parse(text).is_err(), "{text}");
        }
        assert!(Url::parse(&format!("http://a/{}", "x".repeat(MAX_URL_BYTES))).is_err());
    }
}
