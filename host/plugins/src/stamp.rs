//! The identity stamp: name, version, API version and world of a plugin, in a custom
//! section that can be read before anything is compiled.

use semver::Version;
use serde::Deserialize;

use crate::api::World;
use crate::types::Label;

/// Longest stamp, in bytes.
pub(crate) const MAX_STAMP_BYTES: usize = 4 << 10;
/// Longest plugin name, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// A valid identity stamp.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp {
    /// Name and package version.
    pub label: Label,
    /// Plugin API it was built for.
    pub api: Version,
    /// World it says it implements.
    pub world: World,
}

/// As written; keys that a later release adds are passed over.
#[derive(Deserialize)]
struct Written {
    name: String,
    version: String,
    api: String,
    world: String,
}

impl Stamp {
    /// Reads the custom section's contents. `Err` says what is wrong with it.
    pub(crate) fn parse(section: &[u8]) -> Result<Stamp, String> {
        if section.len() > MAX_STAMP_BYTES {
            return Err(format!("longer than {MAX_STAMP_BYTES} bytes"));
        }
        let written: Written =
            serde_json::from_slice(section).map_err(|e| crate::text::shown(&e.to_string(), 200))?;
        if !valid_name(&written.name) {
            return Err(format!(
                "`{}` is not a plugin name (lower-case letters, digits and `-`, at most {MAX_NAME_BYTES})",
                crate::text::shown(&written.name, MAX_NAME_BYTES)
            ));
        }
        let version = version("version", &written.version)?;
        let api = self::version("api", &written.api)?;
        let world = World::from_name(&written.world).ok_or_else(|| {
            format!(
                "`{}` is not a world; worlds are fault-variant, log-matcher and validity-gate",
                crate::text::shown(&written.world, MAX_NAME_BYTES)
            )
        })?;
        Ok(Stamp {
            label: Label {
                name: written.name,
                version: version.to_string(),
            },
            api,
            world,
        })
    }
}

fn valid_name(name: &str) -> bool {
    name.len() <= MAX_NAME_BYTES
        && name.starts_with(|c: char| c.is_ascii_lowercase())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' || b == b'_')
}

fn version(key: &str, text: &str) -> Result<Version, String> {
    Version::parse(text).map_err(|e| {
        format!(
            "{key} `{}` is not a semantic version: {e}",
            crate::text::shown(text, MAX_NAME_BYTES)
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_stamp_is_read_and_unknown_keys_are_passed_over() {
        let stamp = Stamp::parse(
            br#"{"name":"process-kill","version":"0.1.0","api":"0.1.3","world":"fault-variant","sdk":"x"}"#,
        )
        .unwrap();
        assert_eq!(stamp.label.to_string(), "plugin process-kill 0.1.0");
        assert_eq!(stamp.api, Version::new(0, 1, 3));
        assert_eq!(stamp.world, World::FaultVariant);
    }

    #[test]
    fn bad_stamps_say_what_is_wrong() {
        for (text, says) in [
            ("", "EOF"),
            ("[]", "invalid"),
            (r#"{"name":"a","version":"0.1.0","api":"0.1.0"}"#, "world"),
            (
                r#"{"name":"A\u001b[2J","version":"0.1.0","api":"0.1.0","world":"log-matcher"}"#,
                "not a plugin name",
            ),
            (
                r#"{"name":"","version":"0.1.0","api":"0.1.0","world":"log-matcher"}"#,
                "not a plugin name",
            ),
            (
                r#"{"name":"a","version":"1","api":"0.1.0","world":"log-matcher"}"#,
                "version `1`",
            ),
            (
                r#"{"name":"a","version":"0.1.0","api":"x","world":"log-matcher"}"#,
                "api `x`",
            ),
            (
                r#"{"name":"a","version":"0.1.0","api":"0.1.0","world":"w"}"#,
                "`w` is not a world",
            ),
        ] {
            let error = Stamp::parse(text.as_bytes()).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
            assert!(!error.contains('\u{1b}'));
        }
        assert!(Stamp::parse(&vec![b' '; MAX_STAMP_BYTES + 1]).is_err());
    }
}
