//! Collects assertions, and which figures they determine.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::Assertion;
use super::doc::Doc;
use crate::time::{parse_rfc3339, rfc3339};

/// Agreement of seconds, and the most that any agreement may be off.
pub(crate) const TOLERANCE_S: f64 = 1e-6;
/// Relative agreement of statistics.
pub(crate) const TOLERANCE_RELATIVE: f64 = 1e-9;
/// Agreement of instants that follow by integer arithmetic.
pub(crate) const TOLERANCE_EXACT_NS: i64 = 1;
/// Agreement of instants that went through `f64` seconds: one step at 2^60 ns.
pub(crate) const TOLERANCE_F64_NS: i64 = 256;

/// Assertions over one document.
pub(crate) struct Checker<'a> {
    pub(crate) doc: Doc<'a>,
    pub(crate) assertions: Vec<Assertion>,
    /// Figures of which any alteration above the tolerance fails an assertion.
    pub(crate) exact: BTreeSet<String>,
    /// Figures that are only held within bounds, with the names of those checks.
    pub(crate) bounded: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Checker<'a> {
    pub(crate) fn new(root: &'a Value) -> Self {
        Self {
            doc: Doc::new(root),
            assertions: Vec::new(),
            exact: BTreeSet::new(),
            bounded: BTreeMap::new(),
        }
    }

    fn push(&mut self, path: &str, check: &str, ok: bool, expected: String, found: String) {
        self.assertions.push(Assertion {
            id: format!("{path}#{check}"),
            ok,
            expected,
            found,
            where_: vec![path.to_owned()],
        });
    }

    /// Names further evidence in the last assertion, without the claim that it determines it.
    pub(crate) fn mention(&mut self, paths: &[&str]) {
        if let Some(last) = self.assertions.last_mut() {
            for path in paths {
                if !last.where_.iter().any(|w| w == path) {
                    last.where_.push((*path).to_owned());
                }
            }
        }
    }

    /// The figure equals what `evidence` gives; an alteration of it or of any evidence is found.
    pub(crate) fn equal(
        &mut self,
        path: &str,
        check: &str,
        ok: bool,
        expected: String,
        found: String,
        evidence: &[&str],
    ) {
        self.push(path, check, ok, expected, found);
        self.mention(evidence);
        self.exact.insert(path.to_owned());
        self.exact.extend(evidence.iter().map(|p| (*p).to_owned()));
    }

    /// A relation holds that bounds the figure without determining it.
    pub(crate) fn require(
        &mut self,
        path: &str,
        check: &str,
        ok: bool,
        expected: String,
        found: String,
        others: &[&str],
    ) {
        self.push(path, check, ok, expected, found);
        self.mention(others);
        for p in others.iter().copied().chain([path]) {
            self.bounded
                .entry(p.to_owned())
                .or_default()
                .insert(check.to_owned());
        }
    }

    /// A figure is there and has its type.
    fn typed<T>(
        &mut self,
        path: &str,
        what: &str,
        read: impl Fn(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.doc.get(path)?;
        let parsed = read(value);
        if parsed.is_none() {
            self.push(
                path,
                "type",
                false,
                what.to_owned(),
                shorten(&value.to_string()),
            );
        }
        parsed
    }

    /// A finite number; `None` if absent. A value of another type is a failed assertion.
    pub(crate) fn num(&mut self, path: &str) -> Option<f64> {
        self.typed(path, "a finite number", |v| {
            v.as_f64().filter(|x| x.is_finite())
        })
    }

    /// A whole number.
    pub(crate) fn int(&mut self, path: &str) -> Option<i64> {
        self.typed(path, "a whole number", Value::as_i64)
    }

    /// A count.
    pub(crate) fn count(&mut self, path: &str) -> Option<i64> {
        self.typed(path, "a count", |v| v.as_i64().filter(|n| *n >= 0))
    }

    /// A yes or no.
    pub(crate) fn flag(&mut self, path: &str) -> Option<bool> {
        self.typed(path, "true or false", Value::as_bool)
    }

    /// An RFC 3339 stamp, in nanoseconds since the Unix epoch.
    pub(crate) fn stamp(&mut self, path: &str) -> Option<i64> {
        self.typed(path, "an RFC 3339 stamp with its zone", |v| {
            v.as_str().and_then(parse_rfc3339)
        })
    }

    /// A number equals the expected one within a tolerance; an absent figure fails.
    pub(crate) fn eq_num(
        &mut self,
        path: &str,
        check: &str,
        expected: f64,
        tolerance: f64,
        evidence: &[&str],
    ) {
        let found = self.num(path);
        let ok = found.is_some_and(|f| (f - expected).abs() <= tolerance);
        self.equal(path, check, ok, expected.to_string(), show(found), evidence);
    }

    /// A statistic, with its relative tolerance.
    pub(crate) fn eq_stat(&mut self, path: &str, check: &str, expected: f64, evidence: &[&str]) {
        let tolerance = TOLERANCE_RELATIVE * expected.abs().max(1.0);
        self.eq_num(path, check, expected, tolerance, evidence);
    }

    /// A whole number, exactly.
    pub(crate) fn eq_int(&mut self, path: &str, check: &str, expected: i64, evidence: &[&str]) {
        let found = self.int(path);
        self.equal(
            path,
            check,
            found == Some(expected),
            expected.to_string(),
            show(found),
            evidence,
        );
    }

    /// A yes or no.
    pub(crate) fn eq_flag(&mut self, path: &str, check: &str, expected: bool, evidence: &[&str]) {
        let found = self.flag(path);
        self.equal(
            path,
            check,
            found == Some(expected),
            expected.to_string(),
            show(found),
            evidence,
        );
    }

    /// A text.
    pub(crate) fn eq_text(&mut self, path: &str, check: &str, expected: &str, evidence: &[&str]) {
        let found = self.doc.text(path);
        self.equal(
            path,
            check,
            found == Some(expected),
            shorten(expected),
            shorten(found.unwrap_or("absent")),
            evidence,
        );
    }

    /// A stamp.
    pub(crate) fn eq_stamp(
        &mut self,
        path: &str,
        check: &str,
        expected_ns: i64,
        tolerance_ns: i64,
        evidence: &[&str],
    ) {
        let found = self.stamp(path);
        let ok = found.is_some_and(|f| f.abs_diff(expected_ns) <= tolerance_ns.unsigned_abs());
        self.equal(
            path,
            check,
            ok,
            show(rfc3339(expected_ns)),
            show(found.and_then(rfc3339)),
            evidence,
        );
    }

    /// `lo ≤ value ≤ hi`.
    pub(crate) fn within(
        &mut self,
        path: &str,
        check: &str,
        value: f64,
        (lo, hi): (f64, f64),
        others: &[&str],
    ) {
        let ok = (lo..=hi).contains(&value);
        self.require(
            path,
            check,
            ok,
            format!("{lo} to {hi}"),
            value.to_string(),
            others,
        );
    }

    /// Stamps in ascending order (each may be absent).
    pub(crate) fn ascending(&mut self, check: &str, paths: &[&str]) {
        let stamps: Vec<(&str, i64)> = paths
            .iter()
            .filter_map(|p| Some((*p, self.stamp(p)?)))
            .collect();
        for pair in stamps.windows(2) {
            let ((before, a), (after, b)) = (pair[0], pair[1]);
            self.require(
                after,
                check,
                b >= a,
                format!("not before {}", show(rfc3339(a))),
                show(rfc3339(b)),
                &[before],
            );
        }
    }
}

/// A value for people, or "absent".
pub(crate) fn show<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or_else(|| "absent".to_owned(), |v| v.to_string())
}

/// Longest text of a document that is repeated in an assertion.
const MAX_SHOWN_CHARS: usize = 200;

/// Bounds a text.
pub(crate) fn shorten(text: &str) -> String {
    if text.chars().count() <= MAX_SHOWN_CHARS {
        text.to_owned()
    } else {
        let head: String = text.chars().take(MAX_SHOWN_CHARS).collect();
        format!("{head}…")
    }
}
