//! `docs/faults.md`, made of what each variant says of itself.

use std::path::PathBuf;

use blackstart_sdk::fault::Ending;
use serde_json::Value;

use super::{Variant, all};

/// Rewrites the page.
const COMMAND: &str = "BLESS=1 cargo test --release -p blackstart-fault-core page";

const HEAD: &str = include_str!("../../page/head.md");
const COMMON: &str = include_str!("../../page/common.md");
const TAIL: &str = include_str!("../../page/tail.md");

/// Longest line of prose.
const WIDTH: usize = 120;

fn path() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/faults.md")
}

/// Prose in lines of one width. Rows of tables stay whole.
fn wrapped(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut length = 0;
        for word in line.split(' ') {
            let chars = word.chars().count();
            if length > 0 && length + 1 + chars > WIDTH && !line.starts_with('|') {
                out.push('\n');
                length = 0;
            } else if length > 0 {
                out.push(' ');
                length += 1;
            }
            out.push_str(word);
            length += chars;
        }
        out.push('\n');
    }
    out
}

/// A text as a cell of a table.
fn cell(text: &str) -> String {
    text.replace('|', "\\|")
        .split_whitespace()
        .collect::<Vec<_>>()
        .join(" ")
}

/// The schema that a key refers to.
fn resolved<'s>(root: &'s Value, schema: &'s Value) -> &'s Value {
    match schema["$ref"].as_str() {
        Some(name) => &root["$defs"][name.trim_start_matches("#/$defs/")],
        None => schema,
    }
}

/// Words that a value may be.
fn words(schema: &Value) -> Vec<&str> {
    let listed = schema["enum"].as_array().into_iter().flatten();
    let told = schema["oneOf"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|one| &one["const"]);
    listed.chain(told).filter_map(Value::as_str).collect()
}

/// What a value may be.
fn kind(root: &Value, schema: &Value) -> String {
    let all = words(resolved(root, schema));
    if !all.is_empty() {
        return all
            .iter()
            .map(|w| format!("`\"{w}\"`"))
            .collect::<Vec<_>>()
            .join(", ");
    }
    let name = match &schema["type"] {
        Value::Array(names) => names
            .iter()
            .filter_map(Value::as_str)
            .find(|n| *n != "null"),
        name => name.as_str(),
    };
    name.unwrap_or("any").to_owned()
}

fn range(schema: &Value) -> String {
    let of = |least: &str, most: &str, unit: &str| match (&schema[least], &schema[most]) {
        (Value::Null, Value::Null) => None,
        (Value::Null, most) => Some(format!("up to {most}{unit}")),
        (least, Value::Null) => Some(format!("from {least}{unit}")),
        (least, most) => Some(format!("{least} to {most}{unit}")),
    };
    of("minimum", "maximum", "")
        .or_else(|| of("minLength", "maxLength", " bytes"))
        .unwrap_or_default()
}

fn parameters(schema: &Value) -> String {
    let Some(keys) = schema["properties"]
        .as_object()
        .filter(|keys| !keys.is_empty())
    else {
        return "It has no parameters.\n".to_owned();
    };
    let required: Vec<&str> = schema["required"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let mut out = String::from(
        "| key | type | default | range | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for (key, about) in keys {
        let default = match &about["default"] {
            _ if required.contains(&key.as_str()) => "required".to_owned(),
            Value::Null => "none".to_owned(),
            value => format!("`{value}`"),
        };
        out.push_str(&format!(
            "| `{key}` | {} | {default} | {} | {} |\n",
            kind(schema, about),
            range(about),
            cell(about["description"].as_str().unwrap_or_default())
        ));
    }
    out
}

fn example(variant: &Variant) -> String {
    let about = variant.about;
    let mut out = String::from("```toml\n");
    if !about.example_target.is_empty() {
        out.push_str(about.example_target);
        out.push('\n');
    }
    out.push_str(&format!(
        "[fault]\nvariant = \"{}\"\nvictims = {}\n",
        about.name, about.victims
    ));
    if !about.example.is_empty() {
        out.push_str(&format!("[fault.config]\n{}\n", about.example));
    }
    out.push_str("[fault.grant]\n");
    for (key, value) in about.grants {
        out.push_str(&format!("{key} = {value}\n"));
    }
    out.push_str("```\n");
    out
}

fn ends_by(ending: Ending) -> &'static str {
    match ending {
        Ending::VictimRestarts => "the victim's own return",
        Ending::HostUndoes => "the host",
        Ending::Permanent => "nothing, unless told",
    }
}

/// A paragraph, or a table below its title.
fn part(title: &str, text: &str) -> String {
    if text.starts_with('|') {
        format!("\n**{title}.**\n\n{text}\n")
    } else {
        format!("\n{}", wrapped(&format!("**{title}.** {text}")))
    }
}

fn section(variant: &Variant) -> String {
    let about = variant.about;
    let mut out = format!("\n## {}\n\n{}\n", about.name, wrapped(about.summary));
    out.push_str(&parameters(&variant.schema));
    out.push('\n');
    out.push_str(&example(variant));
    out.push_str(&part("How", about.mechanism));
    out.push_str(&part("What the client sees", about.client_sees));
    out.push_str(&part("How it is proven", about.proof));
    out.push_str(&part("How it ends", about.ends));
    out.push_str(&part("What it stands for", about.stands_for));
    out.push_str(&part("What it does not stand for", about.not_for));
    if let Some(why) = about.no_start_up {
        let text = format!("Those of a start-up are not applicable: {why}.");
        out.push_str(&part("Segments", &text));
    }
    out
}

fn page() -> String {
    let mut out = String::from(HEAD);
    out.push_str("\n| fault | effect | ends by | grant |\n| --- | --- | --- | --- |\n");
    for variant in all() {
        let about = variant.about;
        let grants: Vec<String> = about
            .grants
            .iter()
            .map(|(key, _)| format!("`{key}`"))
            .collect();
        out.push_str(&format!(
            "| [`{0}`](#{0}) | {1} | {2} | {3} |\n",
            about.name,
            cell(about.summary.trim_end_matches('.')),
            ends_by(about.ending),
            grants.join(", ")
        ));
    }
    out.push('\n');
    out.push_str(COMMON);
    for variant in all() {
        out.push_str(&section(&variant));
    }
    out.push('\n');
    out.push_str(TAIL);
    out
}

#[test]
fn the_page_is_that_of_the_code() {
    if std::env::var_os("BLESS").is_some() {
        std::fs::write(path(), page()).expect("the page can be written");
    }
    let text = std::fs::read_to_string(path()).expect("docs/faults.md");
    assert!(
        text == page(),
        "docs/faults.md is not that of the code; renew it with `{COMMAND}` in plugins/"
    );
}

#[test]
fn every_variant_and_every_key_is_explained() {
    for variant in all() {
        let about = variant.about;
        for text in [
            about.summary,
            about.mechanism,
            about.client_sees,
            about.proof,
            about.ends,
            about.stands_for,
            about.not_for,
        ] {
            assert!(text.len() > 20, "{}: {text:?}", about.name);
        }
        assert!(
            about.summary.len() < 160 && about.summary.ends_with('.'),
            "{}",
            about.name
        );
        for (key, schema) in variant.schema["properties"]
            .as_object()
            .into_iter()
            .flatten()
        {
            let text = schema["description"].as_str().unwrap_or_default();
            assert!(text.len() > 10, "{}.{key} has no description", about.name);
        }
    }
}
