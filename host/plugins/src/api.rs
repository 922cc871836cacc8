//! Names and versions of the plugin interfaces in `wit/`: which worlds exist, what
//! each may import, and which of those imports the configuration must grant.

use std::fmt;

use semver::Version;

/// Version of the interfaces this host speaks; the package version in `wit/`.
pub const HOST_API: Version = Version::new(0, 1, 0);

/// WIT package that holds every interface.
pub const PACKAGE: &str = "blackstart:plugin";

/// Custom section that carries a plugin's identity stamp.
pub const STAMP_SECTION: &str = "blackstart-plugin";

/// True when a guest built against `api` can be linked by this host: within a
/// `0.minor` line only host-side interfaces and functions are ever added.
pub fn compatible(api: &Version) -> bool {
    api.pre.is_empty() && api.major == HOST_API.major && api.minor == HOST_API.minor
}

/// What kind of plugin a component is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum World {
    /// Decides what to do to whom and when (`wit/fault.wit`).
    FaultVariant,
    /// Finds boundaries of a server's life in its log (`wit/matcher.wit`).
    LogMatcher,
    /// Judges the evidence of a run (`wit/gate.wit`).
    ValidityGate,
}

impl World {
    /// Every world, in the order of the documentation.
    pub const ALL: [World; 3] = [World::FaultVariant, World::LogMatcher, World::ValidityGate];

    /// Name of the world in `wit/`.
    pub fn name(self) -> &'static str {
        match self {
            World::FaultVariant => "fault-variant",
            World::LogMatcher => "log-matcher",
            World::ValidityGate => "validity-gate",
        }
    }

    /// The interface that a component of this world exports.
    pub fn export(self) -> &'static str {
        match self {
            World::FaultVariant => "fault",
            World::LogMatcher => "matcher",
            World::ValidityGate => "gate",
        }
    }

    /// The world of this name, if there is one.
    pub fn from_name(name: &str) -> Option<World> {
        World::ALL.into_iter().find(|w| w.name() == name)
    }

    /// The world whose exported interface has this name, if there is one.
    pub fn from_export(interface: &str) -> Option<World> {
        World::ALL.into_iter().find(|w| w.export() == interface)
    }

    /// Interfaces that a component of this world may import.
    pub fn imports(self) -> &'static [&'static str] {
        match self {
            World::FaultVariant => &[
                "types",
                "log",
                "clock",
                "targets",
                "conditions",
                EFFECT_PROCESS,
                EFFECT_CONTAINER,
                EFFECT_NETWORK,
                EFFECT_RESOURCES,
                EFFECT_HTTP,
            ],
            World::LogMatcher => &["types", "log"],
            World::ValidityGate => &["types", "log", "evidence"],
        }
    }
}

impl fmt::Display for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Interface behind the `process` grant.
pub const EFFECT_PROCESS: &str = "effect-process";
/// Interface behind the `container` grant.
pub const EFFECT_CONTAINER: &str = "effect-container";
/// Interface behind the `network` grant.
pub const EFFECT_NETWORK: &str = "effect-network";
/// Interface behind the `resources` grant.
pub const EFFECT_RESOURCES: &str = "effect-resources";
/// Interface behind the `http` grant.
pub const EFFECT_HTTP: &str = "effect-http";

/// True when some world of this host has the interface.
pub fn is_known_import(interface: &str) -> bool {
    World::ALL.iter().any(|w| w.imports().contains(&interface))
}

/// An interface name as a component spells it: `blackstart:plugin/log@0.1.0`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InterfaceName<'a> {
    pub interface: &'a str,
    pub version: Version,
}

/// Takes a full interface name of our package apart; `None` when it is another
/// package's or not such a name at all.
pub(crate) fn parse_interface(full: &str) -> Option<InterfaceName<'_>> {
    let rest = full.strip_prefix(PACKAGE)?.strip_prefix('/')?;
    let (interface, version) = rest.split_once('@')?;
    Some(InterfaceName {
        interface,
        version: Version::parse(version).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_version_is_the_version_in_wit() {
        let wit = include_str!("../../../wit/types.wit");
        assert!(wit.starts_with(&format!("package {PACKAGE}@{HOST_API};")));
    }

    #[test]
    fn a_minor_line_is_compatible_within_itself() {
        assert!(compatible(&Version::new(0, 1, 0)));
        assert!(compatible(&Version::new(0, 1, 9)));
        assert!(!compatible(&Version::new(0, 2, 0)));
        assert!(!compatible(&Version::new(1, 1, 0)));
        assert!(!compatible(&Version::parse("0.1.1-rc.1").unwrap()));
    }

    #[test]
    fn interface_names_are_taken_apart() {
        let name = parse_interface("blackstart:plugin/log@0.1.3").unwrap();
        assert_eq!(name.interface, "log");
        assert_eq!(name.version, Version::new(0, 1, 3));
        for other in [
            "wasi:io/streams@0.2.0",
            "blackstart:plugin/log",
            "log",
            "",
            "blackstart:plugin@0.1.0",
        ] {
            assert_eq!(parse_interface(other), None, "{other}");
        }
    }

    #[test]
    fn worlds_have_names_and_exports() {
        for world in World::ALL {
            assert_eq!(World::from_name(world.name()), Some(world));
            assert_eq!(World::from_export(world.export()), Some(world));
        }
        assert!(is_known_import("evidence"));
        assert!(!is_known_import("effect-kubernetes"));
    }
}
