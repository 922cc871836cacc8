//! What `wit-bindgen` generates from `wit/`, one module a world.
//!
//! The first world owns the shared interfaces; the others map them to it, so that
//! `Error` or `Measure` is one type everywhere. `pub_export_macro` makes the metadata
//! emitted *here* speak of imports only: the exports of a world are emitted where
//! [`crate::register!`] is used. Without that, every guest would be told to export
//! all three worlds.
#![allow(missing_docs, clippy::all)]

/// World `fault-variant`.
pub mod fault {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "fault-variant",
        generate_all,
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_fault_variant",
        default_bindings_module: "blackstart_sdk::bindings::fault",
        runtime_path: "::blackstart_sdk::wit_bindgen::rt",
    });
}

/// World `log-matcher`.
pub mod matcher {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "log-matcher",
        with: {
            "blackstart:plugin/types@0.1.0": crate::bindings::fault::blackstart::plugin::types,
            "blackstart:plugin/log@0.1.0": crate::bindings::fault::blackstart::plugin::log,
            "blackstart:plugin/matcher@0.1.0": generate,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_log_matcher",
        default_bindings_module: "blackstart_sdk::bindings::matcher",
        runtime_path: "::blackstart_sdk::wit_bindgen::rt",
    });
}

/// World `validity-gate`.
pub mod gate {
    wit_bindgen::generate!({
        path: "../../wit",
        world: "validity-gate",
        with: {
            "blackstart:plugin/types@0.1.0": crate::bindings::fault::blackstart::plugin::types,
            "blackstart:plugin/log@0.1.0": crate::bindings::fault::blackstart::plugin::log,
            "blackstart:plugin/evidence@0.1.0": generate,
            "blackstart:plugin/gate@0.1.0": generate,
        },
        additional_derives: [PartialEq],
        pub_export_macro: true,
        export_macro_name: "export_validity_gate",
        default_bindings_module: "blackstart_sdk::bindings::gate",
        runtime_path: "::blackstart_sdk::wit_bindgen::rt",
    });
}
