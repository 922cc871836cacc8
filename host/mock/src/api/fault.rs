//! Admin fault modes and the ledger of request ids.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::api::slot::End;

/// What the admin interface can inject.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Healthy.
    #[default]
    None,
    /// The engine's clock stands: streams stop, new requests wait.
    Stall,
    /// Inference requests get an HTTP error status.
    Error,
    /// Streams end with a TCP reset after some tokens.
    StreamAbort,
    /// Inference requests get 200 headers and then nothing.
    SilentHang,
    /// The next start takes longer (needs a state file).
    SlowReload,
}

fn one() -> f64 {
    1.0
}

fn status_500() -> u16 {
    500
}

fn tripled() -> f64 {
    3.0
}

/// A fault with its parameters; the body of `POST /admin/fault`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// Mode.
    pub mode: Mode,
    /// `error`: HTTP status.
    #[serde(default = "status_500")]
    pub status: u16,
    /// `stream_abort`: tokens sent before the reset.
    #[serde(default)]
    pub after_tokens: u32,
    /// Share of requests hit, 0–1: exact over any run of requests, not random.
    #[serde(default = "one")]
    pub fraction: f64,
    /// `error`: wait before the answer, ms.
    #[serde(default)]
    pub delay_ms: u64,
    /// `slow_reload`: factor on the phases of the next start.
    #[serde(default = "tripled")]
    pub factor: f64,
}

impl Default for Fault {
    fn default() -> Self {
        Fault {
            mode: Mode::None,
            status: 500,
            after_tokens: 0,
            fraction: 1.0,
            delay_ms: 0,
            factor: tripled(),
        }
    }
}

impl Fault {
    /// Parses and checks a request body.
    ///
    /// # Errors
    /// One sentence naming the field and the mend.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        /// Longest delay, ms.
        const MAX_DELAY_MS: u64 = 3_600_000;
        let f: Fault = serde_json::from_slice(body).map_err(|e| {
            format!(
                "the body is no fault: {e}; send for example {{\"mode\":\"error\",\"status\":503}}"
            )
        })?;
        if !(400..=599).contains(&f.status) {
            return Err(format!(
                "status must lie between 400 and 599, not {}",
                f.status
            ));
        }
        if !(0.0..=1.0).contains(&f.fraction) {
            return Err(format!(
                "fraction must lie between 0 and 1, not {}",
                f.fraction
            ));
        }
        if !(0.0..=1e6).contains(&f.factor) {
            return Err(format!(
                "factor must lie between 0 and 1000000, not {}",
                f.factor
            ));
        }
        if f.delay_ms > MAX_DELAY_MS {
            return Err(format!(
                "delay_ms must be at most {MAX_DELAY_MS}, not {}",
                f.delay_ms
            ));
        }
        Ok(f)
    }
}

/// The fault in force and its running credit.
#[derive(Debug, Default)]
pub struct Injector {
    fault: Fault,
    credit: f64,
}

impl Injector {
    /// Changes the fault.
    pub fn set(&mut self, fault: Fault) {
        *self = Injector { fault, credit: 0.0 };
    }

    /// The fault in force.
    pub fn fault(&self) -> &Fault {
        &self.fault
    }

    /// The fault that the next inference request gets, if any.
    pub fn draw(&mut self) -> Option<Fault> {
        match self.fault.mode {
            Mode::None | Mode::Stall | Mode::SlowReload => None,
            Mode::Error | Mode::StreamAbort | Mode::SilentHang => {
                self.credit += self.fault.fraction;
                // Tolerates the rounding of sums like 10 × 0.1.
                const SLACK: f64 = 1e-9;
                if self.credit + SLACK < 1.0 {
                    return None;
                }
                self.credit -= 1.0;
                Some(self.fault.clone())
            }
        }
    }
}

/// Request ids tracked; beyond it only totals are kept.
const MAX_IDS: usize = 1_000_000;
/// Duplicate ids listed by name.
const MAX_LISTED: usize = 100;

/// Counts requests, their ids and how they ended.
#[derive(Debug, Default)]
pub struct Ledger {
    received: u64,
    without_id: u64,
    untracked: u64,
    ended: u64,
    ids: HashMap<String, u32>,
    outcomes: BTreeMap<&'static str, u64>,
}

impl Ledger {
    /// A request arrived.
    pub fn arrive(&mut self, id: Option<&str>) {
        self.received += 1;
        match id {
            None => self.without_id += 1,
            Some(id) => {
                if let Some(n) = self.ids.get_mut(id) {
                    *n = n.saturating_add(1);
                } else if self.ids.len() < MAX_IDS {
                    self.ids.insert(id.to_owned(), 1);
                } else {
                    self.untracked += 1;
                }
            }
        }
    }

    /// A request ended.
    pub fn end(&mut self, end: End) {
        self.ended += 1;
        *self.outcomes.entry(end.word()).or_default() += 1;
    }

    /// The body of `GET /admin/requests`.
    pub fn report(&self) -> Value {
        let duplicates: u64 = self.ids.values().map(|n| u64::from(n - 1)).sum();
        let mut listed: Vec<(&String, u32)> = self
            .ids
            .iter()
            .filter(|(_, n)| **n > 1)
            .map(|(id, n)| (id, *n))
            .collect();
        listed.sort();
        listed.truncate(MAX_LISTED);
        json!({
            "received": self.received,
            "in_flight": self.received - self.ended,
            "unique_ids": self.ids.len(),
            "duplicates": duplicates,
            "duplicate_ids": listed.into_iter().map(|(id, n)| (id.clone(), n.into())).collect::<serde_json::Map<String, Value>>(),
            "without_id": self.without_id,
            "untracked": self.untracked,
            "outcomes": self.outcomes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fractions_are_exact() {
        let mut i = Injector::default();
        i.set(Fault {
            mode: Mode::Error,
            fraction: 0.1,
            ..Fault::default()
        });
        let hits: Vec<bool> = (0..100).map(|_| i.draw().is_some()).collect();
        assert_eq!(hits.iter().filter(|h| **h).count(), 10);
        assert!(hits[9] && !hits[0]);
        i.set(Fault {
            mode: Mode::Stall,
            ..Fault::default()
        });
        assert!(i.draw().is_none());
    }

    #[test]
    fn bodies_are_checked() {
        let f = Fault::parse(br#"{"mode":"stream_abort","after_tokens":3}"#).unwrap();
        assert_eq!(
            (f.mode, f.after_tokens, f.fraction),
            (Mode::StreamAbort, 3, 1.0)
        );
        for bad in [
            r#"{"mode":"lunch"}"#,
            r#"{"mode":"error","status":200}"#,
            r#"{"mode":"error","fraction":1.5}"#,
            r#"{"mode":"error","typo":1}"#,
            "",
        ] {
            assert!(Fault::parse(bad.as_bytes()).is_err(), "{bad}");
        }
    }

    #[test]
    fn ledger_counts_add_up() {
        let mut l = Ledger::default();
        for id in [Some("a"), Some("b"), Some("a"), None, Some("a")] {
            l.arrive(id);
        }
        l.end(End::Done);
        l.end(End::Reset);
        let r = l.report();
        assert_eq!(r["received"], 5);
        assert_eq!(r["in_flight"], 3);
        assert_eq!(r["unique_ids"], 2);
        assert_eq!(r["duplicates"], 2);
        assert_eq!(r["duplicate_ids"]["a"], 3);
        assert_eq!(r["without_id"], 1);
        assert_eq!(r["outcomes"]["reset"], 1);
    }
}
