//! The loop that probes one path for the whole run.

use std::sync::Arc;
use std::time::Duration;

use blackstart_clock::{RunClock, RunNs};
use blackstart_plan::ObservePlan;
use blackstart_record::{EventKind, ProbeOutcome, ProbePath};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::cadence::{Cadence, MAX_OUTSTANDING};
use crate::observers::{ProbeSummary, at, stopped};
use crate::probe::ProbeClient;
use crate::signal::{EventSink, FireSignal};

/// One path and how it is probed.
pub(crate) struct Prober {
    pub(crate) path: ProbePath,
    /// The replica probed directly; `None` for the service.
    pub(crate) replica: Option<String>,
    pub(crate) client: Arc<ProbeClient>,
    pub(crate) plan: ObservePlan,
    pub(crate) clock: RunClock,
    pub(crate) sink: EventSink,
    pub(crate) fire: FireSignal,
    /// Run time of the first probe.
    pub(crate) first_ns: RunNs,
}

impl Prober {
    /// Probes until stopped. Probes that are unanswered then are abandoned and counted, not
    /// reported: the run ended, they did not fail.
    pub(crate) async fn run(self, mut stop: watch::Receiver<bool>) -> ProbeSummary {
        let mut summary = ProbeSummary {
            path: self.path,
            replica: self.replica.clone(),
            sent: 0,
            ok: 0,
            failed: 0,
            abandoned: 0,
            skipped: 0,
        };
        let mut cadence = Cadence::new(
            self.plan.probe_interval_ns,
            self.plan.probe_interval_outage_ns,
            self.plan.probe_timeout_ns,
        );
        let timeout = Duration::from_nanos(u64::try_from(self.plan.probe_timeout_ns).unwrap_or(0));
        let mut fire = self.fire.subscribe();
        if let Some(fired) = *fire.borrow_and_update() {
            cadence.fire(fired);
        }
        // Outcomes come by a channel, because a probe lives on after its outcome while the rest of
        // its answer is read. Bounded by the number of probes in flight.
        let (outcomes, mut ended) = mpsc::channel::<ProbeOutcome>(MAX_OUTSTANDING);
        let mut running = JoinSet::new();
        let mut next_ns = self.first_ns;
        let mut last_ns = None;
        loop {
            if let Some(last) = last_ns {
                next_ns = cadence
                    .interval_ns(self.clock.now(), running.len())
                    .saturating_add(last);
            }
            tokio::select! {
                biased;
                () = stopped(&mut stop) => break,
                Some(outcome) = ended.recv() => {
                    cadence.ended(outcome.sent_ns, outcome.ok);
                    if outcome.ok { summary.ok += 1 } else { summary.failed += 1 }
                    self.sink.emit(self.clock.now(), EventKind::Probe(outcome));
                }
                Some(_) = running.join_next() => {}
                Ok(()) = fire.changed() => {
                    if let Some(fired) = *fire.borrow_and_update() {
                        cadence.fire(fired);
                        // The first probe of the fault goes out now.
                        next_ns = self.clock.now();
                        last_ns = last_ns.map(|_| {
                            next_ns - cadence.interval_ns(next_ns, running.len())
                        });
                    }
                }
                () = at(self.clock, next_ns) => {
                    // Ticks that were missed are not made up for.
                    let now = self.clock.now();
                    let interval = cadence.interval_ns(now, running.len());
                    last_ns = Some(next_ns + (now - next_ns).max(0) / interval * interval);
                    if running.len() >= MAX_OUTSTANDING {
                        summary.skipped += 1;
                        continue;
                    }
                    summary.sent += 1;
                    self.spawn(&mut running, summary.sent, timeout, outcomes.clone());
                }
            }
        }
        summary.abandoned = summary.sent - summary.ok - summary.failed;
        summary
    }

    fn spawn(
        &self,
        running: &mut JoinSet<()>,
        number: u64,
        timeout: Duration,
        outcomes: mpsc::Sender<ProbeOutcome>,
    ) {
        let (client, path, replica) = (Arc::clone(&self.client), self.path, self.replica.clone());
        running.spawn(async move {
            let (attempt, rest) = client.attempt(number, timeout).await;
            let outcome = ProbeOutcome {
                path,
                replica: match path {
                    ProbePath::Direct => replica,
                    ProbePath::Service => attempt.served_by,
                },
                sent_ns: attempt.sent_ns,
                first_token_ns: attempt.token.as_ref().ok().copied(),
                ok: attempt.token.is_ok(),
                reason: attempt.token.err().map(|failure| failure.to_string()),
            };
            if outcomes.send(outcome).await.is_ok() {
                rest.drain().await;
            }
        });
    }
}
