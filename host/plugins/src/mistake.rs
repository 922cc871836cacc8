//! What a validator found in a plugin's table, in the words of a campaign file: its keys, its
//! values and what may stand there instead. JSON Schema's own vocabulary stays inside.

use jsonschema::error::{TypeKind, ValidationErrorKind};
use jsonschema::{JsonType, ValidationError};
use serde_json::Value;

use crate::limits::MAX_TEXT_BYTES;
use crate::text::shown;
use crate::types::ConfigMistake;

/// Most of a value that is repeated in a message, in bytes.
const SHOWN_VALUE_BYTES: usize = 80;
/// Most alternatives that are listed.
const MAX_CHOICES: usize = 32;

/// The mistakes of one of the validator's errors: an object with three unknown keys has three.
pub(crate) fn mistakes(schema: &Value, error: &ValidationError<'_>) -> Vec<ConfigMistake> {
    let path = dotted(&error.instance_path().to_string());
    let instance: &Value = error.instance();
    let known = known_keys(schema, &error.schema_path().to_string());
    if let ValidationErrorKind::AdditionalProperties { unexpected }
    | ValidationErrorKind::UnevaluatedProperties { unexpected } = error.kind()
    {
        let unknown = |key: &String| ConfigMistake {
            path: joined(&path, key),
            of_key: true,
            message: format!("unknown key `{}`", shown(key, SHOWN_VALUE_BYTES)),
            help: Some(known_help(key, &known)),
        };
        return unexpected.iter().map(unknown).collect();
    }
    let (message, help) = words(&path, instance, error.kind());
    vec![ConfigMistake {
        path,
        of_key: false,
        message: shown(
            &message.unwrap_or_else(|| error.to_string()),
            MAX_TEXT_BYTES,
        ),
        // A rule that only its author can put into words: at least say what there is.
        help: help
            .or_else(|| {
                let keys = known_keys(schema, "/type");
                (!keys.is_empty()).then(|| format!("keys of this table: {}", listed(&keys, "`")))
            })
            .map(|help| shown(&help, MAX_TEXT_BYTES)),
    }]
}

/// Message and help of an error, where there are better words than the validator's.
fn words(
    path: &str,
    instance: &Value,
    kind: &ValidationErrorKind,
) -> (Option<String>, Option<String>) {
    use ValidationErrorKind as Kind;
    let key = match path.rsplit('.').next() {
        Some(key) if !key.is_empty() => format!("`{key}`"),
        _ => "the table".to_owned(),
    };
    let value = shown(&instance.to_string(), SHOWN_VALUE_BYTES);
    let is = |what: &str| Some(format!("{key} is {value}, which is {what}"));
    match kind {
        Kind::Enum { .. }
        | Kind::Constant { .. }
        | Kind::OneOfNotValid { .. }
        | Kind::AnyOf { .. } => {
            let mut choices = Choices::default();
            choices.gather(kind, 0);
            choices.words(&key, instance, &value)
        }
        Kind::Type { .. } => {
            let mut choices = Choices::default();
            choices.gather(kind, 0);
            choices.words(&key, instance, &value)
        }
        Kind::Required { property } => {
            let name = property.as_str().unwrap_or_default();
            let name = shown(name, SHOWN_VALUE_BYTES);
            (
                Some(format!("the key `{name}` is missing")),
                Some(format!("add `{name} = …` to this table")),
            )
        }
        Kind::Minimum { limit } => (is("too small"), Some(format!("use at least {limit}"))),
        Kind::Maximum { limit } => (is("too large"), Some(format!("use at most {limit}"))),
        Kind::ExclusiveMinimum { limit } => {
            (is("too small"), Some(format!("use more than {limit}")))
        }
        Kind::ExclusiveMaximum { limit } => {
            (is("too large"), Some(format!("use less than {limit}")))
        }
        Kind::MinLength { limit } => (
            is("too short"),
            Some(format!("use at least {limit} {}", characters(*limit))),
        ),
        Kind::MaxLength { limit } => (
            is("too long"),
            Some(format!("use at most {limit} {}", characters(*limit))),
        ),
        Kind::MinItems { limit } => (
            Some(format!("{key} has too few items")),
            Some(format!("list at least {limit}")),
        ),
        Kind::MaxItems { limit } => (
            Some(format!("{key} has too many items")),
            Some(format!("list at most {limit}")),
        ),
        Kind::UniqueItems => (
            Some(format!("{key} lists something twice")),
            Some("name each once".to_owned()),
        ),
        Kind::MultipleOf { multiple_of, .. } => (
            is("no multiple of the step"),
            Some(format!("use a multiple of {multiple_of}")),
        ),
        Kind::Pattern { pattern } => (
            is("not of the right form"),
            Some(format!("write a text that matches `{pattern}`")),
        ),
        Kind::FalseSchema => (
            Some(format!("{key} may not stand here")),
            Some("remove it".to_owned()),
        ),
        _ => (None, None),
    }
}

fn characters(number: u64) -> &'static str {
    if number == 1 {
        "character"
    } else {
        "characters"
    }
}

/// What may stand in a place: certain values, or anything of certain types.
#[derive(Default)]
struct Choices {
    values: Vec<Value>,
    types: Vec<&'static str>,
    /// An alternative is bound by a rule that is neither.
    others: bool,
}

impl Choices {
    fn gather(&mut self, kind: &ValidationErrorKind, depth: usize) {
        /// Alternatives in alternatives; deeper ones are nobody's configuration.
        const MAX_DEPTH: usize = 8;
        match kind {
            ValidationErrorKind::Enum { options } => match options.as_ref() {
                Value::Array(options) => self.values.extend(options.iter().cloned()),
                one => self.values.push(one.clone()),
            },
            ValidationErrorKind::Constant { expected_value } => {
                self.values.push(expected_value.as_ref().clone());
            }
            ValidationErrorKind::Type { kind } => match kind {
                TypeKind::Single(one) => self.types.push(name_of(*one)),
                TypeKind::Multiple(several) => self.types.extend(several.iter().map(name_of)),
            },
            ValidationErrorKind::OneOfNotValid { context }
            | ValidationErrorKind::AnyOf { context }
                if depth < MAX_DEPTH =>
            {
                for alternative in context {
                    // Which of its values an alternative wants says more than their type.
                    let mut own = Choices::default();
                    for error in alternative {
                        own.gather(error.kind(), depth + 1);
                    }
                    if !own.values.is_empty() {
                        own.types.clear();
                    }
                    self.values.append(&mut own.values);
                    self.types.append(&mut own.types);
                    self.others |= own.others;
                }
            }
            _ => self.others = true,
        }
        self.types.dedup();
        self.values.dedup();
    }

    fn words(&self, key: &str, instance: &Value, value: &str) -> (Option<String>, Option<String>) {
        // `null` is no value of TOML: an optional key is left out instead.
        let types: Vec<&str> = self
            .types
            .iter()
            .copied()
            .filter(|t| *t != name_of(JsonType::Null))
            .collect();
        let mut may: Vec<String> = self
            .values
            .iter()
            .filter(|v| !v.is_null())
            .take(MAX_CHOICES)
            .map(ToString::to_string)
            .collect();
        if may.is_empty() && types.is_empty() {
            return (None, None);
        }
        let message = if may.is_empty() {
            format!("{key} is {value}, but {} is needed", types.join(" or "))
        } else {
            format!("{key} is {value}, which is not possible")
        };
        let meant = instance.as_str().and_then(|wrong| {
            let texts: Vec<&str> = self.values.iter().filter_map(Value::as_str).collect();
            nearest(wrong, &texts)
        });
        let mut help = match meant {
            Some(meant) => format!("did you mean {}? ", Value::from(meant)),
            None => String::new(),
        };
        if may.is_empty() {
            help.push_str(&format!("write {}", types.join(" or ")));
        } else {
            may.extend(types.iter().map(|t| (*t).to_owned()));
            let one_of = if may.len() == 1 {
                "it is always"
            } else {
                "one of:"
            };
            help.push_str(&format!("{one_of} {}", may.join(", ")));
        }
        if self.others {
            help.push_str(", within the limits of the plugin");
        }
        (Some(message), Some(help))
    }
}

/// A type as somebody who writes TOML calls it.
fn name_of(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "a list in brackets",
        JsonType::Boolean => "true or false (without quotes)",
        JsonType::Integer => "a whole number (without quotes)",
        JsonType::Null => "nothing",
        JsonType::Number => "a number (without quotes)",
        JsonType::Object => "a table",
        JsonType::String => "a text in quotes",
    }
}

/// Keys of the object whose keyword stands at this place of the schema, sorted.
fn known_keys(schema: &Value, keyword: &str) -> Vec<String> {
    let object = keyword.rsplit_once('/').map_or("", |(object, _)| object);
    let properties = schema.pointer(object).and_then(|o| o.get("properties"));
    let mut keys: Vec<String> = match properties {
        Some(Value::Object(properties)) => properties.keys().cloned().collect(),
        _ => Vec::new(),
    };
    keys.sort_unstable();
    keys
}

fn known_help(wrong: &str, known: &[String]) -> String {
    if known.is_empty() {
        return "remove it; this table takes no such key".to_owned();
    }
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let all = listed(known, "`");
    let help = match nearest(wrong, &names) {
        Some(meant) => format!("did you mean `{meant}`? Keys of this table: {all}"),
        None => format!("keys of this table: {all}"),
    };
    shown(&help, MAX_TEXT_BYTES)
}

fn listed(names: &[String], quote: &str) -> String {
    let mut all: Vec<String> = names
        .iter()
        .take(MAX_CHOICES)
        .map(|name| format!("{quote}{name}{quote}"))
        .collect();
    if names.len() > MAX_CHOICES {
        all.push("…".to_owned());
    }
    all.join(", ")
}

/// The one that was probably meant: at most about a third of it is written otherwise.
fn nearest<'a>(wrong: &str, known: &[&'a str]) -> Option<&'a str> {
    let length = wrong.chars().count();
    known
        .iter()
        .filter_map(|name| {
            let allowed = name.chars().count().max(3) / 3 + 1;
            // Also bounds the work: neither text is a stranger's choice of length.
            if name.chars().count().abs_diff(length) > allowed {
                return None;
            }
            let distance = strsim::levenshtein(&wrong.to_lowercase(), &name.to_lowercase());
            (distance <= allowed).then_some((distance, *name))
        })
        .min()
        .map(|(_, name)| name)
}

/// A JSON pointer as a key path: `/stages/0/rate` becomes `stages.0.rate`.
fn dotted(pointer: &str) -> String {
    let parts = pointer.split('/').skip(1);
    let parts: Vec<String> = parts
        .map(|part| part.replace("~1", "/").replace("~0", "~"))
        .collect();
    shown(&parts.join("."), MAX_TEXT_BYTES)
}

fn joined(path: &str, key: &str) -> String {
    let path = if path.is_empty() {
        key.to_owned()
    } else {
        format!("{path}.{key}")
    };
    shown(&path, MAX_TEXT_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn of(schema: &Value, config: &Value) -> Vec<ConfigMistake> {
        let validator = jsonschema::validator_for(schema).unwrap();
        validator
            .iter_errors(config)
            .flat_map(|error| mistakes(schema, &error))
            .collect()
    }

    fn one(schema: &Value, config: &Value) -> (String, String, String) {
        let mut all = of(schema, config);
        assert_eq!(all.len(), 1, "{all:?}");
        let only = all.remove(0);
        (only.path, only.message, only.help.unwrap())
    }

    /// As `schemars` writes an enum whose variants are documented.
    fn documented_enum() -> Value {
        json!({"type": "object", "additionalProperties": false, "properties": {
            "signal": {"oneOf": [
                {"description": "…", "type": "string", "const": "KILL"},
                {"description": "…", "type": "string", "const": "STOP"},
            ]},
            "process": {"type": "string", "minLength": 1},
            "count": {"type": ["integer", "null"], "minimum": 1},
            "share": {"type": "number"},
            "stages": {"type": "array", "items": {"$ref": "#/$defs/stage"}},
        }, "$defs": {"stage": {"type": "object", "additionalProperties": false,
            "properties": {"rate": {"type": "number"}}, "required": ["rate"]}}})
    }

    #[test]
    fn an_unknown_key_is_part_of_the_path_and_has_a_likely_meaning() {
        let all = of(&documented_enum(), &json!({"signall": "KILL", "zzzzzz": 1}));
        assert_eq!(all.len(), 2, "{all:?}");
        for (path, says) in [
            (
                "signall",
                "did you mean `signal`? Keys of this table: `count`, `process`",
            ),
            (
                "zzzzzz",
                "keys of this table: `count`, `process`, `share`, `signal`, `stages`",
            ),
        ] {
            let found = all.iter().find(|m| m.path == path).unwrap();
            assert!(
                found.of_key && found.help.as_ref().unwrap().starts_with(says),
                "{found:?}"
            );
        }
        // Also behind a reference, where the keys are those of the definition.
        let (path, _, help) = one(
            &documented_enum(),
            &json!({"stages": [{"rate": 1, "rte": 2}]}),
        );
        assert_eq!(path, "stages.0.rte");
        assert_eq!(help, "did you mean `rate`? Keys of this table: `rate`");
    }

    #[test]
    fn a_value_that_is_no_choice_is_answered_with_the_choices() {
        for schema in [
            documented_enum(),
            json!({"properties": {"signal": {"enum": ["KILL", "STOP"]}}}),
            json!({"properties": {"signal": {"anyOf": [{"enum": ["KILL", "STOP"]}, {"type": "null"}]}}}),
        ] {
            let (path, message, help) = one(&schema, &json!({"signal": "STOPP"}));
            assert_eq!(path, "signal");
            assert_eq!(message, "`signal` is \"STOPP\", which is not possible");
            assert_eq!(help, "did you mean \"STOP\"? one of: \"KILL\", \"STOP\"");
        }
        let (_, _, help) = one(&documented_enum(), &json!({"signal": 9}));
        assert_eq!(help, "one of: \"KILL\", \"STOP\"");
    }

    #[test]
    fn types_and_limits_are_said_in_words() {
        for (config, message, help) in [
            (
                json!({"share": "a"}),
                "`share` is \"a\", but a number (without quotes) is needed",
                "write a number (without quotes)",
            ),
            (
                json!({"count": 1.5}),
                "`count` is 1.5, but a whole number (without quotes) is needed",
                "write a whole number (without quotes)",
            ),
            (
                json!({"count": 0}),
                "`count` is 0, which is too small",
                "use at least 1",
            ),
            (
                json!({"process": ""}),
                "`process` is \"\", which is too short",
                "use at least 1 character",
            ),
            (
                json!({"stages": [{}]}),
                "the key `rate` is missing",
                "add `rate = …` to this table",
            ),
        ] {
            let (_, said, mend) = one(&documented_enum(), &config);
            assert_eq!((said.as_str(), mend.as_str()), (message, help));
        }
    }

    #[test]
    fn no_mistake_is_without_a_mend() {
        let schema = json!({"properties": {"a": {"not": {"const": 1}}}});
        let (_, _, help) = one(&schema, &json!({"a": 1}));
        assert_eq!(help, "keys of this table: `a`");
    }
}
