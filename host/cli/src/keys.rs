//! API keys: where they come from. What is said of one never shows it, nor what may be one.

use std::ffi::OsString;
use std::io::Read;
use std::path::Path;

use crate::exit::{Exit, Failure};

/// Largest file of a key.
const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

/// The key in an environment variable. `option` is what names the variable.
///
/// # Errors
/// When it is not set, or holds what no header may (exit 3).
pub fn of_variable(option: &str, name: &str) -> Result<String, Failure> {
    of_value(option, name, std::env::var_os(name))
}

fn of_value(option: &str, name: &str, value: Option<OsString>) -> Result<String, Failure> {
    let Some(value) = value else {
        return Err(if reads_as_a_name(name) {
            wrong(format!("{option} names {name}, which is not set"))
                .help(format!("export {name}=… before, or name another variable"))
        } else {
            // Whoever pastes the key here must not find it in a log.
            wrong(format!(
                "{option} names no environment variable that is set (what was given is not shown, since \
                 it may be the key itself)"
            ))
            .help("give the name of a variable that holds the key, such as OPENAI_API_KEY")
        });
    };
    let place = format!("{option}: the environment variable {name}");
    let value = value.into_string().map_err(|_| {
        wrong(format!("{place} is no UTF-8 text"))
            .help("put the key alone into it: printable ASCII")
    })?;
    key(&place, &value)
}

/// The key in a file.
///
/// # Errors
/// When it cannot be read, or holds what no header may (exit 3).
pub fn of_file(option: &str, path: &Path) -> Result<String, Failure> {
    let place = if may_be_shown(path) {
        format!("{option} {}", path.display())
    } else {
        format!("{option} (what was given is not shown, since it may be the key itself)")
    };
    let unreadable = |e: std::io::Error| {
        wrong(format!("{place}: {e}"))
            .help("give a file that holds the key alone and that this user may read")
    };
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|f| f.take(MAX_KEY_FILE_BYTES + 1).read_to_end(&mut bytes))
        .map_err(unreadable)?;
    if bytes.len() as u64 > MAX_KEY_FILE_BYTES {
        return Err(wrong(format!(
            "{place} is larger than {} KiB",
            MAX_KEY_FILE_BYTES >> 10
        ))
        .help("give a file that holds the key alone"));
    }
    let text = String::from_utf8(bytes).map_err(|_| {
        wrong(format!("{place} is no UTF-8 text"))
            .help("put the key alone into it: printable ASCII")
    })?;
    key(&place, &text)
}

/// The key without the white space around it, if a header may hold it.
fn key(place: &str, text: &str) -> Result<String, Failure> {
    let key = text.trim();
    if key.is_empty() {
        return Err(
            wrong(format!("{place} holds no key: it is empty")).help("put the key alone into it")
        );
    }
    let bad = key.chars().zip(1_u64..).find_map(|(c, number)| {
        let what = match c {
            ' '..='~' => return None,
            '\n' | '\r' => "a line break",
            c if c.is_ascii() => "a control character",
            _ => "a character outside ASCII",
        };
        Some((what, number))
    });
    match bad {
        None => Ok(key.to_owned()),
        Some((what, number)) => Err(wrong(format!(
            "{place} holds {what} (character {number} of the key), which no header may"
        ))
        .help("put the key alone into it, on one line and without quotation marks")),
    }
}

fn wrong(what: String) -> Failure {
    Failure::message(Exit::Configuration, what)
}

/// Whether a text can only be meant as a variable's name. Keys are longer, or mix cases and digits.
fn reads_as_a_name(text: &str) -> bool {
    const LONGEST: usize = 64;
    const MOST_DIGITS: usize = 3;
    let allowed = |b: u8| b.is_ascii_uppercase() || b.is_ascii_digit() || b == b'_';
    (1..=LONGEST).contains(&text.len())
        && text.bytes().all(allowed)
        && text.bytes().filter(u8::is_ascii_digit).count() <= MOST_DIGITS
}

/// Whether a path is certainly one: it, or its folder, is there.
fn may_be_shown(path: &Path) -> bool {
    let folder = path.parent().filter(|p| !p.as_os_str().is_empty());
    path.exists() || folder.is_some_and(Path::is_dir)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStringExt;

    const KEY: &str = "sk-very-secret-0815";

    fn refused(result: Result<String, Failure>) -> String {
        let failure = result.unwrap_err();
        assert_eq!(failure.exit, Exit::Configuration);
        let text = format!("{} {}", failure.text(), failure.help.unwrap_or_default());
        assert!(!text.contains("secret") && !text.contains("0815"), "{text}");
        text
    }

    #[test]
    fn a_key_that_no_header_may_hold_names_its_place_and_never_itself() {
        for (value, why) in [
            (format!("{KEY}\n{KEY}"), "a line break (character 20 of"),
            (format!("{KEY}\u{7}{KEY}"), "a control character"),
            (format!("{KEY}é"), "a character outside ASCII"),
            (" \n".to_owned(), "it is empty"),
        ] {
            let text = refused(of_value(
                "--api-key-env",
                "MY_KEY",
                Some(value.clone().into()),
            ));
            assert!(text.contains("MY_KEY") && text.contains(why), "{text}");
            let file = tempfile::NamedTempFile::new().unwrap();
            std::fs::write(file.path(), value).unwrap();
            let text = refused(of_file("--api-key-file", file.path()));
            let name = file.path().display().to_string();
            assert!(text.contains(&name) && text.contains(why), "{text}");
        }
        let bytes = OsString::from_vec(b"sk-\xff0815".to_vec());
        let text = refused(of_value("--api-key-env", "MY_KEY", Some(bytes)));
        assert!(text.contains("MY_KEY is no UTF-8"), "{text}");
        let fine = of_value("x", "MY_KEY", Some(format!("{KEY}\n").into())).unwrap();
        assert_eq!(fine, KEY);
    }

    #[test]
    fn a_key_in_the_place_of_a_name_is_not_shown() {
        for pasted in [
            KEY,
            "secret0815",
            "SECRET0815SECRET",
            "hf_secretABC",
            "secret=0815",
            "",
        ] {
            let text = refused(of_value("--api-key-env", pasted, None));
            assert!(text.contains("not shown"), "{text}");
            let text = refused(of_file("--api-key-file", Path::new(pasted)));
            assert!(text.contains("not shown"), "{text}");
        }
        let text = refused(of_value("--api-key-env", "NO_SUCH_VARIABLE_2", None));
        assert!(
            text.contains("NO_SUCH_VARIABLE_2, which is not set"),
            "{text}"
        );
        let text = refused(of_file("--api-key-file", Path::new("/no-such-file")));
        assert!(text.contains("/no-such-file"), "{text}");
    }

    #[test]
    fn a_file_that_is_larger_than_any_key_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let length = usize::try_from(MAX_KEY_FILE_BYTES).unwrap() + 1;
        std::fs::write(file.path(), vec![b'k'; length]).unwrap();
        let text = refused(of_file("--api-key-file", file.path()));
        assert!(text.contains("larger than 64 KiB"), "{text}");
    }
}
