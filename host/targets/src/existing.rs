//! A replica that already runs: found by pid or by command line, never started, never stopped.

use std::path::Path;
use std::sync::Mutex;

use blackstart_clock::{RunClock, monotonic_ns};
use blackstart_plan::{ReplicaPlan, RuntimePlan};
use blackstart_record::{Event, EventKind};
use regex::{Regex, RegexBuilder};

use crate::error::TargetError;
use crate::guard::{Protected, lock};
use crate::process_ref::ProcessRef;
use crate::tail::LogTail;
use crate::{EventSink, proc};

/// Most candidates listed in an error.
const MAX_CANDIDATES: usize = 8;
/// Most bytes of a compiled expression.
const MAX_REGEX_BYTES: usize = 1 << 20;
/// Most processes remembered as once of the replica.
const MAX_REMEMBERED: usize = 4096;

/// How the main process is found.
#[derive(Debug)]
enum Finder {
    /// Given, and held: a later process with the same pid is another.
    Pid(u32, u64),
    Match(Regex),
    /// The configuration names no process: only load, no victim.
    Nothing,
}

/// How fresh the remembered tree is kept while effects follow each other closely.
const TREE_AGE_NS: i64 = 100 * blackstart_clock::NS_PER_MS;

/// What was seen of it.
#[derive(Debug, Default)]
struct Seen {
    /// When its tree was last read, monotonic.
    looked_at: i64,
    main: Option<(u32, u64)>,
    /// Descendants of the present main process.
    tree: Vec<(u32, u64)>,
    /// Descendants of earlier main processes.
    orphans: Vec<(u32, u64)>,
}

/// A running replica.
#[derive(Debug)]
pub struct Existing {
    replica: String,
    finder: Finder,
    seen: Mutex<Seen>,
    _tail: Option<LogTail>,
}

impl Existing {
    /// Finds the main process, if the configuration names one, and follows the log, if it names
    /// one.
    ///
    /// # Errors
    /// When the named process does not exist, is not exactly one, or may not be harmed; when the
    /// log cannot be read.
    pub fn attach(
        replica: &ReplicaPlan,
        log_path: &Path,
        clock: RunClock,
        protected: &Protected,
        sink: EventSink,
    ) -> Result<Self, TargetError> {
        let id = &replica.id;
        let RuntimePlan::Url {
            log_file,
            pid,
            command_match,
        } = &replica.runtime
        else {
            return Err(TargetError::LaunchFailed {
                replica: id.clone(),
                reason: "its runtime is not `url`".to_owned(),
            });
        };
        let finder = match (pid, command_match) {
            (Some(pid), _) => {
                let held = ProcessRef::open(*pid).map_err(|_| TargetError::PidNotFound {
                    replica: id.clone(),
                    pid: *pid,
                })?;
                protected.check(*pid, held.start_time())?;
                Finder::Pid(*pid, held.start_time())
            }
            (None, Some(pattern)) => Finder::Match(
                RegexBuilder::new(pattern)
                    .size_limit(MAX_REGEX_BYTES)
                    .build()
                    .map_err(|e| TargetError::BadMatch {
                        replica: id.clone(),
                        reason: e.to_string(),
                    })?,
            ),
            (None, None) => Finder::Nothing,
        };
        let tail = match log_file {
            None => None,
            Some(source) => {
                let name = id.clone();
                let report = move |reason: String| {
                    sink(Event {
                        at_ns: clock.now(),
                        kind: EventKind::Note {
                            text: format!(
                                "log of replica `{name}` could not be followed any further: \
                                 {reason}"
                            ),
                        },
                    });
                };
                let tail = LogTail::follow(Path::new(source), log_path, clock, report);
                Some(tail.map_err(|(path, e)| TargetError::Log {
                    replica: id.clone(),
                    path,
                    reason: e.to_string(),
                })?)
            }
        };
        let this = Self {
            replica: id.clone(),
            finder,
            seen: Mutex::default(),
            _tail: tail,
        };
        if !matches!(this.finder, Finder::Nothing) {
            this.look(protected)?;
        }
        Ok(this)
    }

    /// The main process now. A process that is held by pid costs one small read, unless the
    /// remembered tree has aged.
    ///
    /// # Errors
    /// See [`Self::look`].
    pub(crate) fn main(&self, protected: &Protected) -> Result<(u32, u64), TargetError> {
        if let Finder::Pid(pid, start_time) = self.finder {
            let fresh = monotonic_ns() - lock(&self.seen).looked_at < TREE_AGE_NS;
            if fresh && proc::stat(pid).is_ok_and(|s| s.start_time == start_time && s.lives()) {
                return Ok((pid, start_time));
            }
        }
        self.look(protected)
    }

    /// The main process now, and remembers its tree.
    ///
    /// # Errors
    /// [`TargetError::NoMatch`], [`TargetError::ManyMatches`], or that it has ended.
    pub fn look(&self, protected: &Protected) -> Result<(u32, u64), TargetError> {
        let all = proc::snapshot().map_err(|e| TargetError::Proc {
            reason: e.to_string(),
        })?;
        let found = self.find(&all, protected);
        let mut seen = lock(&self.seen);
        seen.looked_at = monotonic_ns();
        let main = found.as_ref().ok().copied();
        if seen.main != main {
            let tree = std::mem::take(&mut seen.tree);
            seen.orphans.extend(tree);
            seen.main = main;
        }
        if let Some((pid, _)) = main {
            let descendants = all.descendants(pid);
            seen.tree = descendants
                .iter()
                .map(|s| (s.pid, s.start_time))
                .take(MAX_REMEMBERED)
                .collect();
        }
        let seen = &mut *seen;
        seen.orphans.retain(|o| {
            all.get(o.0)
                .is_some_and(|s| s.start_time == o.1 && s.lives())
                && !seen.tree.contains(o)
                && Some(*o) != seen.main
        });
        seen.orphans.truncate(MAX_REMEMBERED);
        found
    }

    /// Descendants of earlier main processes that still live.
    pub fn living_orphans(&self, protected: &Protected) -> Vec<(u32, u64)> {
        // Its result is of no interest here: a dead main process is what makes orphans.
        let _ = self.look(protected);
        lock(&self.seen).orphans.clone()
    }

    /// Whether the process is the main process, below it, or was.
    pub fn contains(&self, process: &ProcessRef) -> bool {
        let seen = lock(&self.seen);
        let key = (process.pid(), process.start_time());
        if seen.main == Some(key) || seen.tree.contains(&key) || seen.orphans.contains(&key) {
            return true;
        }
        seen.main.is_some_and(|(pid, start_time)| {
            proc::stat(pid).is_ok_and(|s| s.start_time == start_time)
                && proc::ancestors(process.pid()).contains(&pid)
        })
    }

    fn find(&self, all: &proc::Snapshot, protected: &Protected) -> Result<(u32, u64), TargetError> {
        let replica = || self.replica.clone();
        match &self.finder {
            Finder::Nothing => Err(TargetError::VictimNotFound {
                replica: replica(),
                role: "main".to_owned(),
                reason: "the configuration names no process; give `pid` or `command_match`"
                    .to_owned(),
            }),
            Finder::Pid(pid, start_time) => match all.get(*pid) {
                Some(s) if s.start_time == *start_time && s.lives() => Ok((*pid, *start_time)),
                _ => Err(TargetError::VictimNotFound {
                    replica: replica(),
                    role: "main".to_owned(),
                    reason: format!(
                        "process {pid} has ended; a server that is restarted gets another pid, \
                         `command_match` finds it again"
                    ),
                }),
            },
            Finder::Match(regex) => {
                let hits: Vec<&proc::Stat> = all
                    .iter()
                    .filter(|s| s.lives() && protected.check(s.pid, s.start_time).is_ok())
                    .filter(|s| proc::cmdline(s.pid).is_some_and(|c| regex.is_match(&c)))
                    .collect();
                // A launcher and the server that it started are one tree: its root counts.
                let mut roots: Vec<&proc::Stat> = hits
                    .iter()
                    .filter(|s| {
                        let above = all.ancestors(s.pid);
                        !hits.iter().any(|h| above.contains(&h.pid))
                    })
                    .copied()
                    .collect();
                roots.sort_by_key(|s| s.pid);
                match roots.as_slice() {
                    [one] => Ok((one.pid, one.start_time)),
                    [] => Err(TargetError::NoMatch {
                        replica: replica(),
                        pattern: regex.as_str().to_owned(),
                    }),
                    many => {
                        let mut candidates: Vec<String> = many
                            .iter()
                            .take(MAX_CANDIDATES)
                            .map(|s| format!("  pid {}: {}", s.pid, proc::title(s)))
                            .collect();
                        if many.len() > MAX_CANDIDATES {
                            candidates.push(format!("  and {} more", many.len() - MAX_CANDIDATES));
                        }
                        Err(TargetError::ManyMatches {
                            replica: replica(),
                            pattern: regex.as_str().to_owned(),
                            count: many.len(),
                            candidates: candidates.join("\n"),
                        })
                    }
                }
            }
        }
    }
}
