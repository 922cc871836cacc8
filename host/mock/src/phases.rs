//! The phases of a start: their names, default lengths and the `--phase` syntax.

use serde::{Deserialize, Serialize};

use crate::mono::{NS_PER_S, now_ns};

/// A phase of the server's start, in the order it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Process start → version banner.
    Import,
    /// Banner → engine process initialises.
    Spawn,
    /// Engine initialisation → model load starts.
    Init,
    /// Load start → weights downloaded (0 = already on disk, no line).
    Download,
    /// → weights loaded.
    Weights,
    /// → model loaded.
    Model,
    /// → `torch.compile` done.
    Compile,
    /// → KV cache sized.
    Kv,
    /// → graphs captured.
    Graphs,
    /// → engine ready.
    Warmup,
    /// Engine ready → server start line.
    Server,
    /// Server start → application startup complete, port opened.
    Routes,
}

impl Phase {
    /// All phases in order, with the default length in seconds: a small model on a
    /// warm cache, shortened so that a demo does not take minutes.
    pub const ALL: [(Phase, &'static str, f64); 12] = [
        (Phase::Import, "import", 0.30),
        (Phase::Spawn, "spawn", 0.40),
        (Phase::Init, "init", 0.20),
        (Phase::Download, "download", 0.0),
        (Phase::Weights, "weights", 0.80),
        (Phase::Model, "model", 0.15),
        (Phase::Compile, "compile", 0.60),
        (Phase::Kv, "kv", 0.15),
        (Phase::Graphs, "graphs", 1.0),
        (Phase::Warmup, "warmup", 0.20),
        (Phase::Server, "server", 0.15),
        (Phase::Routes, "routes", 0.05),
    ];

    /// The name used on the command line.
    pub fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Parses a phase name.
    ///
    /// # Errors
    /// An unknown name, with the list of known ones.
    pub fn parse(name: &str) -> Result<Phase, String> {
        Self::ALL
            .iter()
            .find(|(_, n, _)| *n == name)
            .map(|(p, _, _)| *p)
            .ok_or_else(|| {
                let known: Vec<&str> = Self::ALL.iter().map(|(_, n, _)| *n).collect();
                format!(
                    "no start phase is called `{name}`; known phases: {}",
                    known.join(", ")
                )
            })
    }
}

/// The longest phase accepted, seconds.
const MAX_PHASE_S: f64 = 86_400.0;

/// Length of every phase, seconds.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PhaseLengths(Vec<f64>);

impl Default for PhaseLengths {
    fn default() -> Self {
        PhaseLengths(Phase::ALL.iter().map(|(_, _, s)| *s).collect())
    }
}

impl PhaseLengths {
    /// Length of `phase`, seconds.
    pub fn seconds(&self, phase: Phase) -> f64 {
        self.0[phase as usize]
    }

    /// All phases take no time.
    pub fn zero() -> Self {
        PhaseLengths(vec![0.0; Phase::ALL.len()])
    }

    /// Multiplies every phase.
    pub fn scale(&mut self, factor: f64) {
        for s in &mut self.0 {
            *s = (*s * factor).min(MAX_PHASE_S);
        }
    }

    /// Applies `weights=1.5,compile=0.8`.
    ///
    /// # Errors
    /// An unknown phase, a length that is no number, is negative or over a day.
    pub fn apply(&mut self, spec: &str) -> Result<(), String> {
        for part in spec.split(',').map(str::trim).filter(|p| !p.is_empty()) {
            let (name, value) = part.split_once('=').ok_or_else(|| {
                format!("`{part}` is not PHASE=SECONDS (for example `weights=1.5`)")
            })?;
            let phase = Phase::parse(name.trim())?;
            let seconds: f64 = value.trim().parse().map_err(|_| {
                format!(
                    "`{value}` is not a number of seconds for the phase `{}`",
                    phase.name()
                )
            })?;
            if !(0.0..=MAX_PHASE_S).contains(&seconds) {
                return Err(format!(
                    "the phase `{}` must last 0 to {MAX_PHASE_S} seconds, not {seconds}",
                    phase.name()
                ));
            }
            self.0[phase as usize] = seconds;
        }
        Ok(())
    }
}

/// A start later than this beyond its plan was frozen or starved: the plan then
/// moves, so that the phases after a freeze keep their length.
const REBASE_NS: u64 = 20_000_000;

/// Walks along planned instants that do not drift.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    planned_ns: u64,
}

impl Pace {
    /// Starts at `start_ns` (CLOCK_MONOTONIC).
    pub fn from(start_ns: u64) -> Self {
        Pace {
            planned_ns: start_ns,
        }
    }

    /// The instant `seconds` after the last one; moves there.
    pub fn advance(&mut self, seconds: f64) -> u64 {
        let now = now_ns();
        if now > self.planned_ns.saturating_add(REBASE_NS) {
            self.planned_ns = now;
        }
        self.planned_ns = self
            .planned_ns
            .saturating_add((seconds * NS_PER_S as f64).round() as u64);
        self.planned_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_is_in_enum_order() {
        for (i, (phase, name, _)) in Phase::ALL.iter().enumerate() {
            assert_eq!(*phase as usize, i);
            assert_eq!(Phase::parse(name).unwrap(), *phase);
        }
    }

    #[test]
    fn spec_is_checked() {
        let mut p = PhaseLengths::default();
        p.apply("weights=1.5, compile=0.8,").unwrap();
        assert_eq!(p.seconds(Phase::Weights), 1.5);
        assert_eq!(p.seconds(Phase::Compile), 0.8);
        assert!(p.apply("wieghts=1").unwrap_err().contains("known phases"));
        assert!(p.apply("weights").unwrap_err().contains("PHASE=SECONDS"));
        assert!(p.apply("weights=-1").is_err());
        assert!(p.apply("weights=NaN").is_err());
        assert!(p.apply("weights=1e300").is_err());
    }

    #[test]
    fn pace_does_not_drift_but_forgives_a_freeze() {
        let start = now_ns();
        let mut pace = Pace::from(start);
        assert_eq!(pace.advance(0.5), start + 500_000_000);
        assert_eq!(pace.advance(0.25), start + 750_000_000);
        let mut late = Pace::from(start.saturating_sub(10 * NS_PER_S));
        assert!(late.advance(1.0) >= start + NS_PER_S);
    }
}
