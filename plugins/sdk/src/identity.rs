//! Who a plugin is: name and version of its package, said in two places that must
//! agree (the custom section, readable before compiling, and `describe`).

use crate::bindings::fault::blackstart::plugin::types::PluginInfo;
use crate::config::{self, PluginConfig};

/// Version of the interfaces in `wit/` that this SDK speaks.
pub const API_VERSION: &str = "0.1.0";

/// Name of the custom section that carries the stamp.
pub const STAMP_SECTION: &str = "blackstart-plugin";

/// Package name and version of a guest crate; [`crate::register!`] makes a type that has them.
pub trait Identity {
    /// `CARGO_PKG_NAME` of the guest crate.
    const NAME: &'static str;
    /// `CARGO_PKG_VERSION` of the guest crate.
    const VERSION: &'static str;
}

/// The `plugin-info` of a guest.
pub(crate) fn plugin_info<T: Identity, C: PluginConfig>(summary: String) -> PluginInfo {
    PluginInfo {
        name: T::NAME.to_owned(),
        version: T::VERSION.to_owned(),
        summary,
        config_schema: config::schema::<C>(),
    }
}

/// The stamp of the crate in which it expands, as JSON text.
#[doc(hidden)]
#[macro_export]
macro_rules! __stamp {
    ($world:literal) => {
        ::core::concat!(
            "{\"name\":\"",
            ::core::env!("CARGO_PKG_NAME"),
            "\",\"version\":\"",
            ::core::env!("CARGO_PKG_VERSION"),
            "\",\"api\":\"0.1.0\",\"world\":\"",
            $world,
            "\"}"
        )
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stamp_speaks_of_the_interfaces_that_are_bound() {
        let stamp: serde_json::Value =
            serde_json::from_str(crate::__stamp!("validity-gate")).expect("the stamp is JSON");
        assert_eq!(stamp["name"], "blackstart-sdk");
        assert_eq!(stamp["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(stamp["api"], API_VERSION);
        assert_eq!(stamp["world"], "validity-gate");
        let package = include_str!("../../../wit/types.wit");
        assert!(
            package.contains(&format!("package blackstart:plugin@{API_VERSION};")),
            "API_VERSION must be the version in wit/types.wit"
        );
    }
}
