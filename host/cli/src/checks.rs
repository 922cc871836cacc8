//! Assertions of `verify`: what should be there, what is, and where.

use std::collections::BTreeSet;
use std::path::Path;

use blackstart_record::{ArtifactMismatch, MAX_JSON_BYTES, Manifest, read_bounded, read_json};
use blackstart_require::Figures;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Outcome;
use crate::exit::{Exit, Failure};
use crate::output::{out, out_text};
use crate::reporter::{Reporter, harmless};
use crate::require::Requirements;

/// Differences of one document that are listed; the rest is counted.
const MOST_OF_A_DOCUMENT: usize = 200;
/// Stands for a key that a document does not have, which is not one that is null.
const NO_SUCH_KEY: &str = "no such key";

/// One comparison.
#[derive(Debug, Serialize)]
pub struct Assertion {
    /// What was compared, down to the leaf of a document.
    pub id: String,
    /// Whether both are the same.
    pub ok: bool,
    /// What it should be.
    pub expected: String,
    /// What it is.
    pub found: String,
    /// The file.
    pub r#where: String,
}

/// Something that nothing else in the directory says once more.
#[derive(Debug, Serialize)]
pub struct NotRecomputed {
    /// What.
    pub what: String,
    /// Why.
    pub why: String,
}

/// What `verify --json` prints.
#[derive(Serialize)]
struct Verdict {
    ok: bool,
    assertions: Vec<Assertion>,
    not_recomputed: Vec<NotRecomputed>,
    /// How the objectives of `--require` came out.
    #[serde(flatten)]
    requirements: Value,
}

/// The files of a folder are those that its manifest sealed, as far as a mismatch `counts`.
///
/// # Errors
/// Names every other file (exit 2).
pub fn check_unaltered(
    dir: &Path,
    manifest: &Manifest,
    subject: &str,
    counts: impl Fn(&ArtifactMismatch) -> bool,
) -> Result<(), Failure> {
    let differences: Vec<String> = manifest
        .check(dir)
        .map_err(Failure::internal)?
        .iter()
        .filter(|mismatch| counts(mismatch))
        .map(ToString::to_string)
        .collect();
    if differences.is_empty() {
        return Ok(());
    }
    Err(Failure::message(
        Exit::Invalid,
        format!(
            "{}: the {subject} are not those that the manifest sealed: {}",
            dir.display(),
            differences.join(", ")
        ),
    )
    .help("restore them from a copy; `blackstart verify` lists every difference"))
}

/// Assertions under way.
#[derive(Debug, Default)]
pub struct Checks {
    assertions: Vec<Assertion>,
    not_recomputed: Vec<NotRecomputed>,
}

impl Checks {
    /// Whether all hold so far.
    pub fn hold(&self) -> bool {
        self.assertions.iter().all(|a| a.ok)
    }

    /// Compares two texts.
    pub fn check(
        &mut self,
        id: impl Into<String>,
        expected: impl ToString,
        found: impl ToString,
        place: impl Into<String>,
    ) {
        let (expected, found) = (expected.to_string(), found.to_string());
        self.assertions.push(Assertion {
            id: id.into(),
            ok: expected == found,
            expected,
            found,
            r#where: place.into(),
        });
    }

    /// Something that only its hash holds.
    pub fn only_hashed(&mut self, what: impl Into<String>, why: impl Into<String>) {
        self.not_recomputed.push(NotRecomputed {
            what: what.into(),
            why: why.into(),
        });
    }

    /// Compares a document with a file of the directory: leaf by leaf, and then byte by byte, since
    /// two texts of one document (a key that stands there twice) are still two texts.
    ///
    /// # Errors
    /// When the document cannot be written as JSON.
    pub fn file<T: Serialize>(
        &mut self,
        id: &str,
        recomputed: &T,
        dir: &Path,
        file: &str,
    ) -> Result<(), Failure> {
        let mut text = serde_json::to_vec_pretty(recomputed).map_err(Failure::internal)?;
        text.push(b'\n');
        let path = dir.join(file);
        let published = match read_bounded(&path, MAX_JSON_BYTES) {
            // Nothing differs where no byte does.
            Ok(published) if published == text => {
                self.check(id, "as recomputed", "as recomputed", file);
                return Ok(());
            }
            Ok(published) => published,
            Err(e) => {
                self.check(id, "readable", e, file);
                return Ok(());
            }
        };
        let published: Value = match serde_json::from_slice(&published) {
            Ok(published) => published,
            Err(e) => {
                self.check(id, "readable", e, file);
                return Ok(());
            }
        };
        // Through text, so that a float is compared as a file holds it.
        let recomputed: Value = serde_json::from_slice(&text).map_err(Failure::internal)?;
        let mut differences = Vec::new();
        leaves(&mut differences, id, Some(&recomputed), Some(&published));
        let more = differences.len().saturating_sub(MOST_OF_A_DOCUMENT);
        for (id, expected, found) in differences.drain(..).take(MOST_OF_A_DOCUMENT) {
            self.assertions.push(Assertion {
                id,
                ok: false,
                expected,
                found,
                r#where: file.to_owned(),
            });
        }
        if more > 0 {
            let found = format!("{more} more leaves differ");
            self.check(format!("{id} …"), "as recomputed", found, file);
        } else if self
            .assertions
            .last()
            .is_none_or(|a| a.ok || a.r#where != file)
        {
            // No leaf differs, but a byte does: spaces, the order of keys, a key that stands there twice.
            self.check(
                id,
                "written as recomputed",
                "the same figures, written otherwise",
                file,
            );
        }
        Ok(())
    }

    /// Holds every file of the directory to the manifest. A manifest that is missing or damaged is a
    /// finding, and `None`.
    ///
    /// # Errors
    /// When the directory cannot be read.
    pub fn artifacts(&mut self, dir: &Path) -> Result<Option<Manifest>, Failure> {
        let Some(manifest) = self.readable::<Manifest>("manifest", dir, "manifest.json") else {
            return Ok(None);
        };
        let mismatches = manifest.check(dir).map_err(Failure::internal)?;
        for (path, entry) in &manifest.artifacts {
            let (mut expected, mut found) = (entry.sha256.clone(), entry.sha256.clone());
            for mismatch in &mismatches {
                match mismatch {
                    ArtifactMismatch::Missing(p) if p == path => {
                        found = "no such file".to_owned();
                    }
                    ArtifactMismatch::Changed {
                        path: p,
                        found_sha256,
                        found_bytes,
                        ..
                    } if p == path => {
                        found.clone_from(found_sha256);
                        if found == expected {
                            // Only the size in the manifest is another.
                            expected = format!("{} bytes", entry.bytes);
                            found = format!("{found_bytes} bytes");
                        }
                    }
                    _ => {}
                }
            }
            self.check(format!("sha256 {path}"), expected, found, path.clone());
        }
        for mismatch in &mismatches {
            if let ArtifactMismatch::Unlisted(path) = mismatch {
                self.check(
                    format!("artifact {path}"),
                    "listed in the manifest",
                    "not listed",
                    path.clone(),
                );
            }
        }
        Ok(Some(manifest))
    }

    /// A document; that it cannot be read is a finding.
    pub fn readable<T: DeserializeOwned>(&mut self, id: &str, dir: &Path, file: &str) -> Option<T> {
        match read_json(&dir.join(file)) {
            Ok(document) => Some(document),
            Err(e) => {
                self.check(id, "readable", e, file);
                None
            }
        }
    }

    /// Tells everything; whether all hold.
    ///
    /// # Errors
    /// When the verdict cannot be written as JSON.
    pub fn print(
        self,
        json: bool,
        dir: &Path,
        requirements: &Requirements,
        figures: Option<&Figures>,
    ) -> Outcome {
        let ok = self.hold();
        let failed = self.assertions.iter().filter(|a| !a.ok).count();
        let total = self.assertions.len();
        let only_hashed = self.not_recomputed.len();
        if json {
            let mut required = serde_json::json!({});
            requirements.put_into(&mut required, figures);
            let verdict = Verdict {
                ok,
                assertions: self.assertions,
                not_recomputed: self.not_recomputed,
                requirements: required,
            };
            out!(
                "{}",
                serde_json::to_string_pretty(&verdict).map_err(Failure::internal)?
            );
        } else {
            // Names and texts of an altered directory may be anything.
            for a in &self.assertions {
                if a.ok {
                    out_text!("✓ {}", harmless(&a.id));
                } else {
                    out_text!(
                        "✗ {}: expected {}, found {} ({})",
                        harmless(&a.id),
                        harmless(&a.expected),
                        harmless(&a.found),
                        harmless(&a.r#where)
                    );
                }
            }
            for n in &self.not_recomputed {
                out_text!("– {}: only its hash holds it, {}", harmless(&n.what), n.why);
            }
        }
        Reporter::new().say(format!(
            "{}: {} assertions hold, {failed} do not; {only_hashed} things are held by their hash alone",
            dir.display(),
            total - failed
        ));
        Ok(if ok { Exit::Valid } else { Exit::Invalid })
    }
}

/// Every leaf in which two documents differ: its path, what it should be, and what it is.
fn leaves(
    differences: &mut Vec<(String, String, String)>,
    path: &str,
    recomputed: Option<&Value>,
    published: Option<&Value>,
) {
    match (recomputed, published) {
        (Some(a), Some(b)) if a == b => {}
        (Some(Value::Object(a)), Some(Value::Object(b))) => {
            let keys: BTreeSet<&String> = a.keys().chain(b.keys()).collect();
            for key in keys {
                leaves(
                    differences,
                    &format!("{path}.{key}"),
                    a.get(key),
                    b.get(key),
                );
            }
        }
        (Some(Value::Array(a)), Some(Value::Array(b))) => {
            for i in 0..a.len().max(b.len()) {
                leaves(differences, &format!("{path}[{i}]"), a.get(i), b.get(i));
            }
        }
        (a, b) => {
            let shown =
                |v: Option<&Value>| v.map_or_else(|| NO_SUCH_KEY.to_owned(), ToString::to_string);
            differences.push((path.to_owned(), shown(a), shown(b)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The failed assertions after a document was compared with what a file holds.
    fn failed(recomputed: &Value, file: &str) -> Vec<String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("x.json"), file).unwrap();
        let mut checks = Checks::default();
        checks.file("x", recomputed, dir.path(), "x.json").unwrap();
        assert!(!checks.assertions.is_empty());
        checks
            .assertions
            .into_iter()
            .filter(|a| !a.ok)
            .map(|a| a.id)
            .collect()
    }

    #[test]
    fn every_leaf_is_named_and_every_byte_counts() {
        let was = json!({"a": {"b": [1, 2.5, null]}, "c": true});
        let text = format!("{}\n", serde_json::to_string_pretty(&was).unwrap());
        assert_eq!(failed(&was, &text), [""; 0]);
        for (from, to, named) in [
            ("2.5", "2.50001", "x.a.b[1]"),
            ("null", "0", "x.a.b[2]"),
            ("null", "null, null", "x.a.b[3]"),
            ("true", "false", "x.c"),
            ("\"c\": true", "\"c\": true, \"d\": null", "x.d"),
            // The same figures, but other bytes.
            ("2.5", "2.50", "x"),
            ("\"c\": true", "\"c\": false, \"c\": true", "x"),
        ] {
            assert_eq!(failed(&was, &text.replacen(from, to, 1)), [named], "{to}");
        }
        assert_eq!(failed(&was, "{"), ["x"]);
        assert_eq!(failed(&was, "[]"), ["x"]);
    }

    #[test]
    fn a_document_with_many_differences_does_not_hide_those_of_the_next() {
        let many: Vec<u32> = (0..1_000).collect();
        let found = failed(&json!(many), "[]");
        assert_eq!(found.len(), MOST_OF_A_DOCUMENT + 1);
        assert_eq!(found.last().unwrap(), "x …");
    }
}
