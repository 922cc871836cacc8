//! Reads the flat log objects of vLLM's JSON formatter (0.32 and user
//! configurations before it). Tolerant: of an object that is cut off, what was
//! complete is kept. Nested values are skipped.

use std::borrow::Cow;

/// Keys kept of one object.
#[derive(Debug, Default)]
pub struct LogObject<'a> {
    /// `asctime`: local time with milliseconds, `2026-12-31 23:59:50,000`.
    pub asctime: Option<Cow<'a, str>>,
    /// `levelname`.
    pub level: Option<Cow<'a, str>>,
    /// `message`.
    pub message: Option<Cow<'a, str>>,
    /// `exc_info`: the traceback.
    pub exc_info: Option<Cow<'a, str>>,
    /// `vllm_process_name` (0.32).
    pub vllm_process: Option<Cow<'a, str>>,
    /// `processName`, Python's own name of the process.
    pub python_process: Option<Cow<'a, str>>,
    /// `process`: the process id.
    pub pid: Option<&'a str>,
    /// `log`: the line inside an object of a container runtime's JSON log file.
    pub log: Option<Cow<'a, str>>,
}

/// Keys read of one object; the rest of a longer one is ignored.
const MAX_KEYS: usize = 64;
/// Nesting that is skipped; a deeper value ends the object.
const MAX_DEPTH: usize = 32;

/// Reads the object that starts at the first byte of `text` (`{`).
pub fn read_object(text: &str) -> LogObject<'_> {
    let mut object = LogObject::default();
    let mut rest = text.strip_prefix('{').unwrap_or("");
    for _ in 0..MAX_KEYS {
        rest = rest.trim_start_matches([' ', ',', '\t']);
        let Some((key, after)) = read_string(rest) else {
            break;
        };
        let Some(value) = after.trim_start().strip_prefix(':') else {
            break;
        };
        let value = value.trim_start();
        if value.starts_with('"') {
            let Some((text, after)) = read_string(value) else {
                break;
            };
            rest = after;
            match key.as_ref() {
                "asctime" => object.asctime = Some(text),
                "levelname" => object.level = Some(text),
                "message" => object.message = Some(text),
                "exc_info" => object.exc_info = Some(text),
                "vllm_process_name" => object.vllm_process = Some(text),
                "processName" => object.python_process = Some(text),
                "log" => object.log = Some(text),
                _ => {}
            }
        } else {
            let Some(length) = bare_length(value) else {
                break;
            };
            if key == "process" {
                object.pid = Some(value[..length].trim_end());
            }
            rest = &value[length..];
        }
    }
    object
}

/// The string literal at the start of `text` and what follows it.
fn read_string(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let body = text.strip_prefix('"')?;
    let end = body.find(['"', '\\'])?;
    if body.as_bytes()[end] == b'"' {
        return Some((Cow::Borrowed(&body[..end]), &body[end + 1..]));
    }
    let mut out = String::from(&body[..end]);
    let mut rest = &body[end..];
    loop {
        let at = rest.find(['"', '\\'])?;
        out.push_str(&rest[..at]);
        if rest.as_bytes()[at] == b'"' {
            return Some((Cow::Owned(out), &rest[at + 1..]));
        }
        let escape = rest[at + 1..].chars().next()?;
        rest = &rest[at + 1 + escape.len_utf8()..];
        match escape {
            'n' => out.push('\n'),
            'r' => out.push('\r'),
            't' => out.push('\t'),
            'b' | 'f' => out.push(' '),
            'u' => {
                let (unit, after) = read_unit(rest)?;
                rest = after;
                out.push(match unit {
                    0xD800..0xDC00 => {
                        let low = rest.strip_prefix("\\u").and_then(read_unit);
                        match low {
                            Some((low @ 0xDC00..0xE000, after)) => {
                                rest = after;
                                let code = 0x1_0000 + ((unit - 0xD800) << 10) + (low - 0xDC00);
                                char::from_u32(code).unwrap_or('\u{FFFD}')
                            }
                            _ => '\u{FFFD}',
                        }
                    }
                    _ => char::from_u32(unit).unwrap_or('\u{FFFD}'),
                });
            }
            other => out.push(other),
        }
    }
}

fn read_unit(text: &str) -> Option<(u32, &str)> {
    let digits = text.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    Some((u32::from_str_radix(digits, 16).ok()?, &text[4..]))
}

/// Length of a number, `true`, `null`, or a nested value, up to the `,` or `}` that
/// ends it. `None` where it is cut off.
fn bare_length(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'"' => loop {
                match bytes.next()?.1 {
                    b'\\' => {
                        bytes.next()?;
                    }
                    b'"' => break,
                    _ => {}
                }
            },
            b'{' | b'[' => {
                depth += 1;
                if depth > MAX_DEPTH {
                    return None;
                }
            }
            b',' if depth == 0 => return Some(at),
            b'}' | b']' => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some(at),
            },
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_keys_and_skips_the_rest() {
        let object = read_object(
            r#"{"asctime": "2026-12-31 23:59:50,000", "levelname": "INFO", "x": {"message": ["no", "}"]}, "process": 72, "message": "a\n\u2588 \ud83d\ude00 \"q\" \ud83d", "vllm_process_name": "EngineCore"} trailing"#,
        );
        assert_eq!(object.asctime.as_deref(), Some("2026-12-31 23:59:50,000"));
        assert_eq!(object.pid, Some("72"));
        assert_eq!(
            object.message.as_deref(),
            Some("a\n\u{2588} \u{1F600} \"q\" \u{FFFD}")
        );
        assert_eq!(object.vllm_process.as_deref(), Some("EngineCore"));
    }

    #[test]
    fn keeps_what_a_cut_object_has_whole() {
        let object = read_object(r#"{"levelname": "INFO", "message": "Loading weights to"#);
        assert_eq!(object.level.as_deref(), Some("INFO"));
        assert_eq!(object.message, None);
        assert!(read_object(r#"{"a": [[["#).message.is_none());
        assert!(read_object("{\"a\u{e9}\\").message.is_none());
        assert!(read_object("").message.is_none());
    }

    #[test]
    fn nesting_is_bounded() {
        let deep = format!("{{\"a\": {}", "[".repeat(1_000_000));
        assert!(read_object(&deep).message.is_none());
    }
}
