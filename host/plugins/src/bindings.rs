//! Code that the engine's binding generator makes of `wit/`. Private: the adapters
//! turn its types into plain ones.

#![allow(missing_docs, clippy::all)]

pub(crate) mod fault {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "fault-variant",
        imports: { default: trappable },
    });
}

pub(crate) mod matcher {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "log-matcher",
        imports: { default: trappable },
        with: {
            "blackstart:plugin/types@0.1.0": super::fault::blackstart::plugin::types,
            "blackstart:plugin/log@0.1.0": super::fault::blackstart::plugin::log,
        },
    });
}

pub(crate) mod gate {
    wasmtime::component::bindgen!({
        path: "../../wit",
        world: "validity-gate",
        imports: { default: trappable },
        with: {
            "blackstart:plugin/types@0.1.0": super::fault::blackstart::plugin::types,
            "blackstart:plugin/log@0.1.0": super::fault::blackstart::plugin::log,
        },
    });
}

pub(crate) use fault::blackstart::plugin::{log, types};
