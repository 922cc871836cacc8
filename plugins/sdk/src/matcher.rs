//! World `log-matcher`: which line of a server's log marks which boundary.
//!
//! ```
//! use blackstart_sdk::matcher::*;
//! use blackstart_sdk::{Error, NoConfig};
//!
//! struct MyServer;
//!
//! /// Parser state of one replica's log.
//! struct MySession {
//!     next_line: u64,
//! }
//!
//! impl LogMatcher for MyServer {
//!     type Config = NoConfig;
//!     type Session = MySession;
//!
//!     fn describe() -> MatcherDescription {
//!         MatcherDescription {
//!             summary: "Log of my-server 2.x.".into(),
//!             product: "my-server".into(),
//!             versions: ">=2.0.0, <3.0.0".into(),
//!             boundaries: vec![boundary_info("startup_complete", "the API accepts requests", false)],
//!         }
//!     }
//!
//!     fn probe(head: &str) -> ProbeResult {
//!         let mine = head.lines().any(|line| line.contains("my-server"));
//!         ProbeResult { version: None, confidence: if mine { 90 } else { 0 } }
//!     }
//!
//!     fn open(_replica: &str, _config: NoConfig) -> Result<MySession, Error> {
//!         Ok(MySession { next_line: 0 })
//!     }
//! }
//!
//! impl LogSession for MySession {
//!     fn feed(&mut self, text: &str) -> Result<Vec<Boundary>, Error> {
//!         let mut found = Vec::new();
//!         // A carriage return ends no line, so `str::lines` would be wrong here.
//!         for line in text.split('\n') {
//!             if line.contains("Application startup complete") {
//!                 found.push(boundary(self.next_line, "startup_complete"));
//!             }
//!             self.next_line += 1;
//!         }
//!         Ok(found)
//!     }
//! }
//!
//! // In a guest crate (a `cdylib`), once: blackstart_sdk::register!(matcher: MyServer);
//! let mut session = MyServer::open("vllm-0", NoConfig {}).unwrap();
//! let found = session.feed("one\nApplication startup complete").unwrap();
//! assert_eq!(found[0].line, 1);
//! ```

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::bindings::matcher::exports::blackstart::plugin::matcher as exported;
use crate::config::{self, PluginConfig};
use crate::identity::Identity;
use crate::{Error, panic};

pub use exported::{Boundary, BoundaryInfo, MatcherInfo, ProbeResult};

/// What a matcher says about itself; name and version come from its `Cargo.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct MatcherDescription {
    /// One line for people.
    pub summary: String,
    /// Server product (`vllm`).
    pub product: String,
    /// Semver requirement on the product's release (`>=0.8.0, <0.10.0`).
    pub versions: String,
    /// Every boundary that a session can yield.
    pub boundaries: Vec<BoundaryInfo>,
}

/// A log matcher for one family of server releases.
pub trait LogMatcher: 'static {
    /// The plugin's own configuration table ([`crate::NoConfig`] if there is none).
    type Config: PluginConfig;
    /// Parser state of one replica's log.
    type Session: LogSession;

    /// What the plugin is and which boundaries it knows.
    fn describe() -> MatcherDescription;

    /// Looks at the first lines of a log, joined by `\n`, and says whether they are
    /// from a release that this matcher reads.
    fn probe(head: &str) -> ProbeResult;

    /// Starts on the log of one replica.
    ///
    /// # Errors
    /// A configuration that cannot be used. The world's constructor cannot fail, so
    /// the SDK keeps the error and returns it from the first `feed`.
    fn open(replica: &str, config: Self::Config) -> Result<Self::Session, Error>;
}

/// Parser state of one replica's log, fed in order.
pub trait LogSession: 'static {
    /// Reads the next whole lines (joined by `\n`, without a last one, at most 4096)
    /// and returns the boundaries they mark. `line` in a boundary counts physical lines
    /// from 0 over the whole session; a carriage return ends no line.
    ///
    /// # Errors
    /// Only what makes the whole log unreadable; an unmatched line is no error.
    fn feed(&mut self, text: &str) -> Result<Vec<Boundary>, Error>;

    /// Boundaries that only the end of the log decides.
    ///
    /// # Errors
    /// As [`LogSession::feed`].
    fn finish(&mut self) -> Result<Vec<Boundary>, Error> {
        Ok(Vec::new())
    }
}

/// A boundary with nothing but its place and key.
#[must_use]
pub fn boundary(line: u64, key: &str) -> Boundary {
    Boundary {
        line,
        key: key.to_owned(),
        process: None,
        stamp: None,
        measures: Vec::new(),
        fields: Vec::new(),
    }
}

/// One row of [`MatcherDescription::boundaries`].
#[must_use]
pub fn boundary_info(key: &str, meaning: &str, per_rank: bool) -> BoundaryInfo {
    BoundaryInfo {
        key: key.to_owned(),
        meaning: meaning.to_owned(),
        per_rank,
    }
}

/// Binds a [`LogMatcher`] to the generated export; [`crate::register!`] uses it.
#[doc(hidden)]
pub struct Component<T, I>(PhantomData<(T, I)>);

impl<T: LogMatcher, I: Identity + 'static> exported::Guest for Component<T, I> {
    type Session = SessionComponent<T>;

    fn describe() -> MatcherInfo {
        panic::report_to_host();
        let about = T::describe();
        MatcherInfo {
            plugin: crate::identity::plugin_info::<I, T::Config>(about.summary),
            product: about.product,
            versions: about.versions,
            boundaries: about.boundaries,
        }
    }

    fn probe(head: String) -> ProbeResult {
        panic::report_to_host();
        T::probe(&head)
    }
}

/// Binds a [`LogSession`] to the generated resource.
#[doc(hidden)]
pub struct SessionComponent<T: LogMatcher>(RefCell<Result<T::Session, Error>>);

impl<T: LogMatcher> exported::GuestSession for SessionComponent<T> {
    fn new(replica: String, config: String) -> Self {
        panic::report_to_host();
        let opened = config::parse::<T::Config>(&config).and_then(|c| T::open(&replica, c));
        SessionComponent(RefCell::new(opened))
    }

    fn feed(&self, text: String) -> Result<Vec<Boundary>, Error> {
        match &mut *self.0.borrow_mut() {
            Ok(session) => session.feed(&text),
            Err(error) => Err(error.clone()),
        }
    }

    fn finish(&self) -> Result<Vec<Boundary>, Error> {
        match &mut *self.0.borrow_mut() {
            Ok(session) => session.finish(),
            Err(error) => Err(error.clone()),
        }
    }
}
