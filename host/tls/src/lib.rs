//! TLS of the instrument's clients: whom they trust, and what a failed handshake means.
//!
//! HTTP/1.1 only (it is all that ALPN offers). The crypto is set up once; every connection shares it,
//! and sessions are resumed where the server lets them. Nothing here does I/O of its own but for
//! reading the platform's root certificates: a handshake goes over the caller's socket.

mod explain;
mod trust;

use std::fmt;
use std::io;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::crypto::ring;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsConnector;

pub use tokio_rustls::client::TlsStream;
pub use trust::{MAX_CA_FILE_BYTES, Trust};

/// What ALPN offers.
const HTTP_1_1: &[u8] = b"http/1.1";
/// Content types of the TLS records with which a server may begin: an alert, a handshake.
const TLS_CONTENT_TYPES: [u8; 2] = [21, 22];

/// Why TLS cannot be set up. A server that fails is no such error.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// Nobody would be trusted.
    #[error(
        "no root certificate was found on this machine ({reason}); install the package \
         `ca-certificates`, or give the issuer's certificate with --ca-file"
    )]
    NoRoots {
        /// What the platform said.
        reason: String,
    },
    /// The file with additional certificates is of no use.
    #[error("{what}")]
    CaFile {
        /// What is wrong, and how to mend it.
        what: String,
    },
    /// A certificate cannot be for this host.
    #[error(
        "`{host}` is neither a DNS name nor an IP address, so no certificate can be for it; name the \
         server as its certificate does"
    )]
    Host {
        /// The host, as the address has it.
        host: String,
    },
    /// The library refused its own settings: a defect of the instrument.
    #[error("TLS cannot be set up: {0}; please report this")]
    Setup(#[from] rustls::Error),
}

/// A client's side of TLS. Cheap to clone; clones share sessions.
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<ClientConfig>,
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

impl TlsClient {
    /// Sets TLS up.
    ///
    /// # Errors
    /// When the file with additional certificates is of no use, or nobody would be trusted.
    pub fn new(trust: Trust<'_>) -> Result<Self, TlsError> {
        let provider = Arc::new(ring::default_provider());
        let verifier = trust.verifier(&provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            // `dangerous` is what the library calls any verifier that is not its own.
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.alpn_protocols = vec![HTTP_1_1.to_vec()];
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// A server that is to prove that it is this host: a DNS name or an IP address (IPv6 without
    /// brackets).
    ///
    /// # Errors
    /// When it is neither.
    pub fn peer(&self, host: &str) -> Result<TlsPeer, TlsError> {
        let name = ServerName::try_from(host.to_owned()).map_err(|_| TlsError::Host {
            host: host.to_owned(),
        })?;
        Ok(TlsPeer {
            config: Arc::clone(&self.config),
            name,
        })
    }
}

/// A server to speak TLS with.
#[derive(Clone)]
pub struct TlsPeer {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl fmt::Debug for TlsPeer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsPeer").field(&self.name).finish()
    }
}

impl TlsPeer {
    /// The handshake, over a socket that is connected. It has no limit of its own.
    ///
    /// # Errors
    /// Those of the socket and of TLS; [`explain`](Self::explain) says what they mean.
    pub async fn handshake<S>(&self, socket: S) -> io::Result<TlsStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        TlsConnector::from(Arc::clone(&self.config))
            .connect(self.name.clone(), socket)
            .await
    }

    /// What a failure of the handshake, or of the connection after it, means and how to mend it.
    pub fn explain(&self, error: &io::Error) -> String {
        explain::explain(error, &self.name.to_str())
    }
}

/// Whether an error is one of TLS, not of the socket below it.
pub fn is_tls(error: &io::Error) -> bool {
    explain::tls_error(error).is_some()
}

/// Whether an answer that was meant to be HTTP begins as one of TLS does.
pub fn looks_like_tls(first_byte: u8) -> bool {
    TLS_CONTENT_TYPES.contains(&first_byte)
}
