//! Chains of signals, of which each waits until the victim of the one before serves again.

use blackstart_sdk::fault::{ArmContext, Condition, EffectEvent, EffectId, FaultHost, Signal};
use blackstart_sdk::{Error, RunNs, Window};

use crate::{Deadly, plan};

/// A chain that runs.
#[derive(Debug)]
pub(crate) struct Sequence {
    /// The victim of each signal, in order.
    steps: Vec<String>,
    role: String,
    signal: Deadly,
    pause_ns: i64,
    /// What comes later than this comes too late.
    deadline: RunNs,
    /// How many signals were put on the timeline.
    scheduled: usize,
    /// How many of them were sent.
    sent: usize,
    kills: Vec<EffectId>,
    watch: Option<EffectId>,
    /// Why it ended before its last step.
    broken: Option<String>,
}

impl Sequence {
    /// Sends the first signal at the fire.
    pub(crate) fn start(
        steps: Vec<String>,
        role: &str,
        signal: Deadly,
        pause_ms: u64,
        context: &ArmContext,
        host: &mut impl FaultHost,
    ) -> Result<Self, Error> {
        let mut chain = Sequence {
            steps,
            role: role.to_owned(),
            signal,
            pause_ns: plan::ns(pause_ms),
            deadline: context.expire_at,
            scheduled: 0,
            sent: 0,
            kills: Vec::new(),
            watch: None,
            broken: None,
        };
        chain.step(context.fire_at, host)?;
        Ok(chain)
    }

    /// Puts the next signal on the timeline and, unless it is the last, the wait for its victim.
    fn step(&mut self, at: RunNs, host: &mut impl FaultHost) -> Result<(), Error> {
        let Some(victim) = self.steps.get(self.scheduled) else {
            return Ok(());
        };
        let signal = Signal::from(self.signal);
        let when = Window { at, until: None };
        let kill = host.send_signal(victim, &self.role, signal, when)?;
        self.kills.push(kill);
        self.watch = None;
        if self.scheduled + 1 < self.steps.len() {
            let until = Some(self.deadline);
            let when = Window { at, until };
            self.watch = Some(host.watch(victim, Condition::ServingAgain, when)?);
        }
        self.scheduled += 1;
        Ok(())
    }

    /// Takes what happened to an effect, and goes on where it was waited for.
    pub(crate) fn observe(
        &mut self,
        effect: EffectId,
        event: &EffectEvent,
        host: &mut impl FaultHost,
    ) -> Result<(), Error> {
        let victim = |s: &Self| s.steps.get(s.scheduled.saturating_sub(1)).cloned();
        let (kill, watch) = (self.kills.contains(&effect), self.watch == Some(effect));
        match event {
            EffectEvent::Started(_) if kill => self.sent += 1,
            EffectEvent::Started(at) if watch => {
                let next = host.now().max(*at).saturating_add(self.pause_ns);
                if next >= self.deadline {
                    let victim = victim(self).unwrap_or_default();
                    self.broken = Some(format!(
                        "{victim} served again too late for the next to come within the fault \
                         window"
                    ));
                    return Ok(());
                }
                self.step(next, host)?;
            }
            EffectEvent::Failed(why) if kill || watch => self.broken = Some(why.clone()),
            _ => {}
        }
        Ok(())
    }

    /// Why not all of it was done; none where it was.
    pub(crate) fn unfinished(&self) -> Option<String> {
        let (sent, all) = (self.sent, self.steps.len());
        (sent < all).then(|| {
            let why = self
                .broken
                .as_deref()
                .unwrap_or("the others were not sent by the end of the run");
            format!(
                "{sent} of {all} signals were sent to {}: {why}",
                self.victims().join(", ")
            )
        })
    }

    /// Its victims, each once.
    pub(crate) fn victims(&self) -> Vec<&str> {
        let mut all: Vec<&str> = Vec::new();
        for victim in &self.steps {
            if !all.contains(&victim.as_str()) {
                all.push(victim);
            }
        }
        all
    }

    /// How many signals it has.
    pub(crate) fn signals(&self) -> usize {
        self.steps.len()
    }

    /// Which signal, without `SIG`.
    pub(crate) fn signal(&self) -> &'static str {
        self.signal.name()
    }

    /// Whose.
    pub(crate) fn role(&self) -> &str {
        &self.role
    }
}
