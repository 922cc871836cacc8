//! What a failure of TLS means, and how to mend it.

use std::io;

use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, Error, InvalidMessage};

use crate::trust::is_authority;

/// Most names of a certificate that are shown.
const MAX_NAMES_SHOWN: usize = 5;

/// The library's error inside one of I/O.
pub(crate) fn tls_error(error: &io::Error) -> Option<&Error> {
    error.get_ref()?.downcast_ref()
}

pub(crate) fn explain(error: &io::Error, host: &str) -> String {
    if let Some(tls) = tls_error(error) {
        return of_tls(tls, host);
    }
    match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            "the server closed the connection during the TLS handshake; if it speaks plain HTTP on this \
             port, use http://"
                .to_owned()
        }
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => format!(
            "the server broke the connection off during the TLS handshake ({error}); if it speaks plain \
             HTTP on this port, use http://"
        ),
        _ => format!("TLS handshake: {error}"),
    }
}

fn of_tls(error: &Error, host: &str) -> String {
    match error {
        Error::InvalidCertificate(reason) if !is_authority(error) => {
            of_certificate(reason, host)
        }
        Error::InvalidCertificate(_) => {
            "the server's certificate is one of an authority, and none that is trusted itself; give that very \
             certificate with --ca-file"
                .to_owned()
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "the server does not answer with TLS; if it speaks plain HTTP on this port, use http://"
                .to_owned()
        }
        Error::PeerIncompatible(what) => format!(
            "the server and this client have no TLS in common (it needs TLS 1.2 or 1.3): {what:?}"
        ),
        Error::AlertReceived(alert) => of_alert(*alert, host),
        other => format!("TLS: {other}"),
    }
}

fn of_certificate(reason: &CertificateError, host: &str) -> String {
    match reason {
        CertificateError::UnknownIssuer => {
            "this machine does not know who issued the server's certificate; give the issuer's \
             certificate with --ca-file FILE (or send without verifying: --insecure)"
                .to_owned()
        }
        CertificateError::BadSignature => {
            "the server's certificate is not signed by the issuer of that name that this machine trusts; \
             give the issuer's present certificate with --ca-file FILE"
                .to_owned()
        }
        CertificateError::NotValidForNameContext { presented, .. } if !presented.is_empty() => {
            let more = if presented.len() > MAX_NAMES_SHOWN {
                ", …"
            } else {
                ""
            };
            let names: Vec<String> = presented
                .iter()
                .take(MAX_NAMES_SHOWN)
                .map(|name| readable(name).to_owned())
                .collect();
            format!(
                "the server's certificate is not for {host} but for {}{more}; use a name that it has in \
                 the address",
                names.join(", ")
            )
        }
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
            format!(
                "the server's certificate is not for {host}; use a name that it has in the address (as a \
             subject alternative name; its common name does not count)"
            )
        }
        CertificateError::ExpiredContext { time, not_after } => format!(
            "the server's certificate expired {} ago; renew it, or check this machine's clock",
            between(*not_after, *time)
        ),
        CertificateError::Expired => {
            "the server's certificate has expired; renew it, or check this machine's clock"
                .to_owned()
        }
        CertificateError::NotValidYetContext { time, not_before } => format!(
            "the server's certificate is valid only in {}; check this machine's clock",
            between(*time, *not_before)
        ),
        other => format!(
            "the server's certificate is not accepted: {other}; renew it (or send without verifying: \
             --insecure)"
        ),
    }
}

fn of_alert(alert: AlertDescription, host: &str) -> String {
    match alert {
        AlertDescription::CertificateRequired => {
            "the server asks for a certificate of the client, which this version does not have; put a \
             proxy in front that has one"
                .to_owned()
        }
        AlertDescription::UnrecognisedName => format!(
            "the server does not serve the name {host}; use a name that it has in the address"
        ),
        AlertDescription::NoApplicationProtocol => {
            "the server does not speak HTTP/1.1 over TLS, and this version nothing else".to_owned()
        }
        AlertDescription::HandshakeFailure | AlertDescription::ProtocolVersion => format!(
            "the server and this client have no TLS in common (it needs TLS 1.2 or 1.3): {alert:?}"
        ),
        other => format!("the server ended TLS with the alert {other:?}"),
    }
}

/// A name as the library shows it: `DnsName("a.b")`.
fn readable(name: &str) -> &str {
    name.split('"').nth(1).unwrap_or(name)
}

/// A length of time as people say it.
fn between(from: UnixTime, to: UnixTime) -> String {
    let seconds = to.as_secs().saturating_sub(from.as_secs());
    let (n, unit) = match seconds {
        0..3_600 => (seconds / 60, "minute"),
        3_600..86_400 => (seconds / 3_600, "hour"),
        _ => (seconds / 86_400, "day"),
    };
    let s = if n == 1 { "" } else { "s" };
    format!("{n} {unit}{s}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_usual_failure_says_how_to_mend_it() {
        let tls = |e: Error| explain(&io::Error::new(io::ErrorKind::InvalidData, e), "h");
        let certificate = |e: CertificateError| tls(Error::InvalidCertificate(e));
        let at = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
        for (text, part) in [
            (certificate(CertificateError::UnknownIssuer), "--ca-file"),
            (
                certificate(CertificateError::BadSignature),
                "present certificate",
            ),
            (
                certificate(CertificateError::ExpiredContext {
                    time: at(200_000),
                    not_after: at(20_000),
                }),
                "expired 2 days ago",
            ),
            (certificate(CertificateError::NotValidForName), "not for h"),
            (
                tls(Error::InvalidMessage(InvalidMessage::InvalidContentType)),
                "use http://",
            ),
            (
                tls(Error::AlertReceived(AlertDescription::CertificateRequired)),
                "certificate of the client",
            ),
            (
                explain(&io::ErrorKind::UnexpectedEof.into(), "h"),
                "use http://",
            ),
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn names_and_times_are_readable() {
        assert_eq!(readable("DnsName(\"a.b\")"), "a.b");
        assert_eq!(readable("10.0.0.1"), "10.0.0.1");
        let at = |s| UnixTime::since_unix_epoch(Duration::from_secs(s));
        assert_eq!(between(at(0), at(60)), "1 minute");
        assert_eq!(between(at(0), at(7_200)), "2 hours");
        assert_eq!(between(at(9), at(0)), "0 minutes");
    }
}
