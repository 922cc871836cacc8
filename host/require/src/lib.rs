//! Objectives that figures are held to: `ttr_pre_fault_s.median <= 30 and valid_runs >= 5`.
//!
//! A requirement is met only where that is certain. A figure that was not measured or not reached
//! meets none, and a figure with an uncertainty meets a bound only with all of its interval. Pure and
//! bounded: a text from a command line, however long or deep, gives a requirement or an error.
//!
//! A language of its own, since that is its point: of the evaluators that others keep, none knows a
//! value that is not measured from one that is false, or a number with an uncertainty, and none can
//! list the names that a text uses before there are values.

mod evaluate;
mod figure;
mod figures;
mod parse;

pub use evaluate::{Answer, Holds};
pub use figure::{Figure, Figures};
pub use figures::{
    campaign_figures, campaign_names, comparison_figures, comparison_names, load_figures,
    load_names,
};
pub use parse::{MAX_DEPTH, MAX_LENGTH, ParseError, Requirement};

use std::collections::BTreeSet;

/// Most names that an unknown one is said to resemble.
const MOST_SUGGESTED: usize = 3;

/// A name that no figure has.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no figure `{name}`")]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// Names like it, the nearest first.
    pub nearest: Vec<String>,
}

impl Requirement {
    /// Checks that every name is one of these.
    ///
    /// # Errors
    /// The first that is not, with those that resemble it.
    pub fn check(&self, known: &BTreeSet<String>) -> Result<(), UnknownName> {
        match self.names().into_iter().find(|name| !known.contains(*name)) {
            None => Ok(()),
            Some(name) => Err(UnknownName {
                name: name.to_owned(),
                nearest: nearest(name, known),
            }),
        }
    }
}

/// The names that differ least from one, as far as they resemble it at all.
fn nearest(name: &str, known: &BTreeSet<String>) -> Vec<String> {
    let mut ranked: Vec<(usize, &String)> = known
        .iter()
        .map(|k| (distance(name, k), k))
        // A name that is only the beginning or the end of another is meant to be it.
        .map(|(d, k)| {
            if k.contains(name) {
                (d.min(2), k)
            } else {
                (d, k)
            }
        })
        .filter(|(d, k)| *d <= name.len().max(k.len()) / 2)
        .collect();
    ranked.sort();
    ranked
        .into_iter()
        .take(MOST_SUGGESTED)
        .map(|(_, k)| k.clone())
        .collect()
}

/// Levenshtein's distance in bytes. Both are short: names are bounded by [`MAX_LENGTH`].
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.bytes().enumerate() {
        let mut corner = row[0];
        row[0] = i + 1;
        for (j, y) in b.bytes().enumerate() {
            let change = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = change.min(row[j] + 1).min(corner + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known() -> BTreeSet<String> {
        [
            "ttr_pre_fault_s.median",
            "ttr_pre_fault_s.mean",
            "outage_s.median",
            "goodput",
        ]
        .map(str::to_owned)
        .into()
    }

    #[test]
    fn an_unknown_name_is_told_with_those_like_it() {
        for (text, near) in [
            ("ttr_prefault_s.median <= 1", "ttr_pre_fault_s.median"),
            ("good_put <= 1", "goodput"),
            ("outage_s <= 1", "outage_s.median"),
        ] {
            let error = Requirement::parse(text)
                .unwrap()
                .check(&known())
                .unwrap_err();
            assert_eq!(error.nearest[0], near, "{text}");
        }
        let error = Requirement::parse("xyzzy == 1").unwrap().check(&known());
        assert_eq!(error.unwrap_err().nearest, [""; 0]);
        assert_eq!(distance("kitten", "sitting"), 3);
        assert_eq!(distance("", "abc"), 3);
    }
}
