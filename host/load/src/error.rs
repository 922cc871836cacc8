//! Why a load could not be driven.

use std::path::PathBuf;

use blackstart_record::RecordError;

/// Errors of the load path. A failing server is none: its requests have outcomes.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The address is not one that this version can send to.
    #[error("{url}: {what}; write it as http://host:port")]
    Url {
        /// The address as configured.
        url: String,
        /// What is wrong.
        what: String,
    },
    /// TLS.
    #[error(
        "{url}: this version speaks plain HTTP only; put a TLS-terminating proxy in front, or use an http:// address"
    )]
    Https {
        /// The address as configured.
        url: String,
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
