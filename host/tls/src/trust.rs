//! Whom a client trusts.

use std::sync::Arc;

use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::verify_server_name;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{
    CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme,
};

use crate::TlsError;

/// Largest file of additional certificates; the bundle of a whole platform has a quarter of a
/// megabyte.
pub const MAX_CA_FILE_BYTES: usize = 4 << 20;

/// Whose word a client takes for who a server is.
#[derive(Debug, Clone, Copy)]
pub enum Trust<'a> {
    /// The platform's root certificates (with `SSL_CERT_FILE` and `SSL_CERT_DIR` as OpenSSL has them).
    Platform {
        /// PEM certificates that are trusted besides: issuers, or the server's own.
        added_pem: Option<&'a [u8]>,
    },
    /// Anyone's: nothing is verified.
    Anyone,
}

impl Trust<'_> {
    pub(crate) fn verifier(
        self,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Arc<dyn ServerCertVerifier>, TlsError> {
        let added_pem = match self {
            Self::Platform { added_pem } => added_pem,
            Self::Anyone => return Ok(Arc::new(Unverified(Arc::clone(provider)))),
        };
        let platform = rustls_native_certs::load_native_certs();
        let mut roots = RootCertStore::empty();
        let mut trusted = platform.certs.clone();
        // A platform's store may hold certificates that nobody can read any more.
        roots.add_parsable_certificates(platform.certs);
        let added = added_pem.map(certificates).transpose()?.unwrap_or_default();
        for (k, certificate) in added.iter().enumerate() {
            roots
                .add(certificate.clone())
                .map_err(|e| TlsError::CaFile {
                    what: format!("its certificate {} cannot be used: {e}", k + 1),
                })?;
        }
        if roots.is_empty() {
            let reason = platform
                .errors
                .first()
                .map_or_else(|| "its store is empty".to_owned(), ToString::to_string);
            return Err(TlsError::NoRoots { reason });
        }
        let issuers =
            WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider))
                .build()
                .map_err(|e| TlsError::CaFile {
                    what: format!("the root certificates cannot be used: {e}"),
                })?;
        trusted.extend(added);
        Ok(Arc::new(Verified { issuers, trusted }))
    }
}

/// The certificates of a PEM file; at least one.
fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |what: String| TlsError::CaFile { what };
    let certificates: Vec<_> = CertificateDer::pem_slice_iter(pem)
        .collect::<Result<_, _>>()
        .map_err(|e| wrong(format!("it is no PEM file: {e}")))?;
    if certificates.is_empty() {
        return Err(wrong(
            "it holds no PEM certificate (`-----BEGIN CERTIFICATE-----`); turn a DER file into one \
             with `openssl x509 -inform der -in FILE -out ca.pem`"
                .to_owned(),
        ));
    }
    Ok(certificates)
}

/// Verifies by issuers, as browsers do; and takes a certificate that the user trusts himself.
#[derive(Debug)]
struct Verified {
    issuers: Arc<WebPkiServerVerifier>,
    /// The platform's certificates (a file that `SSL_CERT_FILE` names may hold a server's own), and
    /// those that the user added.
    trusted: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for Verified {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let judged = self.issuers.verify_server_cert(
            end_entity,
            intermediates,
            server_name,
            ocsp_response,
            now,
        );
        match judged {
            // `openssl req -x509` makes its server certificates authorities, which the library takes
            // for a server's under no circumstances. One that is trusted itself (it could issue any other)
            // is taken all the same, for the names and the time that it says: the time was checked
            // before this error.
            Err(error) if is_authority(&error) && self.trusted.iter().any(|c| c == end_entity) => {
                verify_server_name(&ParsedCertificate::try_from(end_entity)?, server_name)?;
                Ok(ServerCertVerified::assertion())
            }
            judged => judged,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issuers.verify_tls12_signature(message, cert, dss)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.issuers.verify_tls13_signature(message, cert, dss)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.issuers.supported_verify_schemes()
    }
}

/// Whether a certificate was refused because it is an authority's.
pub(crate) fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(OtherError(inner))) = error else {
        return false;
    };
    matches!(
        inner.downcast_ref::<webpki::Error>(),
        Some(webpki::Error::CaUsedAsEndEntity)
    )
}

/// Takes every server for what it says it is.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TlsClient;

    fn with(pem: &[u8]) -> String {
        TlsClient::new(Trust::Platform {
            added_pem: Some(pem),
        })
        .unwrap_err()
        .to_string()
    }

    #[test]
    fn files_of_no_use_say_why() {
        assert!(with(b"").contains("-inform der"));
        assert!(with(b"\x30\x82\x01\x02").contains("-inform der"));
        assert!(
            with(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
                .contains("certificate 1 cannot be used")
        );
        assert!(with(b"-----BEGIN CERTIFICATE-----\n!\n").contains("no PEM file"));
    }

    #[test]
    fn a_host_that_no_certificate_can_be_for_is_refused() {
        let client = TlsClient::new(Trust::Anyone).unwrap();
        for host in ["example.com", "127.0.0.1", "::1", "localhost"] {
            client.peer(host).unwrap();
        }
        let error = client.peer("a b").unwrap_err().to_string();
        assert!(error.contains("`a b`"), "{error}");
    }
}
