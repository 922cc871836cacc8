//! Why a load could not be driven.

use std::path::PathBuf;

use blackstart_record::RecordError;
use blackstart_tls::TlsError;

/// Errors of the load path. A failing server is none: its requests have outcomes.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address is not one that this version can send to.
    #[error("{url}: {what}; write it as http://host:port or https://host:port")]
    Url {
        /// The address as configured.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// An `https://` address where nothing says how to speak TLS.
    #[error(
        "{url}: https is not spoken here; use an http:// address, or put a TLS-terminating proxy in front"
    )]
    Https {
        /// The address as configured.
        url: String,
    },
    /// TLS cannot be spoken with this server.
    #[error("{url}: {source}")]
    Tls {
        /// The address as configured.
        url: String,
        /// Why, and how to mend it.
        source: TlsError,
    },
    /// The host name has no address.
    #[error("{url}: cannot resolve its host: {reason}; check the name and the resolver")]
    Resolve {
        /// The address as configured.
        url: String,
        /// The resolver's reason.
        reason: String,
    },
    /// A header that HTTP does not allow, or that the instrument sets itself.
    #[error("header `{name}`: {what}")]
    Header {
        /// Its name.
        name: String,
        /// What is wrong, and how to mend it.
        what: String,
    },
    /// The plan asks for something impossible.
    #[error("{what}")]
    Plan {
        /// What, and how to mend it.
        what: String,
    },
    /// A thread could not be started.
    #[error("cannot start thread {name}: {source}; raise the limit on processes")]
    Thread {
        /// Its name.
        name: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// A thread ended by a panic: a defect of the instrument. The records up to then were written.
    #[error(
        "thread {name} panicked; the results in {} are kept, please report this", dir.display()
    )]
    Panicked {
        /// Its name.
        name: &'static str,
        /// Where the results are.
        dir: PathBuf,
    },
    /// The records could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
}
