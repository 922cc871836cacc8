//! World `validity-gate`: may this run count?
//!
//! ```
//! use blackstart_sdk::gate::*;
//! use blackstart_sdk::{Error, NoConfig};
//!
//! /// Baseline goodput of at least 0.99.
//! struct Baseline;
//!
//! impl ValidityGate for Baseline {
//!     type Config = NoConfig;
//!
//!     fn describe() -> GateDescription {
//!         GateDescription {
//!             summary: "The service was healthy before the fault.".into(),
//!             id: "G6".into(),
//!             title: "baseline".into(),
//!             severity: Severity::InvalidatesRun,
//!             label: None,
//!             needs: vec!["goodput.baseline".into()],
//!         }
//!     }
//!
//!     fn evaluate(_: NoConfig, evidence: &dyn Evidence) -> Result<Finding, Error> {
//!         let mut check = Check::new(evidence);
//!         if let Some(goodput) = check.scalar("goodput.baseline") {
//!             check.require(goodput >= 0.99, format!("baseline goodput {goodput:.4}, at least 0.99"));
//!         }
//!         Ok(check.conclude())
//!     }
//! }
//!
//! // In a guest crate (a `cdylib`), once: blackstart_sdk::register!(gate: Baseline);
//! let mut run = blackstart_sdk::testing::FakeEvidence::default();
//! run.set("goodput.baseline", 0.98, "1");
//! let finding = Baseline::evaluate(NoConfig {}, &run).unwrap();
//! assert_eq!(finding.verdict, Verdict::Fail);
//! ```

use std::marker::PhantomData;

use crate::bindings::gate::blackstart::plugin::evidence as imported;
use crate::bindings::gate::exports::blackstart::plugin::gate as exported;
use crate::config::{self, PluginConfig};
use crate::identity::Identity;
use crate::{Error, Measure, ReplicaId, log, panic};

pub use exported::{GateInfo, Severity};
pub use imported::{FaultRecord, LoggedEvent, Outcome, Point, RequestRecord, Window};

/// What a gate says about itself; name and version come from its `Cargo.toml`.
#[derive(Debug, Clone, PartialEq)]
pub struct GateDescription {
    /// One line for people.
    pub summary: String,
    /// Stable id used in configurations and reports (`G1`).
    pub id: String,
    /// A word or two for tables.
    pub title: String,
    /// What it means when the gate does not hold.
    pub severity: Severity,
    /// With [`Severity::StripsLabel`]: the label this gate decides.
    pub label: Option<String>,
    /// Scalars this gate reads; `<replica>` in a name stands for each replica.
    pub needs: Vec<String>,
}

/// The run's evidence, read only. Pages are at most 4096 long.
pub trait Evidence {
    /// A scalar of the analysis; `None` means not measured, which is not zero.
    fn scalar(&self, name: &str) -> Option<Measure>;
    /// Why a scalar is absent, in one sentence.
    fn scalar_absence(&self, name: &str) -> Option<String>;
    /// The run's windows.
    fn windows(&self) -> Vec<Window>;
    /// Faults of this run.
    fn faults(&self) -> Vec<FaultRecord>;
    /// Replicas that the configuration declares.
    fn replicas(&self) -> Vec<ReplicaId>;
    /// A page of requests whose intended time falls in the window, in that order.
    fn requests(&self, window: &str, offset: u64, limit: u32) -> Vec<RequestRecord>;
    /// How many requests fall in the window.
    fn request_count(&self, window: &str) -> u64;
    /// A sampled series; `None` means not measured.
    fn series(&self, name: &str) -> Option<Vec<Point>>;
    /// A page of log boundaries in the window.
    fn log_events(&self, window: &str, offset: u64, limit: u32) -> Vec<LoggedEvent>;
}

/// What a gate found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Applicable, observed, holds.
    Pass,
    /// Applicable, observed, does not hold.
    Fail,
    /// Applicable, but the evidence is missing. Never a pass.
    NotObserved,
    /// The rule does not speak of this run. Never a pass either.
    NotApplicable,
}

/// A verdict, the sentence that goes with it and the figures it rests on.
#[derive(Debug, Clone, PartialEq)]
pub struct Finding {
    /// What was found.
    pub verdict: Verdict,
    /// Why, with the figures. A pass has no room for it in the interface: there it goes
    /// to the log.
    pub statement: String,
    /// The figures.
    pub measures: Vec<Measure>,
}

impl Finding {
    /// The rule does not speak of this run, for this reason.
    #[must_use]
    pub fn not_applicable(why: impl Into<String>) -> Self {
        Finding {
            verdict: Verdict::NotApplicable,
            statement: why.into(),
            measures: Vec::new(),
        }
    }
}

/// A validity gate.
pub trait ValidityGate: 'static {
    /// The plugin's own configuration table ([`crate::NoConfig`] if there is none).
    type Config: PluginConfig;

    /// What the gate is.
    fn describe() -> GateDescription;

    /// Judges one run.
    ///
    /// # Errors
    /// Only where no verdict is possible at all; missing evidence is
    /// [`Verdict::NotObserved`].
    fn evaluate(config: Self::Config, evidence: &dyn Evidence) -> Result<Finding, Error>;
}

/// Builds a finding so that missing evidence can never become a pass: every figure read
/// is kept, every one that is missing is remembered with its reason.
pub struct Check<'e> {
    evidence: &'e dyn Evidence,
    measures: Vec<Measure>,
    held: Vec<String>,
    broken: Vec<String>,
    missing: Vec<String>,
}

impl<'e> Check<'e> {
    /// Starts on a run.
    #[must_use]
    pub fn new(evidence: &'e dyn Evidence) -> Self {
        Check {
            evidence,
            measures: Vec::new(),
            held: Vec::new(),
            broken: Vec::new(),
            missing: Vec::new(),
        }
    }

    /// Reads a scalar that the rule needs. `None` (not measured, or not a number) has been
    /// noted with its reason: the verdict will not be a pass.
    pub fn scalar(&mut self, name: &str) -> Option<f64> {
        match self.evidence.scalar(name) {
            Some(measure) if measure.value.is_finite() => {
                let value = measure.value;
                self.measures.push(measure);
                Some(value)
            }
            Some(measure) => {
                self.unobserved(format!("`{name}` is {}, which is no figure", measure.value));
                None
            }
            None => {
                let why = self.evidence.scalar_absence(name);
                let why = why.unwrap_or_else(|| "no reason was given".to_owned());
                self.unobserved(format!("`{name}` was not measured: {why}"));
                None
            }
        }
    }

    /// Notes evidence that is missing, in a sentence.
    pub fn unobserved(&mut self, why: impl Into<String>) {
        self.missing.push(why.into());
    }

    /// Notes a condition with its figures: `what` says the figure and the limit.
    pub fn require(&mut self, holds: bool, what: impl Into<String>) {
        if holds {
            self.held.push(what.into());
        } else {
            self.broken.push(what.into());
        }
    }

    /// Adds a remark that decides nothing.
    pub fn note(&mut self, what: impl Into<String>) {
        self.held.push(what.into());
    }

    /// Adds a figure that was computed here.
    pub fn measured(&mut self, measure: Measure) {
        self.measures.push(measure);
    }

    /// A broken condition fails whatever else is missing; missing evidence, or a rule that
    /// looked at nothing, is not observed; only the rest passes.
    #[must_use]
    pub fn conclude(self) -> Finding {
        let (verdict, mut sentences) = if !self.broken.is_empty() {
            (Verdict::Fail, self.broken)
        } else if !self.missing.is_empty() {
            (Verdict::NotObserved, Vec::new())
        } else if self.held.is_empty() {
            let why = "the rule found nothing to look at".to_owned();
            (Verdict::NotObserved, vec![why])
        } else {
            (Verdict::Pass, self.held)
        };
        sentences.extend(self.missing);
        Finding {
            verdict,
            statement: sentences.join("; "),
            measures: self.measures,
        }
    }
}

/// The evidence behind the world's imports.
struct Imports;

impl Evidence for Imports {
    fn scalar(&self, name: &str) -> Option<Measure> {
        imported::scalar(name)
    }

    fn scalar_absence(&self, name: &str) -> Option<String> {
        imported::scalar_absence(name)
    }

    fn windows(&self) -> Vec<Window> {
        imported::windows()
    }

    fn faults(&self) -> Vec<FaultRecord> {
        imported::faults()
    }

    fn replicas(&self) -> Vec<ReplicaId> {
        imported::replicas()
    }

    fn requests(&self, window: &str, offset: u64, limit: u32) -> Vec<RequestRecord> {
        imported::requests(window, offset, limit)
    }

    fn request_count(&self, window: &str) -> u64 {
        imported::request_count(window)
    }

    fn series(&self, name: &str) -> Option<Vec<Point>> {
        imported::series(name)
    }

    fn log_events(&self, window: &str, offset: u64, limit: u32) -> Vec<LoggedEvent> {
        imported::log_events(window, offset, limit)
    }
}

/// Binds a [`ValidityGate`] to the generated export; [`crate::register!`] uses it.
#[doc(hidden)]
pub struct Component<T, I>(PhantomData<(T, I)>);

impl<T: ValidityGate, I: Identity + 'static> exported::Guest for Component<T, I> {
    fn describe() -> GateInfo {
        panic::report_to_host();
        let about = T::describe();
        GateInfo {
            plugin: crate::identity::plugin_info::<I, T::Config>(about.summary),
            id: about.id,
            title: about.title,
            severity: about.severity,
            label: about.label,
            needs: about.needs,
        }
    }

    fn evaluate(config: String) -> Result<exported::Finding, Error> {
        panic::report_to_host();
        let config = config::parse::<T::Config>(&config)?;
        let finding = T::evaluate(config, &Imports)?;
        let verdict = match finding.verdict {
            Verdict::Pass => {
                log::info(&finding.statement);
                exported::Verdict::Pass
            }
            Verdict::Fail => exported::Verdict::Fail(finding.statement),
            Verdict::NotObserved => exported::Verdict::NotObserved(finding.statement),
            Verdict::NotApplicable => exported::Verdict::NotApplicable(finding.statement),
        };
        Ok(exported::Finding {
            verdict,
            measures: finding.measures,
        })
    }
}
