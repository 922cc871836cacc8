//! `--require`: objectives of the user, and exit code 6 when one is not met.
//!
//! Names are checked before anything starts. What a command found out otherwise comes first: an
//! invalid run (2) has no figures that could meet anything, an interrupt (130) ends before them.

use std::collections::BTreeSet;

use blackstart_require::{Figure, Figures, Holds, Requirement};
use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Exit, Failure};
use crate::reporter::{Reporter, harmless};

/// Most requirements of one command.
const MAX_REQUIREMENTS: usize = 100;

/// Option of every command that has figures.
#[derive(Debug, Clone, Default, Args)]
pub struct Requirements {
    /// An objective, such as 'outage_s.median <= 30 and valid_runs >= 5'; exit code 6 if it is not met
    /// (may be given several times)
    #[arg(long = "require", value_name = "EXPR", value_parser = Requirement::parse)]
    all: Vec<Requirement>,
}

impl Requirements {
    /// Checks that every name is one of these; to be called before anything is started.
    ///
    /// # Errors
    /// With the names like it (exit 3).
    pub fn check(&self, known: &BTreeSet<String>) -> Result<(), Failure> {
        let wrong = |what: String| Failure::message(Exit::Configuration, what);
        if self.all.len() > MAX_REQUIREMENTS {
            let what = format!(
                "--require is given {} times; at most {MAX_REQUIREMENTS}",
                self.all.len()
            );
            return Err(wrong(what).help("join them by `and`"));
        }
        for requirement in &self.all {
            requirement.check(known).map_err(|e| {
                let help = match &e.nearest[..] {
                    [] => "docs/require.md lists every name".to_owned(),
                    near => format!("there is {}", near.join(", ")),
                };
                wrong(harmless(&format!("--require '{requirement}': {e}"))).help(help)
            })?;
        }
        Ok(())
    }

    /// Puts how each came out into a command's JSON, under `requirements`; nothing where none was given.
    pub fn put_into(&self, document: &mut Value, figures: Option<&Figures>) {
        if self.all.is_empty() {
            return;
        }
        let none = Figures::new();
        let figures = figures.unwrap_or(&none);
        let answers: Vec<Value> = self
            .all
            .iter()
            .map(|requirement| {
                let answer = requirement.answer(figures);
                let named = answer.figures.iter().map(|(name, figure)| {
                    let mut said = match figure {
                        Figure::Number { value, uncertainty } => {
                            json!({ "value": value, "uncertainty": uncertainty })
                        }
                        Figure::Word(word) => json!({ "value": word }),
                        Figure::NotMeasured(why) => json!({ "value": null, "not_measured": why }),
                        Figure::NotReached(why) => json!({ "value": null, "not_reached": why }),
                    };
                    said["name"] = json!(name);
                    said
                });
                json!({
                    "requirement": answer.requirement,
                    "verdict": match answer.holds {
                        Holds::Yes => "met",
                        Holds::No => "not met",
                        Holds::Unknown => "unknown",
                    },
                    "figures": named.collect::<Vec<_>>(),
                })
            })
            .collect();
        document["requirements"] = Value::Array(answers);
    }

    /// Tells how each came out. `exit` is the exit code without them, and stands if it is not 0;
    /// without figures none is met.
    pub fn conclude(&self, exit: Exit, figures: Option<&Figures>) -> Exit {
        let none = Figures::new();
        let figures = figures.unwrap_or(&none);
        let reporter = Reporter::new();
        let mut met = true;
        for requirement in &self.all {
            let answer = requirement.answer(figures);
            met &= answer.met();
            reporter.say(harmless(&answer.to_string()));
        }
        match exit {
            Exit::Valid if !met => Exit::NotMet,
            exit => exit,
        }
    }
}

/// No requirement can be held to something that has no figures.
///
/// # Errors
/// When one was given (exit 3).
pub fn refuse(requirements: &Requirements, why: &str) -> Result<(), Failure> {
    if requirements.all.is_empty() {
        return Ok(());
    }
    Err(Failure::message(
        Exit::Configuration,
        format!("--require: {why}"),
    ))
}
