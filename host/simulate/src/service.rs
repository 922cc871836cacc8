//! The virtual service: what becomes of each request, as the client sees it.

use blackstart_plan::Plan;
use blackstart_record::{
    CensorKind, ErrorClass, FinishReason, GapHistograms, Outcome, RequestRecord,
};

use crate::Settings;
use crate::fate::{End, Fate};
use crate::planning::{MS, TOKENS, US, replica_id};
use crate::planted::{CREEP_MAX_NS, GAP_NS, Phase, Planted, SLOW_TTFT_NS, State, TTFT_NS};
use crate::random::Random;

/// Serves requests in the order of their intended times.
pub(crate) struct Service<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) planted: &'a Planted,
    pub(crate) settings: Settings,
    pub(crate) random: Random,
    pub(crate) gaps: GapHistograms,
    /// Instants of the events of the answer at hand.
    events: Vec<i64>,
    served: u64,
}

/// What a request would get of a replica that keeps its state, and would be of no fault otherwise.
struct Drawn {
    skew_ns: i64,
    accept_ns: i64,
    ttft_ns: i64,
    noise: Option<Noise>,
    miss: f64,
    slow_ttft_ns: i64,
    ending_ns: i64,
}

/// What goes wrong without any fault.
enum Noise {
    Refused,
    Slow,
}

/// Time from the head of an answer back to the acceptance of the request.
const HEAD_NS: i64 = 2 * MS;

impl<'a> Service<'a> {
    pub(crate) fn new(
        plan: &'a Plan,
        planted: &'a Planted,
        settings: Settings,
        random: Random,
    ) -> Self {
        Self {
            plan,
            planted,
            settings,
            random,
            gaps: GapHistograms::default(),
            events: Vec::with_capacity(TOKENS as usize),
            served: 0,
        }
    }

    /// Every draw of a request is made whatever becomes of it, so that one request's fate moves no
    /// other's.
    fn draw(&mut self) -> Drawn {
        let r = &mut self.random;
        let noise = r.chance(self.settings.noise);
        let refused = r.chance(0.5);
        Drawn {
            skew_ns: r.between(15 * US, 80 * US),
            accept_ns: r.between(200 * US, 900 * US),
            ttft_ns: r.around(TTFT_NS.0, TTFT_NS.1),
            noise: noise.then_some(if refused { Noise::Refused } else { Noise::Slow }),
            miss: r.unit(),
            slow_ttft_ns: r.between(SLOW_TTFT_NS.0, SLOW_TTFT_NS.1),
            ending_ns: r.between(50 * US, 2 * MS),
        }
    }

    /// What becomes of a request.
    pub(crate) fn request(&mut self, index: u64, intended_ns: i64) -> (RequestRecord, Fate) {
        let drawn = self.draw();
        self.events.clear();
        for _ in 1..TOKENS {
            let gap = self.random.between(GAP_NS.0, GAP_NS.1);
            self.events.push(gap);
        }
        // Round robin; the balancer does not know that a replica is away.
        let replicas = self.planted.phases.len() as u64;
        let number = (self.served % replicas) as usize;
        self.served += 1;
        let sent_ns = intended_ns + drawn.skew_ns;
        let planted = self.planted;
        let phases = &planted.phases[number];
        let now = at(phases, sent_ns);
        let deadline_ns = intended_ns + self.plan.load.timeout_ns;
        let mut fate = Fate {
            intended_ns,
            dispatched_ns: Some(sent_ns),
            head_ns: None,
            first_ns: None,
            ended_ns: deadline_ns,
            end: End::Unanswered,
            content_events: 0,
            replica: None,
        };
        match phases[now].state {
            State::Refusing => {
                fate.ended_ns = sent_ns + drawn.accept_ns;
                if replicas == 1 {
                    // The connection was refused: nothing was ever written.
                    fate.dispatched_ns = None;
                    fate.end = End::Failed(ErrorClass::Connect);
                } else {
                    // The balancer was reached, and answers for the replica that is not.
                    fate.head_ns = Some(fate.ended_ns);
                    fate.end = End::Failed(ErrorClass::HttpStatus);
                }
            }
            State::Hanging => {}
            state => self.answer(&drawn, phases, now, state, number, &mut fate),
        }
        let record = self.record(index, &drawn, &fate);
        (record, fate)
    }

    /// The answer of a replica that takes the request, as far as it gets.
    fn answer(
        &mut self,
        drawn: &Drawn,
        phases: &[Phase],
        now: usize,
        state: State,
        number: usize,
        fate: &mut Fate,
    ) {
        let sent_ns = fate.dispatched_ns.unwrap_or(fate.intended_ns);
        let begin_ns = sent_ns + drawn.accept_ns;
        let mut ttft_ns = drawn.ttft_ns;
        let slow = match state {
            State::Degraded { miss } => drawn.miss < miss,
            _ => false,
        };
        let mut refused = false;
        match drawn.noise {
            Some(Noise::Refused) => refused = true,
            Some(Noise::Slow) => ttft_ns = drawn.slow_ttft_ns,
            None if slow => ttft_ns = drawn.slow_ttft_ns,
            None => {}
        }
        if let State::Creeping { ns_per_s } = state {
            let since_s = (sent_ns - phases[now].from_ns) as f64 / 1e9;
            ttft_ns += ((ns_per_s * since_s) as i64).min(CREEP_MAX_NS);
        }
        // Instants on the replica's own time; `events` held the gaps until here.
        let mut head_ns = begin_ns + HEAD_NS;
        let mut instant = begin_ns + ttft_ns;
        let gaps = std::mem::take(&mut self.events);
        let mut events = Vec::with_capacity(TOKENS as usize);
        events.push(instant);
        for gap in &gaps {
            instant += gap;
            events.push(instant);
        }
        let mut end_ns = if refused { head_ns } else { instant + US };
        let mut cut: Option<(i64, End)> = None;
        let following = phases[now + 1..].iter().enumerate();
        let standing = matches!(state, State::Frozen).then_some(now);
        let states = standing
            .map(|i| (i, &phases[i]))
            .into_iter()
            .chain(following.map(|(i, p)| (now + 1 + i, p)));
        for (i, phase) in states {
            let from_ns = phase.from_ns.max(sent_ns);
            if end_ns <= from_ns {
                break;
            }
            match phase.state {
                State::Refusing => {
                    cut = Some((from_ns + drawn.ending_ns, End::Failed(ErrorClass::Reset)));
                    events.retain(|t| *t < from_ns);
                    if head_ns >= from_ns {
                        head_ns = i64::MAX;
                    }
                    break;
                }
                State::Hanging => {
                    cut = Some((i64::MAX, End::Unanswered));
                    events.retain(|t| *t < from_ns);
                    if head_ns >= from_ns {
                        head_ns = i64::MAX;
                    }
                    break;
                }
                State::Frozen => {
                    let until_ns = phases.get(i + 1).map_or(i64::MAX / 4, |p| p.from_ns);
                    let stood_ns = until_ns - from_ns;
                    for t in events.iter_mut().chain([&mut head_ns, &mut end_ns]) {
                        if *t >= from_ns {
                            *t += stood_ns;
                        }
                    }
                }
                _ => {}
            }
        }
        let (ended_ns, end) = match cut {
            Some(cut) => cut,
            None if refused => (end_ns, End::Failed(ErrorClass::HttpStatus)),
            None => (end_ns, End::Served),
        };
        let deadline_ns = fate.ended_ns;
        (fate.ended_ns, fate.end) = if ended_ns > deadline_ns {
            (deadline_ns, End::Unanswered)
        } else {
            (ended_ns, end)
        };
        if refused {
            events.clear();
        }
        events.retain(|t| *t <= fate.ended_ns);
        fate.head_ns = (head_ns <= fate.ended_ns).then_some(head_ns);
        fate.first_ns = events.first().copied();
        fate.content_events = events.len() as u32;
        fate.replica = fate.head_ns.map(|_| number as u32);
        for pair in events.windows(2) {
            self.gaps.record(fate.intended_ns, pair[1] - pair[0]);
        }
        self.events = events;
    }

    /// The record that the client would have written.
    fn record(&self, index: u64, drawn: &Drawn, fate: &Fate) -> RequestRecord {
        let (outcome, error_class) = match fate.end {
            End::Served => (Outcome::Completed, None),
            End::Failed(class) => (Outcome::Errored, Some(class)),
            End::Unanswered => (Outcome::Censored, None),
        };
        let served = outcome == Outcome::Completed;
        let events = if fate.content_events == 0 {
            &[][..]
        } else {
            &self.events[..]
        };
        let by_balancer = error_class == Some(ErrorClass::HttpStatus) && fate.replica.is_none();
        let http_status = fate.head_ns.map(|_| match error_class {
            Some(ErrorClass::HttpStatus) if by_balancer => 502,
            Some(ErrorClass::HttpStatus) => 503,
            _ => 200,
        });
        let refused = error_class == Some(ErrorClass::Connect);
        RequestRecord {
            index,
            intended_ns: fate.intended_ns,
            admitted_ns: None,
            connect_started_ns: refused.then_some(fate.intended_ns + drawn.skew_ns),
            dispatched_ns: fate.dispatched_ns,
            headers_ns: fate.head_ns,
            first_event_ns: fate.first_ns,
            first_token_ns: fate.first_ns,
            last_token_ns: events.last().copied(),
            ended_ns: fate.ended_ns,
            outcome,
            error_class,
            censor_kind: (outcome == Outcome::Censored).then_some(CensorKind::Timeout),
            http_status,
            error_code: None,
            error_text: error_class.map(|class| format!("simulated: {}", class.name())),
            finish_reason: served.then_some(FinishReason::Length),
            done_marker: served,
            content_events: fate.content_events,
            completion_tokens: served.then_some(fate.content_events),
            prompt_tokens: served.then_some(self.plan.load.prompt_words),
            body_bytes: 180 * u64::from(fate.content_events),
            coalesced_reads: 0,
            gap_max_ns: events.windows(2).map(|pair| pair[1] - pair[0]).max(),
            connection_reused: !refused,
            replica: (self.planted.phases.len() > 1)
                .then(|| fate.replica.map(replica_id))
                .flatten(),
            first_token_kernel_ns: None,
            ended_kernel_ns: None,
            read_lag_max_ns: None,
            conversation: None,
            turn: None,
        }
    }
}

/// Which state holds at an instant.
pub(crate) fn at(phases: &[Phase], at_ns: i64) -> usize {
    phases
        .partition_point(|p| p.from_ns <= at_ns)
        .saturating_sub(1)
}
