//! The plugin's own configuration table: a `serde` type with a JSON Schema.
//!
//! ```
//! use blackstart_sdk::{PluginConfig, Problems};
//! use blackstart_sdk::schemars::JsonSchema;
//! use blackstart_sdk::serde::Deserialize;
//!
//! /// How to disturb the server.
//! #[derive(Deserialize, JsonSchema)]
//! #[serde(crate = "blackstart_sdk::serde", deny_unknown_fields, default)]
//! #[schemars(crate = "blackstart_sdk::schemars")]
//! struct Config {
//!     /// How long, in milliseconds.
//!     duration_ms: u64,
//! }
//!
//! impl Default for Config {
//!     fn default() -> Self {
//!         Config { duration_ms: 5_000 }
//!     }
//! }
//!
//! impl PluginConfig for Config {
//!     fn check(&self, problems: &mut Problems) {
//!         if self.duration_ms == 0 {
//!             problems.add("duration_ms", "0 would do nothing", "use at least 1");
//!         }
//!     }
//! }
//!
//! assert!(blackstart_sdk::config::parse::<Config>(r#"{"duration_ms": 250}"#).is_ok());
//! assert!(blackstart_sdk::config::parse::<Config>(r#"{"duration_ms": 0}"#).is_err());
//! ```

use schemars::JsonSchema;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{ConfigError, Error};

/// Longest configuration text that is read.
pub const MAX_CONFIG_BYTES: usize = 256 * 1024;

/// A configuration table: parsed by `serde`, described by a JSON Schema, then checked.
pub trait PluginConfig: DeserializeOwned + JsonSchema + 'static {
    /// Adds what the schema cannot say (ranges that depend on each other, ...).
    fn check(&self, problems: &mut Problems) {
        let _ = problems;
    }
}

/// For a plugin that has nothing to configure; any key is an error.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NoConfig {}

impl PluginConfig for NoConfig {}

/// Mistakes found in a configuration table, collected so that all are shown at once.
#[derive(Debug, Default)]
pub struct Problems(Vec<ConfigError>);

impl Problems {
    /// Notes a mistake at a key path (`signal`, `stages.0.rate`) and how to mend it.
    pub fn add(&mut self, path: &str, message: impl Into<String>, help: impl Into<String>) {
        self.0.push(ConfigError {
            path: path.to_owned(),
            message: message.into(),
            help: Some(help.into()),
        });
    }

    /// `Ok` if nothing was noted.
    ///
    /// # Errors
    /// [`Error::InvalidConfig`] with everything that was noted.
    pub fn into_result(self) -> Result<(), Error> {
        if self.0.is_empty() {
            Ok(())
        } else {
            Err(Error::InvalidConfig(self.0))
        }
    }
}

/// [`Error::InvalidConfig`] with one mistake.
#[must_use]
pub fn invalid(path: &str, message: impl Into<String>, help: impl Into<String>) -> Error {
    let mut problems = Problems::default();
    problems.add(path, message, help);
    Error::InvalidConfig(problems.0)
}

/// Parses and checks a configuration table; no text at all is an empty table.
///
/// # Errors
/// [`Error::InvalidConfig`] with the key path of each mistake.
pub fn parse<C: PluginConfig>(json: &str) -> Result<C, Error> {
    if json.len() > MAX_CONFIG_BYTES {
        return Err(invalid(
            "",
            format!("{} bytes of configuration", json.len()),
            format!("a plugin reads at most {MAX_CONFIG_BYTES}"),
        ));
    }
    let json = if json.trim().is_empty() { "{}" } else { json };
    let mut reader = serde_json::Deserializer::from_str(json);
    let config: C = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let message = error.inner().to_string();
        Error::InvalidConfig(vec![ConfigError {
            path: key_path(error.path()),
            message: without_position(&message).to_owned(),
            help: None,
        }])
    })?;
    reader
        .end()
        .map_err(|error| invalid("", error.to_string(), "one JSON object is expected"))?;
    let mut problems = Problems::default();
    config.check(&mut problems);
    problems.into_result()?;
    Ok(config)
}

/// JSON Schema of a configuration table, as text.
#[must_use]
pub fn schema<C: PluginConfig>() -> String {
    schemars::schema_for!(C).as_value().to_string()
}

/// `stages.0.rate`. Which variant of an enum was read is no key of the table.
fn key_path(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let keys = path.iter().filter_map(|segment| match segment {
        Segment::Seq { index } => Some(index.to_string()),
        Segment::Map { key } => Some(key.clone()),
        Segment::Enum { .. } | Segment::Unknown => None,
    });
    keys.collect::<Vec<_>>().join(".")
}

/// The position is one in the JSON that the host made, not in the user's file.
fn without_position(message: &str) -> &str {
    match message.rfind(" at line ") {
        Some(at) => &message[..at],
        None => message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Stage {
        rate: u32,
    }

    #[derive(Debug, Default, PartialEq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields, default)]
    struct Config {
        stages: Vec<Stage>,
    }

    impl PluginConfig for Config {
        fn check(&self, problems: &mut Problems) {
            for (i, stage) in self.stages.iter().enumerate() {
                if stage.rate == 0 {
                    problems.add(&format!("stages.{i}.rate"), "a rate of 0", "at least 1");
                }
            }
        }
    }

    fn mistakes(json: &str) -> Vec<ConfigError> {
        match parse::<Config>(json) {
            Err(Error::InvalidConfig(errors)) => errors,
            other => panic!("expected a configuration error, got {other:?}"),
        }
    }

    #[test]
    fn nothing_is_an_empty_table() {
        assert_eq!(parse::<Config>(""), Ok(Config::default()));
        assert_eq!(parse::<Config>(" {} "), Ok(Config::default()));
        assert_eq!(parse::<NoConfig>(""), Ok(NoConfig {}));
    }

    #[test]
    fn a_mistake_names_its_key() {
        let errors = mistakes(r#"{"stages":[{"rate":1},{"rate":"many"}]}"#);
        assert_eq!(errors[0].path, "stages.1.rate");
        assert!(!errors[0].message.contains("line"), "{}", errors[0].message);

        let errors = mistakes(r#"{"stages":[{"rate":1,"rte":2}]}"#);
        assert_eq!(errors[0].path, "stages.0.rte");
        assert!(errors[0].message.contains("expected `rate`"), "{errors:?}");

        let errors = mistakes(r#"{"stagse":[]}"#);
        assert_eq!(errors[0].path, "stagse");
    }

    #[test]
    fn every_failed_check_is_shown() {
        let errors = mistakes(r#"{"stages":[{"rate":0},{"rate":1},{"rate":0}]}"#);
        let paths: Vec<_> = errors.iter().map(|e| e.path.as_str()).collect();
        assert_eq!(paths, ["stages.0.rate", "stages.2.rate"]);
    }

    #[test]
    fn hostile_text_is_an_error_and_no_panic() {
        for text in ["[", "nul", "{}{}", "[1]", "\u{0}", &"[".repeat(10_000)] {
            assert!(parse::<Config>(text).is_err(), "{text:.20}");
        }
        assert!(parse::<NoConfig>(&" ".repeat(MAX_CONFIG_BYTES + 1)).is_err());
    }

    #[test]
    fn the_schema_forbids_what_serde_forbids() {
        let schema: serde_json::Value =
            serde_json::from_str(&schema::<Config>()).expect("a schema is JSON");
        assert_eq!(schema["additionalProperties"], false);
        assert!(schema["properties"]["stages"].is_object());
    }
}
