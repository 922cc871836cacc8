//! Write a Blackstart plugin.
//!
//! A plugin decides, the host acts. Implement the trait of one world and register it:
//!
//! | world | trait | decides |
//! | --- | --- | --- |
//! | `fault-variant` | [`fault::FaultVariant`] | what is done to whom and when, and what proves it |
//! | `log-matcher` | [`matcher::LogMatcher`] | which log line marks which boundary |
//! | `validity-gate` | [`gate::ValidityGate`] | whether a run may count |
//!
//! The traits are plain Rust: what the host offers arrives as an argument
//! ([`fault::FaultHost`], [`gate::Evidence`]), so `cargo test` runs a plugin's logic
//! natively with the doubles in [`testing`]. Only [`register!`] knows WebAssembly.
//!
//! Rules that the SDK keeps for you: the configuration table is parsed and checked
//! before your code sees it ([`config`]), a panic's text reaches the host's log before
//! the trap, and the component carries the identity stamp ([`identity`]).

// The generated code and `register!` name this crate from the outside.
extern crate self as blackstart_sdk;

pub mod bindings;
pub mod config;
pub mod fault;
pub mod gate;
pub mod identity;
pub mod log;
pub mod matcher;
mod panic;
#[cfg(not(target_arch = "wasm32"))]
pub mod testing;

pub use bindings::fault::blackstart::plugin::types::{
    ConfigError, Error, Field, Measure, ReplicaId, RunNs, Window,
};
pub use config::{NoConfig, PluginConfig, Problems};
#[doc(hidden)]
pub use wit_bindgen;
pub use {schemars, serde, serde_json};

/// Makes a type the plugin of this crate. Once in a crate, which is a `cdylib`.
///
/// ```ignore
/// blackstart_sdk::register!(fault: MyFault);
/// blackstart_sdk::register!(matcher: MyMatcher);
/// blackstart_sdk::register!(gate: MyGate);
/// ```
#[macro_export]
macro_rules! register {
    (fault: $plugin:ty) => {
        $crate::__register!($plugin, fault, "fault-variant", __export_fault_variant_impl);
    };
    (matcher: $plugin:ty) => {
        $crate::__register!($plugin, matcher, "log-matcher", __export_log_matcher_impl);
    };
    (gate: $plugin:ty) => {
        $crate::__register!($plugin, gate, "validity-gate", __export_validity_gate_impl);
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! __register {
    ($plugin:ty, $world:ident, $world_name:literal, $export:ident) => {
        // A plugin that is none is found natively, too.
        const _: ::core::marker::PhantomData<$plugin> = ::core::marker::PhantomData;

        #[cfg(target_arch = "wasm32")]
        const _: () = {
            // A type of its own: the plugin may come from another crate.
            struct Package;

            impl $crate::identity::Identity for Package {
                const NAME: &'static str = ::core::env!("CARGO_PKG_NAME");
                const VERSION: &'static str = ::core::env!("CARGO_PKG_VERSION");
            }

            type Registered = $crate::$world::Component<$plugin, Package>;
    $crate::$export!(Registered with_types_in $crate::bindings::$world);

            const STAMP: &str = $crate::__stamp!($world_name);
            #[unsafe(link_section = "blackstart-plugin")]
            pub static BLACKSTART_PLUGIN: [u8; STAMP.len()] = {
                let text = STAMP.as_bytes();
                let mut bytes = [0; STAMP.len()];
                let mut i = 0;
                while i < bytes.len() {
                    bytes[i] = text[i];
                    i += 1;
                }
                bytes
            };
        };
    };
}

/// One text value with its key.
#[must_use]
pub fn field(key: &str, value: &str) -> Field {
    Field {
        key: key.to_owned(),
        value: value.to_owned(),
    }
}

/// One figure; `unit` is a UCUM code (`ms`, `%`, `1`).
#[must_use]
pub fn measure(name: &str, value: f64, unit: &str) -> Measure {
    Measure {
        name: name.to_owned(),
        value,
        unit: unit.to_owned(),
    }
}
