//! The plugin host: artifacts, grants, limits, and one adapter per world.
//!
//! A plugin is a WebAssembly component that implements one world of `wit/`. The path
//! from a file to a call:
//!
//! 1. [`Registry`] finds files; [`Artifact`] reads digest, identity stamp, world and
//!    imports off the bytes, and refuses what cannot be a plugin before any of it is
//!    compiled.
//! 2. [`Engine`] compiles, or takes compiled code from memory or a trusted [`Cache`].
//! 3. A template ([`FaultTemplate`], [`MatcherTemplate`], [`GateTemplate`]) links the
//!    component against what its world and [`Grants`] give it, and nothing else.
//! 4. An instance ([`FaultPlugin`], [`MatcherPlugin`], [`GatePlugin`]) is called with
//!    plain types of this crate.
//!
//! Invariants: guest code never runs without a deadline and a memory bound; nothing
//! a guest says is taken without a bound on its size, and no text of a guest reaches
//! people with control characters in it; a guest that is stopped loses its instance
//! and nothing else; every error names the plugin, its version and the call.

mod api;
mod artifact;
mod bindings;
mod bundled;
mod cache;
mod census;
mod engine;
mod error;
mod fault;
mod gate;
mod glob;
mod grants;
mod host;
mod instance;
pub mod limits;
mod manifest;
mod matcher;
mod mistake;
mod registry;
mod schema;
mod shortage;
mod stamp;
pub mod text;
mod ticker;
mod types;
mod url;

pub use api::{EFFECT_HTTP, EFFECT_PROCESS, HOST_API, STAMP_SECTION, World};
pub use artifact::Artifact;
pub use bundled::{Bundled, bundled};
pub use cache::{Cache, default_folder as default_cache_folder};
pub use engine::{Engine, EngineBuilder};
pub use error::{PluginError, Quarantine, Refusal, Stopped};
pub use fault::{
    ArmContext, Armed, Condition, ContainerOperation, EffectAction, EffectError, EffectEvent,
    EffectRequest, Ending, Fact, FaultHost, FaultInfo, FaultPlugin, FaultTemplate, HttpRequest,
    Limit, MAX_BODY_BYTES, MAX_EFFECTS, MAX_HEADERS, NetworkRule, Proof, Signal, TargetReplica,
};
pub use gate::{
    Evidence, FaultRecord, Finding, GateInfo, GatePlugin, GateTemplate, LoggedEvent, MAX_PAGE,
    MAX_SERIES_POINTS, Outcome, Point, RequestRecord, Severity, Verdict, Window,
};
pub use grants::{Grants, REPLICA_GRANTS, ReplicaGrant};
pub use instance::{LogLevel, LogLine};
pub use limits::Limits;
pub use matcher::{
    Boundary, BoundaryInfo, LineBatch, MAX_BATCH_BYTES, MAX_BATCH_LINES, MAX_BOUNDARIES,
    MAX_LINE_BYTES, MAX_SESSIONS, MatcherInfo, MatcherPlugin, MatcherTemplate, ProbeResult,
    Session, decode_line,
};
pub use registry::Registry;
pub use schema::{MAX_MISTAKES, check_config};
pub use stamp::Stamp;
pub use types::{Call, ConfigMistake, Field, GuestError, Label, Measure, PluginInfo};
