//! Everything that can go wrong with a plugin, each with one clear line and a mend.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use semver::Version;

use crate::api::{EFFECT_HTTP, HOST_API, World};
use crate::types::{Call, GuestError, Label};

/// An error of the plugin host.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PluginError {
    /// A component was not accepted; none of its code has run, except for
    /// [`Refusal::LyingManifest`] and [`Refusal::BadDescription`].
    #[error("{origin}: {reason}")]
    Refused {
        /// Where the component came from: a path, or `bundled:FILE`.
        origin: String,
        /// Why it was refused.
        reason: Box<Refusal>,
    },
    /// The plugin was stopped and its instance thrown away. Further calls on the
    /// same instance return this error again.
    #[error(transparent)]
    Quarantined(Arc<Quarantine>),
    /// The plugin itself answered with an error; it can be called again.
    #[error("{plugin}: {call}: {error}")]
    Guest {
        /// Who.
        plugin: Label,
        /// Asked what.
        call: Call,
        /// What it answered.
        error: GuestError,
    },
    /// Two plugins claim one name.
    #[error("two plugins are named `{name}`: {first} and {second}")]
    Duplicate {
        /// The name.
        name: String,
        /// Origin of the one found first.
        first: String,
        /// Origin of the other.
        second: String,
    },
    /// No plugin has this name.
    #[error("no plugin is named `{name}`{}", unreadable(.broken))]
    NotFound {
        /// The name looked for.
        name: String,
        /// Names of that world that exist, sorted.
        known: Vec<String>,
        /// Files that could not be read as plugins, each with its reason.
        broken: Vec<String>,
    },
    /// A plugin folder could not be listed.
    #[error("plugin folder {}: {detail}", .path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        detail: String,
    },
    /// A pattern of a grant is not usable.
    #[error("[fault.grant] {key} = [\"{pattern}\"]: {reason}")]
    BadGrant {
        /// `process` or `http`.
        key: &'static str,
        /// The pattern.
        pattern: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The configuration schema a plugin declares cannot be used.
    #[error("{plugin}: its config-schema is not usable: {reason}")]
    BadSchema {
        /// Who.
        plugin: Label,
        /// What is wrong with it.
        reason: String,
    },
    /// The WebAssembly engine could not be set up on this machine.
    #[error("the WebAssembly engine could not be set up: {0}")]
    Engine(String),
}

impl PluginError {
    /// How to mend it, in one or a few short sentences.
    pub fn help(&self) -> String {
        match self {
            PluginError::Refused { reason, .. } => reason.help(),
            PluginError::Quarantined(q) => q.stopped.help(),
            PluginError::Guest { error, .. } => match error {
                GuestError::InvalidConfig(mistakes) => mistakes
                    .iter()
                    .find_map(|m| m.help.clone())
                    .unwrap_or_else(|| "correct the plugin's table in the campaign file".into()),
                GuestError::Denied(_) => {
                    "widen the grant in [fault.grant], or correct the plugin's table".into()
                }
                _ => "see the plugin's documentation".into(),
            },
            PluginError::Duplicate { name, .. } => {
                format!("remove one of them, or rename one in its Cargo.toml; `{name}` must be unique")
            }
            PluginError::NotFound { known, .. } if known.is_empty() => {
                "no plugins are bundled: run `cargo xtask plugins` and build again, or give --plugin-dir".into()
            }
            PluginError::NotFound { known, .. } => format!("known: {}", known.join(", ")),
            PluginError::Folder { .. } => "check the path given with --plugin-dir".into(),
            PluginError::BadGrant { key, .. } if *key == "http" => {
                "write scheme, host, port and a path, `*` in the path only: http = [\"http://127.0.0.1:9000/admin/*\"]".into()
            }
            PluginError::BadGrant { .. } => {
                "write replica names, `*` for any run of characters: process = [\"vllm-*\"]".into()
            }
            PluginError::BadSchema { .. } => "report this to the plugin's author".into(),
            PluginError::Engine(_) => {
                "allow this user executable memory and threads (see `ulimit -a` and the system's security policy)".into()
            }
        }
    }

    /// True when the instance was thrown away because of this.
    pub fn is_quarantine(&self) -> bool {
        matches!(self, PluginError::Quarantined(_))
    }

    /// True when this machine lacked the memory, address space, threads or files that the plugin needs:
    /// then nothing is known about plugin or evidence.
    pub fn is_shortage(&self) -> bool {
        match self {
            PluginError::Quarantined(q) => matches!(q.stopped, Stopped::HostShortage(_)),
            PluginError::Engine(_) => true,
            _ => false,
        }
    }

    pub(crate) fn refused(origin: &str, reason: Refusal) -> PluginError {
        PluginError::Refused {
            origin: origin.to_owned(),
            reason: Box::new(reason),
        }
    }
}

fn unreadable(broken: &[String]) -> String {
    match broken {
        [] => String::new(),
        [one] => format!("; one file could not be read as a plugin: {one}"),
        [first, rest @ ..] => format!(
            "; {} files could not be read as plugins, the first: {first}",
            rest.len() + 1
        ),
    }
}

/// An instance that was stopped: who, doing what, and why.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{plugin} was stopped in {call}: {stopped}")]
pub struct Quarantine {
    /// Who.
    pub plugin: Label,
    /// In which call.
    pub call: Call,
    /// Why.
    pub stopped: Stopped,
}

/// Why an instance was stopped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Stopped {
    /// It used more time than the call may.
    #[error("it did not return within its {} ms", .budget.as_millis())]
    Deadline {
        /// Processor time the call may use.
        budget: Duration,
    },
    /// It asked for more memory than an instance may have.
    #[error("it asked for more than {} MiB of memory", .limit_bytes >> 20)]
    Memory {
        /// Most bytes of linear memory an instance may have.
        limit_bytes: usize,
    },
    /// It asked for more table elements, or for more memories, tables or instances
    /// than a component may have.
    #[error("it asked for more {what} than an instance may have ({limit})")]
    Count {
        /// Of what.
        what: &'static str,
        /// Most there may be.
        limit: usize,
    },
    /// Its call stack ran out.
    #[error("its call stack overflowed")]
    StackOverflow,
    /// It panicked, and said so through the log import.
    #[error("it panicked: {0}")]
    Panic(String),
    /// It trapped.
    #[error("it trapped: {0}")]
    Trap(String),
    /// This machine had no memory, address space, thread or open file left for it: no fault of the
    /// plugin.
    #[error("this machine has no room left for it: {0}")]
    HostShortage(String),
    /// It handed over more data than the host takes in one call.
    #[error("{what} is larger than the host takes ({limit})")]
    TooLarge {
        /// What was too large.
        what: String,
        /// The bound, with its unit.
        limit: String,
    },
    /// It answered something that cannot be.
    #[error("its answer cannot be right: {0}")]
    BadAnswer(String),
    /// It called a host function in a way that the contract rules out.
    #[error("it misused a host function: {0}")]
    Misuse(String),
}

impl Stopped {
    fn help(&self) -> String {
        match self {
            Stopped::Deadline { .. } => {
                "a plugin must not wait or loop: it says when, the host does it".into()
            }
            Stopped::Memory { .. } | Stopped::Count { .. } => {
                "the plugin keeps too much; report this to its author".into()
            }
            Stopped::HostShortage(_) => {
                "free memory, or raise the limits on address space and open files (`ulimit -v`, `ulimit -n`): each plugin reserves a few GiB of addresses, and uses a few MiB of memory and a few open files".into()
            }
            Stopped::TooLarge { .. } => "the plugin must answer in smaller pieces".into(),
            _ => {
                "this is a fault of the plugin; report it to its author with the line above".into()
            }
        }
    }
}

/// Why a component was not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
    /// Larger than [`crate::limits::MAX_ARTIFACT_BYTES`].
    #[error("{bytes} bytes are more than a plugin may have ({max})")]
    TooLarge {
        /// Its size.
        bytes: u64,
        /// The bound.
        max: u64,
    },
    /// More in it to compile than a bound of [`crate::limits`] allows.
    #[error("it has {found} {what}; a plugin may have at most {limit}")]
    Outsized {
        /// Of what.
        what: &'static str,
        /// How many, as far as was counted.
        found: u64,
        /// The bound.
        limit: u64,
    },
    /// No WebAssembly at all.
    #[error("this is not WebAssembly")]
    NotWasm,
    /// A core module, not a component.
    #[error("this is a core WebAssembly module, not a component")]
    CoreModule,
    /// WebAssembly that cannot be parsed.
    #[error("this component is damaged: {0}")]
    Malformed(String),
    /// No identity stamp.
    #[error("it has no identity stamp (custom section `blackstart-plugin`)")]
    NoStamp,
    /// An identity stamp that says nothing usable.
    #[error("its identity stamp is not valid: {0}")]
    BadStamp(String),
    /// Built for an interface version this host does not have.
    #[error("{plugin} needs plugin API {api}; this host has {HOST_API}")]
    NewerApi {
        /// Who.
        plugin: Label,
        /// What it was built for.
        api: Version,
    },
    /// Built for an interface version this host has no more.
    #[error("{plugin} was built for plugin API {api}; this host has {HOST_API}")]
    OlderApi {
        /// Who.
        plugin: Label,
        /// What it was built for.
        api: Version,
    },
    /// Exports no interface of a world, or several.
    #[error(
        "{plugin} exports {found}; a plugin exports exactly one of `fault`, `matcher` and `gate`"
    )]
    NoWorld {
        /// Who.
        plugin: Label,
        /// What it exports.
        found: String,
    },
    /// Stamp and exports disagree about the world.
    #[error("{plugin} is stamped {stamp} but exports the interface of {exports}")]
    WorldMismatch {
        /// Who.
        plugin: Label,
        /// What the stamp says.
        stamp: World,
        /// What the component is.
        exports: World,
    },
    /// A good plugin in the wrong place.
    #[error("{plugin} is a {found}; a {expected} is needed here")]
    WrongWorld {
        /// Who.
        plugin: Label,
        /// What is needed.
        expected: World,
        /// What it is.
        found: World,
    },
    /// Imports something no host of this API has.
    #[error("{plugin} imports `{import}`, which this host does not have")]
    UnknownImport {
        /// Who.
        plugin: Label,
        /// The import.
        import: String,
    },
    /// Imports an interface that plugins of its world never get.
    #[error("{plugin} imports `{import}`, which a {world} never gets")]
    NotInWorld {
        /// Who.
        plugin: Label,
        /// The import.
        import: String,
        /// Its world.
        world: World,
    },
    /// Imports an interface that the configuration did not grant.
    #[error("{plugin} imports `{interface}`, which the configuration does not grant")]
    NotGranted {
        /// Who.
        plugin: Label,
        /// The interface.
        interface: &'static str,
    },
    /// The engine did not compile it.
    #[error("{plugin} does not compile: {detail}")]
    Compile {
        /// Who.
        plugin: Label,
        /// What the compiler said.
        detail: String,
    },
    /// Its imports or exports have other types than the contract.
    #[error("{plugin} does not fit the interfaces in wit/: {detail}")]
    Link {
        /// Who.
        plugin: Label,
        /// What does not fit.
        detail: String,
    },
    /// `describe` contradicts the stamp.
    #[error("{plugin} calls itself {described} in `describe`")]
    LyingManifest {
        /// Who, by its stamp.
        plugin: Label,
        /// What it calls itself.
        described: String,
    },
    /// `describe` answered something that cannot be used.
    #[error("{plugin}: `describe` cannot be used: {detail}")]
    BadDescription {
        /// Who.
        plugin: Label,
        /// Why.
        detail: String,
    },
    /// The digest differs from the pinned one.
    #[error("its SHA-256 is {found}, but {expected} is pinned")]
    PinMismatch {
        /// The pinned digest, in hexadecimal.
        expected: String,
        /// The digest of the file, in hexadecimal.
        found: String,
    },
}

impl Refusal {
    fn help(&self) -> String {
        match self {
            Refusal::Unreadable(_) => "check the path and its permissions".into(),
            Refusal::TooLarge { .. } => "build the plugin in the release profile, stripped".into(),
            Refusal::Outsized { .. } => {
                "it was not compiled, since that could take minutes and gigabytes: do not use it if you do not know whose it is; build the plugin in the release profile, or split it".into()
            }
            Refusal::NotWasm | Refusal::Malformed(_) => {
                "build it again with `cargo xtask plugins --crate DIR --out FILE.wasm`".into()
            }
            Refusal::CoreModule => {
                "build it with `cargo xtask plugins --crate DIR --out FILE.wasm`, which makes a component of the module".into()
            }
            Refusal::NoStamp | Refusal::BadStamp(_) => {
                "register the plugin with the SDK's `register!` macro, which writes the stamp".into()
            }
            Refusal::NewerApi { api, .. } => {
                format!("use a newer blackstart, or build the plugin for API {HOST_API} instead of {api}")
            }
            Refusal::OlderApi { .. } => {
                format!("build the plugin again with an SDK for API {HOST_API}")
            }
            Refusal::NoWorld { .. } | Refusal::WorldMismatch { .. } => {
                "register exactly one plugin a crate with the SDK's `register!` macro".into()
            }
            Refusal::WrongWorld { expected, .. } => format!("name a {expected} here"),
            Refusal::UnknownImport { import, .. } if import.starts_with("wasi:") => {
                "build it for wasm32-unknown-unknown (`cargo xtask plugins --crate` does), which imports no WASI".into()
            }
            Refusal::UnknownImport { .. } => {
                "use a newer blackstart, or build the plugin without that import".into()
            }
            Refusal::NotInWorld { world, .. } => format!(
                "a {world} may import {}",
                world.imports().join(", ")
            ),
            Refusal::NotGranted { interface, .. } => {
                let line = match interface.strip_prefix("effect-") {
                    Some(key) if *interface != EFFECT_HTTP => format!("{key} = [\"vllm-0\"]"),
                    _ => "http = [\"http://127.0.0.1:9000/admin/*\"]".to_owned(),
                };
                format!("to grant it, add to the campaign file: [fault.grant] {line}")
            }
            Refusal::Compile { .. } | Refusal::Link { .. } | Refusal::BadDescription { .. } => {
                "build the plugin again with the SDK of this release; if it stays, report it to its author".into()
            }
            Refusal::LyingManifest { .. } => {
                "do not use this plugin: its stamp and its code name different plugins".into()
            }
            Refusal::PinMismatch { .. } => {
                "use the file that was pinned, or pin this one after you have looked at it".into()
            }
        }
    }
}
