//! The table of gates' limits says what the gates' page and the gates themselves say.

#![allow(clippy::unwrap_used)]

use std::path::Path;

use blackstart_plan::method_limits;

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The number that follows `before` in a text, underscores apart.
fn number_after(text: &str, before: &str) -> Option<f64> {
    let rest = text.split_once(before)?.1;
    let digits: String = rest
        .trim_start()
        .chars()
        .take_while(|c| c.is_ascii_digit() || ".-_".contains(*c))
        .filter(|c| *c != '_')
        .collect();
    digits.parse().ok()
}

#[test]
fn the_documented_limits_are_those_of_the_table() {
    let page = read("docs/gates.md");
    for (plugin, key, limit) in method_limits() {
        let documented = number_after(&page, &format!("| `{key}` |"));
        assert_eq!(documented, Some(limit), "{plugin}: {key}");
    }
}

#[test]
fn the_gates_own_defaults_are_those_of_the_table() {
    for (plugin, key, limit) in method_limits() {
        let source = read(&format!("plugins/{plugin}/src/lib.rs"));
        // A key that is not set in `Default` is 0 there, or a constant of that name.
        let constant = format!("const {}: f64 =", key.to_uppercase());
        let own = source
            .split_once("impl Default for Config")
            .and_then(|(_, body)| number_after(body, &format!("{key}:")))
            .or_else(|| number_after(&source, &constant))
            .unwrap_or(0.0);
        assert_eq!(own, limit, "{plugin}: {key}");
    }
}
