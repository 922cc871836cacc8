//! The rule table: which literal, where in a record it may stand, and what it means.
//!
//! Message text alone decides; the same rules serve 0.4 … 0.33. To teach the matcher
//! a new wording, add a rule to the module of its kind.

mod engine;
mod failure;
mod lifecycle;
mod startup;

pub(crate) use startup::logo_model;

use crate::text::{Cursor, floor_char};
use crate::{Field, Measure};

/// Where a literal may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// At the start of the message, apart from `[tag] `. Without a head: behind
    /// anything that is not a quotation.
    Message,
    /// As `Message`, or behind `SomeError: ` and a dotted path. Source lines of a
    /// traceback (`raise …`) are refused, and so are records below `ERROR`.
    Exception,
    /// Anywhere outside quotations, in records of `ERROR` and above or without a head.
    Within,
    /// Anywhere; the rule's own function looks at what stands before.
    Free,
}

/// One wording of one boundary.
pub struct Rule {
    /// Constant part, at least [`crate::prefilter::WINDOW`] bytes.
    pub literal: &'static str,
    /// Where it may stand.
    pub anchor: Anchor,
    /// Boundary key.
    pub key: &'static str,
    /// Reads the rest; `None` where it is not this boundary after all.
    pub read: fn(&Site<'_>) -> Option<Found>,
}

/// Surroundings of a literal in a record.
pub struct Site<'a> {
    /// Text of the record before the literal.
    pub before: &'a str,
    /// Text of the record behind the literal.
    pub after: &'a str,
    /// Level of the record's head; `None` without a head.
    pub level: Option<&'a str>,
}

impl<'a> Site<'a> {
    fn cursor(&self) -> Cursor<'a> {
        Cursor(self.after)
    }

    fn headed(&self) -> bool {
        self.level.is_some()
    }
}

/// What a rule read.
#[derive(Debug, Default)]
pub struct Found {
    /// Figures.
    pub measures: Vec<Measure>,
    /// Texts.
    pub fields: Vec<Field>,
    /// Replaces the rule's key.
    pub key: Option<&'static str>,
    /// The wording serves both a failed start and a later death: which, the
    /// server's state decides.
    pub start_or_death: bool,
    /// Somebody asked the server to stop, in good order.
    pub stop_asked: bool,
}

/// Longest text kept in a field.
const MAX_FIELD_BYTES: usize = 256;

impl Found {
    fn measure(mut self, name: &'static str, value: f64, unit: &'static str) -> Self {
        self.measures.push(Measure { name, value, unit });
        self
    }

    fn seconds(self, name: &'static str, value: f64) -> Self {
        self.measure(name, value, "s")
    }

    fn gib(self, name: &'static str, value: f64) -> Self {
        self.measure(name, value, "GiBy")
    }

    fn field(mut self, key: &'static str, value: &str) -> Self {
        let value = value.trim_matches(|c: char| c.is_whitespace() || c == '│');
        if !value.is_empty() {
            let value = &value[..floor_char(value, MAX_FIELD_BYTES)];
            self.fields.push(Field {
                key,
                value: value.to_owned(),
            });
        }
        self
    }

    fn field_if(self, key: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.field(key, value),
            None => self,
        }
    }
}

/// All rules. Of several that fit one record, the first counts: the cause stands
/// before the symptom.
pub fn table() -> Vec<Rule> {
    [
        failure::rules(),
        engine::rules(),
        lifecycle::rules(),
        startup::rules(),
    ]
    .into_iter()
    .flatten()
    .collect()
}

impl Rule {
    /// Reads the boundary at a literal's site.
    pub fn apply(&self, site: &Site<'_>) -> Option<Found> {
        let admitted = match self.anchor {
            Anchor::Free => true,
            Anchor::Message if site.headed() => skip_tags(site.before).is_empty(),
            Anchor::Message => free_of_quotes(site.before) && ends_word(site.before),
            Anchor::Exception if site.headed() => severe(site.level) && exception_path(site.before),
            Anchor::Exception => exception_without_head(site.before),
            Anchor::Within => severe(site.level) && free_of_quotes(site.before),
        };
        if admitted { (self.read)(site) } else { None }
    }
}

fn severe(level: Option<&str>) -> bool {
    level.is_none_or(|level| matches!(level, "ERROR" | "CRITICAL"))
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn ends_word(before: &str) -> bool {
    !before.ends_with(is_word)
}

/// How far back a quotation is looked for.
const MAX_QUOTE_BYTES: usize = 512;

fn free_of_quotes(before: &str) -> bool {
    let from = crate::text::ceil_char(before, before.len().saturating_sub(MAX_QUOTE_BYTES));
    !before[from..].contains(['\'', '"', '`'])
}

/// Strips white space, the tree of an exception group, and `[tag] `.
fn skip_tags(mut before: &str) -> &str {
    /// `[rank0]: `, `[backbone] `, `[Errno 98] `.
    const MAX_TAG_BYTES: usize = 48;
    loop {
        before = before.trim_start_matches([' ', '\t', '\r', '|', '+', '-']);
        let Some(tag) = before.strip_prefix('[') else {
            return before;
        };
        match tag.find(']') {
            Some(end) if end <= MAX_TAG_BYTES => {
                before = tag[end + 1..].trim_start_matches(':');
            }
            _ => return before,
        }
    }
}

/// Whether `before` is nothing but tags, `Name: ` parts and the start of a dotted path.
fn exception_path(before: &str) -> bool {
    let mut rest = skip_tags(before);
    loop {
        let path = rest
            .find(|c: char| !is_word(c) && !matches!(c, '.' | '(' | ')'))
            .unwrap_or(rest.len());
        rest = &rest[path..];
        if rest.is_empty() {
            return true;
        }
        let Some(after) = rest.strip_prefix(": ") else {
            return false;
        };
        rest = skip_tags(after);
    }
}

/// Without a head, an exception may stand behind white space, a wrapper's stamp or
/// mark (`host vllm[9]: `, `name-1  | `, `stderr F `) and `OtherError: `; behind a word
/// (`raise`, `except`, prose) it is not one.
fn exception_without_head(before: &str) -> bool {
    let wrapper = before.trim_end_matches(|c: char| is_word(c) || c == '.');
    if !free_of_quotes(wrapper)
        || wrapper.contains('#')
        || wrapper.contains("NCCL INFO")
        || wrapper.contains("NCCL WARN")
    {
        return false;
    }
    match wrapper.split_whitespace().next_back() {
        None => true,
        Some("F" | "P") => true,
        Some(last) if last.ends_with('Z') => last.starts_with(|c: char| c.is_ascii_digit()),
        Some(last) => last.ends_with([':', ']', ')', '|', '│', '+', '-', '>']),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prefilter::WINDOW;

    #[test]
    fn literals_are_long_enough_for_the_prefilter() {
        for rule in table() {
            assert!(rule.literal.len() >= WINDOW, "{:?}", rule.literal);
        }
    }

    #[test]
    fn every_key_is_described() {
        let described: Vec<_> = crate::describe::BOUNDARIES.iter().map(|b| b.key).collect();
        for rule in table() {
            assert!(described.contains(&rule.key), "{}", rule.key);
        }
    }

    #[test]
    fn exception_paths() {
        for before in [
            "",
            "torch.cuda.",
            "RuntimeError: ",
            "  | [rank0]: a.b.CError: ",
            "OSError: [Errno 12] ",
        ] {
            assert!(exception_path(before), "{before:?}");
        }
        for before in ["raise ", "    raise a.b.", "the ", "x = ", "File \"a\", "] {
            assert!(!exception_path(before), "{before:?}");
        }
        for before in [
            "",
            "torch.",
            "(A pid=1) RuntimeError: ",
            "[rank0]: ",
            "vllm-1  | a.",
            "2026-10-02T16:15:43.1Z ",
        ] {
            assert!(exception_without_head(before), "{before:?}");
        }
        for before in [
            "    raise ",
            "raise RuntimeError(f\"",
            "# ",
            "h:1:2 [0] NCCL WARN ",
            "f(",
            "about ",
        ] {
            assert!(!exception_without_head(before), "{before:?}");
        }
    }
}
