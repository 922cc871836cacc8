//! Validation of a plugin's configuration table against the schema the plugin
//! declares. Schema and table are both strangers' texts: no network, no file, no
//! recursion, and a bound on the work.

use std::collections::{HashMap, HashSet};

use jsonschema::PatternOptions;
use serde_json::Value;

use crate::error::PluginError;
use crate::limits::{MAX_SCHEMA_BYTES, MAX_TEXT_BYTES};
use crate::mistake;
use crate::text::shown;
use crate::types::{ConfigMistake, Label, PluginInfo};

/// Most mistakes reported at once.
pub const MAX_MISTAKES: usize = 64;
/// Most nodes of a schema after every reference is followed.
const MAX_EXPANDED_NODES: u64 = 20_000;
/// Deepest nesting of a schema.
const MAX_DEPTH: usize = 64;
/// Most regular expressions of a schema.
const MAX_PATTERNS: usize = 64;
/// Largest compiled regular expression, in bytes.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// Keywords that reach for other schemas in ways that are not followed here.
const REFUSED_KEYWORDS: [&str; 6] = [
    "$dynamicRef",
    "$recursiveRef",
    "$dynamicAnchor",
    "$recursiveAnchor",
    "$anchor",
    "$vocabulary",
];

/// Checks `config` against the schema of `info`. An empty list means that it fits.
///
/// # Errors
/// [`PluginError::BadSchema`] when the schema itself cannot be used.
pub fn check_config(info: &PluginInfo, config: &Value) -> Result<Vec<ConfigMistake>, PluginError> {
    let bad = |reason: String| PluginError::BadSchema {
        plugin: Label {
            name: info.name.clone(),
            version: info.version.clone(),
        },
        reason,
    };
    if info.config_schema.len() > MAX_SCHEMA_BYTES {
        return Err(bad(format!("it is longer than {MAX_SCHEMA_BYTES} bytes")));
    }
    let schema: Value = serde_json::from_str(&info.config_schema)
        .map_err(|e| bad(shown(&e.to_string(), MAX_TEXT_BYTES)))?;
    admit(&schema).map_err(bad)?;
    let patterns = PatternOptions::regex()
        .size_limit(MAX_REGEX_BYTES)
        .dfa_size_limit(MAX_REGEX_BYTES);
    let validator = jsonschema::options()
        .offline()
        .with_pattern_options(patterns)
        .build(&schema)
        .map_err(|e| bad(shown(&e.to_string(), MAX_TEXT_BYTES)))?;
    let mistakes = validator
        .iter_errors(config)
        .flat_map(|error| mistake::mistakes(&schema, &error))
        .take(MAX_MISTAKES);
    Ok(mistakes.collect())
}

/// Refuses a schema that could make the validator work without bound.
fn admit(schema: &Value) -> Result<(), String> {
    if !schema.is_object() && !schema.is_boolean() {
        return Err("it is neither an object nor a boolean".into());
    }
    let mut walk = Walk {
        root: schema,
        patterns: 0,
        sizes: HashMap::new(),
        open: HashSet::new(),
    };
    walk.size(schema, 0).map(drop)
}

struct Walk<'a> {
    root: &'a Value,
    patterns: usize,
    /// Expanded sizes of references already followed.
    sizes: HashMap<&'a str, u64>,
    /// References being followed.
    open: HashSet<&'a str>,
}

impl<'a> Walk<'a> {
    /// Nodes under `value` when every reference is replaced by what it names.
    fn size(&mut self, value: &'a Value, depth: usize) -> Result<u64, String> {
        if depth > MAX_DEPTH {
            return Err(format!("it is nested deeper than {MAX_DEPTH}"));
        }
        let mut total = 1_u64;
        match value {
            Value::Object(map) => {
                for (key, inner) in map {
                    self.keyword(key, inner)?;
                    total = total.saturating_add(match (key.as_str(), inner) {
                        ("$ref", Value::String(target)) => self.reference(target, depth)?,
                        // Definitions cost nothing until they are referred to.
                        ("$defs" | "definitions", Value::Object(defs)) => {
                            for definition in defs.values() {
                                self.size(definition, depth + 1)?;
                            }
                            0
                        }
                        _ => self.size(inner, depth + 1)?,
                    });
                }
            }
            Value::Array(items) => {
                for item in items {
                    total = total.saturating_add(self.size(item, depth + 1)?);
                }
            }
            _ => {}
        }
        if total > MAX_EXPANDED_NODES {
            return Err(format!(
                "with its references followed it has more than {MAX_EXPANDED_NODES} nodes"
            ));
        }
        Ok(total)
    }

    fn keyword(&mut self, key: &str, inner: &Value) -> Result<(), String> {
        if REFUSED_KEYWORDS.contains(&key) {
            return Err(format!("`{key}` is not supported"));
        }
        // Only a root may have an id, and references do not use it.
        if key == "$id" && inner.is_string() {
            return Err("`$id` is not supported".into());
        }
        self.patterns += match (key, inner) {
            ("pattern", Value::String(_)) => 1,
            ("patternProperties", Value::Object(map)) => map.len(),
            _ => 0,
        };
        if self.patterns > MAX_PATTERNS {
            return Err(format!(
                "it has more than {MAX_PATTERNS} regular expressions"
            ));
        }
        Ok(())
    }

    fn reference(&mut self, target: &'a str, depth: usize) -> Result<u64, String> {
        if let Some(&size) = self.sizes.get(target) {
            return Ok(size);
        }
        let named = || shown(target, 200);
        let pointer = target
            .strip_prefix('#')
            .filter(|p| p.is_empty() || p.starts_with('/'))
            .ok_or_else(|| format!("`$ref` `{}` leaves the schema", named()))?;
        let found = self
            .root
            .pointer(pointer)
            .ok_or_else(|| format!("`$ref` `{}` names nothing", named()))?;
        if !self.open.insert(target) {
            return Err(format!("`$ref` `{}` refers to itself", named()));
        }
        let size = self.size(found, depth + 1)?;
        self.open.remove(target);
        self.sizes.insert(target, size);
        Ok(size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn info(schema: &str) -> PluginInfo {
        PluginInfo {
            name: "p".into(),
            version: "0.1.0".into(),
            summary: String::new(),
            config_schema: schema.into(),
        }
    }

    fn check(schema: &Value, config: &Value) -> Result<Vec<ConfigMistake>, PluginError> {
        check_config(&info(&schema.to_string()), config)
    }

    #[test]
    fn mistakes_are_found_at_their_paths() {
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "type": "object",
            "properties": {
                "signal": {"$ref": "#/$defs/signal"},
                "stages": {"type": "array", "items": {
                    "type": "object", "properties": {"rate": {"type": "number"}}}},
            },
            "required": ["signal"],
            "additionalProperties": false,
            "$defs": {"signal": {"enum": ["TERM", "KILL"]}},
        });
        assert_eq!(check(&schema, &json!({"signal": "KILL"})).unwrap(), []);
        let mistakes = check(
            &schema,
            &json!({"signal": "X", "stages": [{"rate": "a"}], "b\u{1b}": 1}),
        )
        .unwrap();
        let mut paths: Vec<&str> = mistakes.iter().map(|m| m.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["b\\u{1b}", "signal", "stages.0.rate"]);
        assert!(mistakes.iter().all(|m| !m.message.contains('\u{1b}')));
        let missing = check(&schema, &json!({})).unwrap();
        assert_eq!(missing.len(), 1);
        assert!(missing[0].to_string().contains("signal"), "{}", missing[0]);
    }

    #[test]
    fn the_number_of_mistakes_is_bounded() {
        let schema = json!({"type": "array", "items": {"type": "string"}});
        let mistakes = check(&schema, &json!(vec![1; 1000])).unwrap();
        assert_eq!(mistakes.len(), MAX_MISTAKES);
    }

    #[test]
    fn schemas_that_could_run_away_are_refused() {
        let mut bomb = serde_json::Map::new();
        for i in 0..12 {
            let next = json!({"$ref": format!("#/$defs/d{}", i + 1)});
            bomb.insert(format!("d{i}"), json!({"allOf": vec![next; 10]}));
        }
        bomb.insert("d12".into(), json!({"type": "string"}));
        let mut deep = json!({});
        for _ in 0..100 {
            deep = json!({"not": deep});
        }
        for (schema, says) in [
            (json!({"$ref": "#"}), "refers to itself"),
            (json!({"allOf": [{"$ref": "#"}]}), "refers to itself"),
            (
                json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}),
                "refers to itself",
            ),
            (json!({"$defs": bomb, "$ref": "#/$defs/d0"}), "nodes"),
            (deep, "nested deeper"),
            (json!({"$ref": "http://127.0.0.1:1/x"}), "leaves the schema"),
            (json!({"$ref": "file:///etc/passwd"}), "leaves the schema"),
            (json!({"$ref": "#/nowhere"}), "names nothing"),
            (json!({"$dynamicRef": "#"}), "not supported"),
            (
                json!({"patternProperties": (0..100).map(|i| (format!("a{i}"), json!({}))).collect::<serde_json::Map<_, _>>()}),
                "regular expressions",
            ),
            (json!({"pattern": "(a{1000}){1000}{1000}"}), ""),
            (json!({"type": 7}), ""),
            (json!("string"), "neither"),
        ] {
            match check(&schema, &json!({"a": "b"})) {
                Err(PluginError::BadSchema { reason, .. }) => {
                    assert!(reason.contains(says), "{schema}: {reason}");
                }
                other => panic!("{schema}: {other:?}"),
            }
        }
        let text = "[".repeat(100_000);
        assert!(check_config(&info(&text), &json!({})).is_err());
        assert!(check_config(&info("{"), &json!({})).is_err());
    }
}
