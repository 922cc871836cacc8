//! The parser's words, turned into those of somebody who writes a campaign file.

/// What the parser said, in plain words, and how to mend it.
pub(crate) fn plain(message: &str) -> (String, String) {
    if let Some(help) = unknown(message) {
        return (message.to_owned(), help);
    }
    if let Some((found, expected)) = mismatch(message) {
        let needed = expected_words(expected);
        return (
            format!("{} stands here, but {needed} is needed", found_words(found)),
            format!("write {needed}"),
        );
    }
    if let Some(field) = message
        .strip_prefix("missing field `")
        .and_then(|rest| rest.strip_suffix('`'))
    {
        return (
            format!("the key `{field}` is missing"),
            format!("add `{field} = …` to this table"),
        );
    }
    if message.starts_with("data did not match any variant of untagged enum RoleConfig") {
        return (
            "this names no process".to_owned(),
            "write \"main\", or { contains = \"text of the process's title or command line\" }"
                .to_owned(),
        );
    }
    // Values that check themselves say what is wrong, then how to write them.
    if let Some((wrong, mend)) = message.split_once(": write ") {
        return (wrong.to_owned(), format!("write {mend}"));
    }
    (
        message.to_owned(),
        "write `key = value` here, texts in quotes; `blackstart demo --print-config` shows a whole file"
            .to_owned(),
    )
}

/// `invalid type: FOUND, expected EXPECTED`.
fn mismatch(message: &str) -> Option<(&str, &str)> {
    message
        .strip_prefix("invalid type: ")
        .or_else(|| message.strip_prefix("invalid value: "))?
        .rsplit_once(", expected ")
}

fn found_words(found: &str) -> String {
    for (kind, words) in [
        ("string ", "the text "),
        ("integer ", "the number "),
        ("floating point ", "the number "),
        ("boolean ", ""),
    ] {
        if let Some(value) = found.strip_prefix(kind) {
            return format!("{words}{}", value.trim_matches('`'));
        }
    }
    match found {
        "map" => "a table".to_owned(),
        "sequence" => "a list".to_owned(),
        other => other.to_owned(),
    }
}

fn expected_words(expected: &str) -> &str {
    match expected {
        "f64" | "f32" => "a number (without quotes)",
        "u8" | "u16" | "u32" | "u64" | "usize" => "a whole number from 0 on (without quotes)",
        "i8" | "i16" | "i32" | "i64" | "isize" => "a whole number (without quotes)",
        "a string" | "string" | "str" | "a borrowed string" => "a text in quotes",
        "a boolean" | "bool" => "true or false (without quotes)",
        "a sequence" => "a list in brackets",
        "string or table" | "enum" => "a text in quotes",
        // The names of the program's own types mean nothing to its users.
        "a map" | "map" => "a table",
        other if other.starts_with("struct ") || other.starts_with("enum ") => {
            if other.starts_with("enum ") {
                "a text in quotes"
            } else {
                "a table"
            }
        }
        other => other,
    }
}

/// `did you mean` for an unknown key, from the parser's own list of those expected.
fn unknown(message: &str) -> Option<String> {
    let (_, rest) = message
        .split_once("unknown field `")
        .or_else(|| message.split_once("unknown variant `"))?;
    let (wrong, rest) = rest.split_once('`')?;
    let expected: Vec<&str> = rest.split('`').skip(1).step_by(2).collect();
    let nearest = expected
        .iter()
        .map(|name| (edit_distance(wrong, name), *name))
        .min()
        .filter(|(distance, name)| *distance <= name.len().max(3) / 3 + 1);
    Some(match nearest {
        Some((_, name)) => format!("did you mean `{name}`?"),
        None if expected.is_empty() => "remove it; this table takes no such key".to_owned(),
        None => format!("known here: {}", expected.join(", ")),
    })
}

/// Levenshtein distance, on the heads of texts that may be long.
pub(crate) fn edit_distance(a: &str, b: &str) -> usize {
    const LONGEST: usize = 64;
    let head = |text: &str| text.chars().take(LONGEST).collect::<String>();
    strsim::levenshtein(&head(a), &head(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_named_as_a_file_has_them() {
        for (parser, message, help) in [
            (
                "invalid type: string \"fast\", expected f64",
                "the text \"fast\" stands here, but a number (without quotes) is needed",
                "write a number (without quotes)",
            ),
            (
                "invalid type: integer `5`, expected a string",
                "the number 5 stands here, but a text in quotes is needed",
                "write a text in quotes",
            ),
            (
                "invalid value: integer `-1`, expected u32",
                "the number -1 stands here, but a whole number from 0 on (without quotes) is needed",
                "write a whole number from 0 on (without quotes)",
            ),
            (
                "invalid type: boolean `true`, expected struct PhasesConfig",
                "true stands here, but a table is needed",
                "write a table",
            ),
            (
                "missing field `rate`",
                "the key `rate` is missing",
                "add `rate = …` to this table",
            ),
            (
                "`5 parsecs` is not a duration: write a number and a unit, such as 250ms",
                "`5 parsecs` is not a duration",
                "write a number and a unit, such as 250ms",
            ),
        ] {
            assert_eq!(plain(parser), (message.to_owned(), help.to_owned()));
        }
    }

    #[test]
    fn a_text_that_quotes_the_parser_does_not_mislead_it() {
        let (message, _) = plain("invalid type: string \"a, expected b\", expected f64");
        assert!(
            message.starts_with("the text \"a, expected b\" stands"),
            "{message}"
        );
    }
}
