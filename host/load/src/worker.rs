//! A load thread: one event loop, its connections, the requests that fall to it.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::task::Poll;
use std::time::Duration;

use blackstart_clock::{RealTime, RunClock, Urgency, request_real_time};
use blackstart_plan::{SloThresholds, Turn};
use blackstart_record::{CensorKind, Event, EventKind, Outcome, RequestRecord};
use bytes::Bytes;
use tokio::sync::futures::Notified;
use tokio::sync::{Notify, SemaphorePermit};
use tokio::task::{LocalSet, spawn_local};

use crate::Secret;
use crate::address::Address;
use crate::alarm::Alarm;
use crate::canary::{self, Canary};
use crate::conversation::{Conversation, UnderWay};
use crate::exchange::{Leftover, Trace, exchange, recycle};
use crate::gaps::GapSink;
use crate::heartbeat::Heartbeat;
use crate::outcome::{Expectation, Expiry, Response};
use crate::pacing::{self, State};
use crate::pool::Pool;
use crate::prompt::BodyTemplate;
use crate::request::RequestHead;
use crate::shared::Shared;
use crate::writer::ToWriter;

/// How often records leave a load thread.
const RECORDS_EVERY: Duration = Duration::from_millis(200);
/// Gaps leave it, and idle connections are looked after, on each n-th of these.
const GAPS_EVERY: u32 = 5;
/// Records that leave it at once when so many are there.
const RECORDS_AT_ONCE: usize = 1024;
/// Records that a load thread holds while the disk is slow; beyond that it waits, and the heartbeat
/// shows it.
const MAX_HELD_RECORDS: usize = 65_536;

/// How much before its intended time a request is released at most: its connection is prepared, and the
/// thread is awake when the time comes. Covers how late an ordinary wake-up is; nothing is sent early.
const MAX_LEAD_NS: i64 = 200_000;
/// Shortest lead, at any rate.
const MIN_LEAD_NS: i64 = 10_000;
/// The lead is at most this part of the mean time between requests, so that waiting for them takes at
/// most this part of a core.
const LEAD_PART: i64 = 50;

/// How long a slot of a closed loop rests after a request that errored.
const PAUSE_AFTER_ERROR: Duration = Duration::from_millis(100);

/// Everything about the requests of a run that is the same for each of them.
pub(crate) struct RequestKit {
    pub(crate) address: Address,
    pub(crate) head: RequestHead,
    pub(crate) template: BodyTemplate,
    pub(crate) id_prefix: String,
    pub(crate) replica_header: Option<String>,
    pub(crate) timeout_ns: i64,
    pub(crate) first_token_timeout_ns: Option<i64>,
    pub(crate) idle_timeout_ns: Option<i64>,
    pub(crate) secret: Option<Arc<Secret>>,
    pub(crate) good: SloThresholds,
}

/// What a load thread is started with.
pub(crate) struct WorkerSetup {
    pub(crate) thread: u32,
    pub(crate) shared: Arc<Shared>,
    pub(crate) kit: Arc<RequestKit>,
    pub(crate) to_writer: SyncSender<ToWriter>,
    pub(crate) real_time: bool,
    /// Whether every gap is kept, besides their histograms.
    pub(crate) every_gap: bool,
    /// Connections to open before the first request.
    pub(crate) floor: usize,
    pub(crate) canary: Option<Canary>,
}

/// Runs a load thread until each of its requests has an outcome.
///
/// # Errors
/// When the system gives no event loop or timer.
pub(crate) fn run(setup: WorkerSetup) -> io::Result<()> {
    let real_time = prepare_thread(setup.real_time);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build()?;
    let heartbeat = Rc::new(Heartbeat::new(setup.thread, real_time));
    let shared = Arc::clone(&setup.shared);
    let local = LocalSet::new();
    let result = local.block_on(&runtime, drive(setup, Rc::clone(&heartbeat)));
    shared.push_event(heartbeat.event(shared.clock));
    result
}

/// Makes this thread's timers exact and asks for real-time priority if wanted.
fn prepare_thread(real_time: bool) -> Result<(), String> {
    if real_time {
        return match request_real_time(Urgency::Instants) {
            RealTime::Granted => Ok(()),
            RealTime::Refused(reason) => Err(reason),
        };
    }
    // The kernel otherwise adds 50 µs to every sleep. A refusal only costs that.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
    Err("not asked for".to_owned())
}

async fn drive(setup: WorkerSetup, heartbeat: Rc<Heartbeat>) -> io::Result<()> {
    let gaps = if setup.every_gap {
        let (to_writer, shared) = (setup.to_writer.clone(), Arc::clone(&setup.shared));
        GapSink::keeping_every_gap(move |gaps| {
            // As with records, none is dropped: this thread waits for the disk.
            if to_writer.send(ToWriter::EveryGap(gaps)).is_err() {
                shared.cancel();
            }
        })
    } else {
        GapSink::default()
    };
    let lane = Rc::new(Lane {
        pool: Pool::new(setup.kit.address.clone(), setup.shared.clock),
        kit: setup.kit,
        thread: setup.thread as usize,
        gaps: RefCell::new(gaps),
        held: RefCell::new(Vec::new()),
        to_writer: setup.to_writer,
        cancel: Notify::new(),
        idle: Notify::new(),
        in_flight: Cell::new(0),
        shared: setup.shared,
    });
    let background = async {
        let upkeep = async {
            for round in 1_u32.. {
                tokio::time::sleep(RECORDS_EVERY).await;
                lane.ship_records();
                if round % GAPS_EVERY == 0 {
                    lane.ship_gaps();
                    lane.pool.sweep();
                }
            }
        };
        // Beside the load, not before it: a server that answers no connection must not delay it.
        let floor = async {
            lane.pool.open_floor(setup.floor).await;
            std::future::pending::<()>().await;
        };
        let canary = async {
            match setup.canary {
                Some(canary) => canary::run(&canary, &lane.shared).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            beat = heartbeat.beat() => beat,
            () = floor => Ok(()),
            () = upkeep => Ok(()),
            () = canary => Ok(()),
        }
    };
    let result = tokio::select! {
        biased;
        served = lane.serve() => served,
        ended = background => ended,
    };
    lane.ship_gaps();
    lane.ship_records();
    if let Some(reason) = lane.pool.receive_stamps_refused() {
        lane.shared.push_event(Event {
            at_ns: lane.shared.clock.now(),
            kind: EventKind::ReceiveStampsRefused { reason },
        });
    }
    result
}

/// The state of a load thread.
struct Lane {
    shared: Arc<Shared>,
    kit: Arc<RequestKit>,
    thread: usize,
    pool: Pool,
    gaps: RefCell<GapSink>,
    held: RefCell<Vec<RequestRecord>>,
    to_writer: SyncSender<ToWriter>,
    /// Wakes every request when the load is ended early.
    cancel: Notify,
    /// No request is under way any more.
    idle: Notify,
    in_flight: Cell<u64>,
}

/// How much before its intended time each request is released.
fn lead_ns(schedule: &[i64]) -> i64 {
    let length_ns = schedule
        .last()
        .zip(schedule.first())
        .map_or(0, |(last, first)| last - first);
    let mean_ns = length_ns / i64::try_from(schedule.len()).unwrap_or(i64::MAX).max(1);
    (mean_ns / LEAD_PART).clamp(MIN_LEAD_NS, MAX_LEAD_NS)
}

/// The conversations that a slot of a closed loop walks through, one after the other.
struct Walk<'a> {
    most_turns: u32,
    /// Conversations that were begun, by all slots.
    begun: &'a AtomicU32,
    conversation: Arc<Conversation>,
    last: Option<Turn>,
}

impl<'a> Walk<'a> {
    fn new(most_turns: u32, begun: &'a AtomicU32) -> Self {
        Self {
            most_turns,
            begun,
            conversation: Conversation::new(),
            last: None,
        }
    }

    /// The next turn: of the present conversation, or of a new one.
    fn next(&mut self, template: &BodyTemplate) -> UnderWay {
        let turn = match self.last {
            Some(last) if last.turn + 1 < last.of => Turn {
                turn: last.turn + 1,
                ..last
            },
            _ => {
                self.conversation = Conversation::new();
                let conversation = self.begun.fetch_add(1, Ordering::Relaxed);
                Turn {
                    conversation,
                    turn: 0,
                    of: self.most_turns.min(template.turns(conversation)),
                }
            }
        };
        self.last = Some(turn);
        UnderWay::in_slot(&self.conversation, turn)
    }
}

/// Waits until observation has ended, however often that is put off. `armed_ns` is when it looks next.
async fn expired(clock: RunClock, expiry: &Cell<Expiry>, armed_ns: &Cell<i64>) -> Expiry {
    loop {
        let end = expiry.get();
        if clock.now() >= end.at_ns {
            return end;
        }
        armed_ns.set(end.at_ns);
        sleep_until(clock, end.at_ns).await;
    }
}

/// What ended the observation of a request.
enum Ended<T> {
    /// Its exchange.
    Itself(T),
    Expired(Expiry),
    /// The load was ended.
    Cancelled,
}

/// Waits for the end of an exchange, of its observation, or of the load: whichever is first, in this
/// order. An exchange is woken for every event. What else could end it is looked after only where a
/// read does not show that it has not: a timer that has rung, rang before the read of the same wake-up.
async fn observe<T>(
    shared: &Shared,
    trace: &Trace,
    expiry: &Cell<Expiry>,
    mut exchange: Pin<&mut impl Future<Output = T>>,
    mut cancelled: Pin<&mut Notified<'_>>,
) -> Ended<T> {
    let armed_ns = Cell::new(i64::MIN);
    let mut expired = pin!(expired(shared.clock, expiry, &armed_ns));
    let mut last_read_ns = i64::MIN;
    poll_fn(|cx| {
        if let Poll::Ready(rest) = exchange.as_mut().poll(cx) {
            return Poll::Ready(Ended::Itself(rest));
        }
        let before_ns = std::mem::replace(&mut last_read_ns, trace.last_read_ns());
        let read = before_ns != last_read_ns && last_read_ns < armed_ns.get();
        if read && shared.cancelled().is_none() {
            return Poll::Pending;
        }
        if let Poll::Ready(end) = expired.as_mut().poll(cx) {
            return Poll::Ready(Ended::Expired(end));
        }
        cancelled.as_mut().poll(cx).map(|()| Ended::Cancelled)
    })
    .await
}

/// Sleeps until about a run time; returns at once if it is past.
async fn sleep_until(clock: RunClock, at_ns: i64) {
    let left_ns = (at_ns - clock.now()).max(0).cast_unsigned();
    tokio::time::sleep(Duration::from_nanos(left_ns)).await;
}

/// A request under way; dropped in any way, it is so no longer.
struct InFlight(Rc<Lane>);

impl InFlight {
    fn new(lane: &Rc<Lane>) -> Self {
        lane.in_flight.set(lane.in_flight.get() + 1);
        Self(Rc::clone(lane))
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let left = self.0.in_flight.get() - 1;
        self.0.in_flight.set(left);
        if left == 0 {
            self.0.idle.notify_one();
        }
    }
}

impl Lane {
    /// Sends this thread's requests and waits for all outcomes.
    async fn serve(self: &Rc<Self>) -> io::Result<()> {
        match &self.shared.pacing {
            State::Open { .. } => self.release_as_scheduled().await?,
            State::Closed { plan, .. } => self.fill_slots(plan.concurrency),
        }
        while self.in_flight.get() > 0 {
            if self.shared.cancelled().is_some() {
                self.cancel.notify_waiters();
            }
            tokio::select! {
                () = self.idle.notified() => {}
                () = self.shared.wakes[self.thread].notified() => {}
            }
        }
        Ok(())
    }

    /// Releases each request of the schedule that falls to this thread a little before its time.
    async fn release_as_scheduled(self: &Rc<Self>) -> io::Result<()> {
        let clock = self.shared.clock;
        let schedule = self.shared.pacing.schedule();
        let lead_ns = lead_ns(schedule);
        let alarm = Alarm::new()?;
        let stride = self.shared.wakes.len();
        for position in (self.thread..schedule.len()).step_by(stride) {
            let release_ns = schedule[position] - lead_ns;
            // What is due goes out at once, so that a late wake-up is caught up.
            if clock.now() < release_ns {
                tokio::select! {
                    biased;
                    rung = alarm.until(clock.to_monotonic(release_ns)) => rung?,
                    () = self.shared.wakes[self.thread].notified() => {}
                }
            }
            if self.shared.cancelled().is_some() {
                break;
            }
            self.shared.release(self.thread);
            spawn_local(Self::scheduled(InFlight::new(self), position as u64));
        }
        Ok(())
    }

    /// A request of the schedule, by its place in this share.
    async fn scheduled(in_flight: InFlight, position: u64) {
        let lane = Rc::clone(&in_flight.0);
        let pacing = &lane.shared.pacing;
        let index = pacing.index(position);
        let intended_ns = pacing.schedule()[position as usize];
        let (_, leftover) = lane.one(index, intended_ns, pacing.enter(position)).await;
        drop(in_flight);
        lane.recycle(leftover).await;
    }

    /// Starts this thread's part of a closed loop's slots.
    fn fill_slots(self: &Rc<Self>, concurrency: u32) {
        let threads = self.shared.wakes.len() as u32;
        let thread = self.thread as u32;
        let slots = concurrency / threads + u32::from(thread < concurrency % threads);
        for _ in 0..slots {
            spawn_local(Self::slot(InFlight::new(self)));
        }
    }

    /// One request after the other, each intended when the one before it ended.
    async fn slot(in_flight: InFlight) {
        let lane = Rc::clone(&in_flight.0);
        let State::Closed {
            plan,
            started,
            conversations,
        } = &lane.shared.pacing
        else {
            return;
        };
        let mut walk = plan.turns.map(|most| Walk::new(most, conversations));
        sleep_until(lane.shared.clock, 0).await;
        while lane.shared.cancelled().is_none() {
            let now = lane.shared.clock.now();
            let Some(index) = pacing::next(plan, started, now) else {
                return;
            };
            lane.shared.progress[lane.thread].started(now);
            let turn = walk.as_mut().map(|walk| walk.next(&lane.kit.template));
            let (outcome, leftover) = lane.one(index, now, turn).await;
            // The slot does not wait for the end of a response whose outcome is known.
            let recycler = Rc::clone(&lane);
            spawn_local(async move { recycler.recycle(leftover).await });
            if outcome == Outcome::Errored {
                // A server that refuses must not be asked thousands of times a second.
                let cancelled = lane.cancel.notified();
                tokio::select! {
                    () = tokio::time::sleep(PAUSE_AFTER_ERROR) => {}
                    () = cancelled => {}
                }
            }
        }
    }

    async fn recycle(&self, leftover: Option<Leftover>) {
        if let Some(leftover) = leftover {
            recycle(&self.pool, leftover).await;
        }
    }

    /// One request, from its release to its record.
    async fn one(
        &self,
        index: u64,
        intended_ns: i64,
        mut turn: Option<UnderWay>,
    ) -> (Outcome, Option<Leftover>) {
        let clock = self.shared.clock;
        let from_intended = |ns: i64| intended_ns.saturating_add(ns);
        let template = &self.kit.template;
        let (body, exact_tokens) = match &turn {
            None => template.body(index),
            // What it says is known when the turns before it have ended.
            Some(turn) => (
                Bytes::new(),
                template.exact_tokens(turn.turn().conversation),
            ),
        };
        let mut response = Response::new(
            index,
            intended_ns,
            Expectation {
                deadline_ns: from_intended(self.kit.timeout_ns),
                first_token_deadline_ns: self.kit.first_token_timeout_ns.map(from_intended),
                idle_ns: self.kit.idle_timeout_ns,
                exact_tokens,
                secret: self.kit.secret.clone(),
            },
        );
        if let Some(turn) = &turn {
            response.in_conversation(turn.turn().conversation, turn.turn().turn);
            response.keep_reply();
        }
        let expiry = response.expiry();
        // Registered before the flag is read: an end in between is not missed.
        let mut cancelled = pin!(self.cancel.notified());
        let mut leftover = None;
        if let Some(at_ns) = self.shared.cancelled() {
            response.censor(at_ns, CensorKind::RunEnd);
        } else {
            let trace = Trace::new();
            let ended = {
                // Pinned where it is: a future that is moved into another one takes its room twice.
                let work = pin!(async {
                    if let Some(turn) = &turn
                        && turn.comes().await
                    {
                        self.admitted_now(intended_ns, &mut response);
                    }
                    let _permit = self.admission(intended_ns, &mut response).await;
                    let body = match &mut turn {
                        None => body,
                        Some(turn) => turn.body(template, index),
                    };
                    let request = self
                        .kit
                        .head
                        .with(Some((&self.kit.id_prefix, index)), &body);
                    drop(body);
                    exchange(
                        &self.pool,
                        &request,
                        intended_ns,
                        self.kit.replica_header.as_deref(),
                        &mut response,
                        &self.gaps,
                        &trace,
                    )
                    .await
                });
                observe(&self.shared, &trace, &expiry, work, cancelled.as_mut()).await
            };
            match ended {
                Ended::Itself(rest) => leftover = rest,
                Ended::Expired(end) => response.censor(end.at_ns, end.kind),
                Ended::Cancelled => response.censor(clock.now(), CensorKind::RunEnd),
            }
            trace.tell(&mut response);
        }
        let reply = response.take_reply();
        let record = response.into_record();
        let outcome = record.outcome;
        if let Some(mut turn) = turn
            && outcome == Outcome::Completed
        {
            turn.completed(&reply);
        }
        self.keep(record);
        (outcome, leftover)
    }

    /// Waits until the concurrency cap, if there is one, admits another request.
    async fn admission(
        &self,
        intended_ns: i64,
        response: &mut Response,
    ) -> Option<SemaphorePermit<'_>> {
        let State::Open {
            permits: Some(permits),
            ..
        } = &self.shared.pacing
        else {
            return None;
        };
        if let Ok(permit) = permits.try_acquire() {
            return Some(permit);
        }
        // Never closed, and in the order of asking.
        let permit = permits.acquire().await.ok();
        self.admitted_now(intended_ns, response);
        permit
    }

    /// It waited until now: that is no skew of the client, unless it was not due before.
    fn admitted_now(&self, intended_ns: i64, response: &mut Response) {
        let now = self.shared.clock.now();
        if now > intended_ns {
            response.admitted(now);
        }
    }

    fn keep(&self, record: RequestRecord) {
        self.shared.progress[self.thread].count(&record, self.kit.good);
        self.held.borrow_mut().push(record);
        if self.held.borrow().len() >= RECORDS_AT_ONCE {
            self.ship_records();
        }
    }

    fn ship_records(&self) {
        // First, so that a request whose record is kept has all its gaps kept.
        self.gaps.borrow_mut().hand_over();
        let records = std::mem::take(&mut *self.held.borrow_mut());
        if records.is_empty() {
            return;
        }
        let message = ToWriter::Records(records);
        match self.to_writer.try_send(message) {
            Ok(()) => {}
            Err(TrySendError::Full(ToWriter::Records(records)))
                if records.len() < MAX_HELD_RECORDS && self.in_flight.get() > 0 =>
            {
                *self.held.borrow_mut() = records;
            }
            // No record is ever dropped: this thread waits for the disk.
            Err(TrySendError::Full(message)) => self.send(message),
            Err(TrySendError::Disconnected(_)) => self.shared.cancel(),
        }
    }

    fn ship_gaps(&self) {
        let gaps = std::mem::take(&mut self.gaps.borrow_mut().histograms);
        if !gaps.buckets.is_empty() {
            self.send(ToWriter::Gaps(gaps));
        }
    }

    /// Waits for room. A writer that is gone ended the load; its error is reported by it.
    fn send(&self, message: ToWriter) {
        if self.to_writer.send(message).is_err() {
            self.shared.cancel();
        }
    }
}
