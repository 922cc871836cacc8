//! The API process's shared state: requests in flight, engine records, accounting.
//! Lives on one thread; nothing here locks.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{SystemTime, UNIX_EPOCH};

use hyper::header::HeaderValue;
use serde_json::json;
use tokio::sync::Notify;

use crate::api::fault::{Injector, Ledger};
use crate::api::link::Link;
use crate::api::metrics::Metrics;
use crate::api::openai::Parsed;
use crate::api::slot::{End, Progress, Slot, SlotRef};
use crate::api::state::StateFile;
use crate::args::Config;
use crate::ipc::{Finish, FromEngine, ToEngine};
use crate::logline::LineWriter;
use crate::mono::{NS_PER_S, now_ns};
use crate::release::{DeadStream, Release};
use crate::truth::Truth;

/// Where the engine stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Alive as far as anyone knows.
    Alive,
    /// Dead, and the server says so.
    Dead,
    /// Dead, and the server has not noticed (old releases).
    DeadUnnoticed,
}

/// Everything the handlers share.
pub struct App {
    /// Configuration.
    pub config: Config,
    /// Release.
    pub release: &'static Release,
    /// Truth file.
    pub truth: Truth,
    /// `x-replica`.
    pub replica: Option<HeaderValue>,
    /// Printer of access lines; `None` when off.
    pub access_log: Option<LineWriter>,
    /// The admin interface answers on the main port.
    pub admin_on_main: bool,
    /// Start counter and next factor.
    pub state: Option<StateFile>,
    /// Engine socket.
    pub link: Rc<Link>,
    /// Engine state.
    pub engine: Cell<Engine>,
    /// Set once the server is on its way out.
    pub leaving: Cell<bool>,
    /// Counters.
    pub metrics: RefCell<Metrics>,
    /// Request ids.
    pub ledger: RefCell<Ledger>,
    /// Fault in force.
    pub injector: RefCell<Injector>,
    /// Woken when a request ends.
    pub ended: Notify,
    slots: RefCell<HashMap<u64, SlotRef>>,
    next_id: Cell<u64>,
}

/// Parts of an [`App`] that its owner chooses.
pub struct Parts {
    /// Configuration.
    pub config: Config,
    /// Release.
    pub release: &'static Release,
    /// Truth file.
    pub truth: Truth,
    /// `x-replica`.
    pub replica: Option<HeaderValue>,
    /// Printer of access lines.
    pub access_log: Option<LineWriter>,
    /// Admin on the main port.
    pub admin_on_main: bool,
    /// State file.
    pub state: Option<StateFile>,
    /// Engine socket.
    pub link: Rc<Link>,
}

/// The Unix time, seconds.
pub fn unix_now_s() -> f64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0.0, |d| d.as_secs_f64())
}

fn seconds(from_ns: u64, to_ns: u64) -> f64 {
    to_ns.saturating_sub(from_ns) as f64 / NS_PER_S as f64
}

impl App {
    /// A server with no requests.
    pub fn new(parts: Parts) -> Rc<Self> {
        let Parts {
            config,
            release,
            truth,
            replica,
            access_log,
            admin_on_main,
            state,
            link,
        } = parts;
        Rc::new(App {
            config,
            release,
            truth,
            replica,
            access_log,
            admin_on_main,
            state,
            link,
            engine: Cell::new(Engine::Alive),
            leaving: Cell::new(false),
            metrics: RefCell::new(Metrics::new(unix_now_s())),
            ledger: RefCell::default(),
            injector: RefCell::default(),
            ended: Notify::new(),
            slots: RefCell::default(),
            next_id: Cell::new(1),
        })
    }

    /// Requests the engine has.
    pub fn in_engine(&self) -> usize {
        self.slots.borrow().len()
    }

    /// Notes a request's arrival; the returned guard accounts for its end.
    pub fn arrive(self: &Rc<Self>, arrival_ns: u64, request_id: Option<String>) -> InFlight {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        self.ledger.borrow_mut().arrive(request_id.as_deref());
        if self.truth.on() {
            self.truth
                .write_at(arrival_ns, "request", json!({ "n": id, "id": request_id }));
        }
        InFlight {
            app: Rc::clone(self),
            slot: Rc::new(Slot {
                id,
                arrival_ns,
                request_id,
                prompt_tokens: 0,
                progress: RefCell::default(),
            }),
            submitted: false,
            sent: 0,
            first_sent_ns: None,
            last_sent_ns: None,
            ended: false,
        }
    }

    /// Applies one record of the engine.
    pub fn on_record(&self, record: FromEngine) {
        match record {
            FromEngine::Ready { .. } | FromEngine::Failed => {}
            FromEngine::Admitted { id, at_ns } => {
                let slots = self.slots.borrow();
                let Some(slot) = slots.get(&id) else { return };
                let mut m = self.metrics.borrow_mut();
                m.waiting = m.waiting.saturating_sub(1);
                m.running += 1;
                m.queue.observe(seconds(slot.arrival_ns, at_ns));
                slot.progress.borrow_mut().admitted_ns = Some(at_ns);
            }
            FromEngine::Token {
                id,
                index,
                due_ns,
                finish,
            } => {
                let slot = {
                    let mut slots = self.slots.borrow_mut();
                    let slot = if finish.is_some() {
                        slots.remove(&id)
                    } else {
                        slots.get(&id).cloned()
                    };
                    let Some(slot) = slot else { return };
                    slot
                };
                {
                    let mut m = self.metrics.borrow_mut();
                    m.generation_tokens += 1;
                    if index == 0 {
                        m.prompt_tokens += u64::from(slot.prompt_tokens);
                        m.ttft.observe(seconds(slot.arrival_ns, due_ns));
                    } else if let Some(last) = slot.progress.borrow().last_due_ns {
                        m.inter_token.observe(seconds(last, due_ns));
                    }
                    if let Some(f) = finish {
                        m.running = m.running.saturating_sub(1);
                        m.finish(f);
                        m.e2e.observe(seconds(slot.arrival_ns, due_ns));
                    }
                }
                slot.update(|p| {
                    p.made = index + 1;
                    p.finish = finish;
                    p.first_due_ns.get_or_insert(due_ns);
                    p.last_due_ns = Some(due_ns);
                });
            }
            FromEngine::Ended { id, finish, .. } => {
                if let Some(slot) = self.forget(id) {
                    self.metrics.borrow_mut().finish(finish);
                    slot.update(|p| p.finish = Some(finish));
                }
            }
        }
    }

    /// Takes a request out of the books of the engine.
    fn forget(&self, id: u64) -> Option<SlotRef> {
        let slot = self.slots.borrow_mut().remove(&id)?;
        let mut m = self.metrics.borrow_mut();
        if slot.progress.borrow().admitted_ns.is_some() {
            m.running = m.running.saturating_sub(1);
        } else {
            m.waiting = m.waiting.saturating_sub(1);
        }
        Some(slot)
    }

    /// The engine is gone without having been asked.
    pub fn engine_died(&self) {
        if self.release.engine_death.stream == DeadStream::Hang {
            self.engine.set(Engine::DeadUnnoticed);
            return;
        }
        self.engine.set(Engine::Dead);
        let slots: Vec<SlotRef> = self.slots.borrow_mut().drain().map(|(_, s)| s).collect();
        {
            let mut m = self.metrics.borrow_mut();
            m.running = 0;
            m.waiting = 0;
        }
        for slot in slots {
            slot.update(|p| p.dead = true);
        }
    }

    /// Fraction of the KV cache that running sequences fill.
    pub fn kv_usage(&self) -> f64 {
        let used: u64 = self
            .slots
            .borrow()
            .values()
            .filter(|s| s.progress.borrow().admitted_ns.is_some())
            .map(|s| u64::from(s.prompt_tokens) + u64::from(s.progress.borrow().made))
            .sum();
        (used as f64 / self.config.kv_cache_tokens as f64).min(1.0)
    }
}

/// A request on its way; dropping it unended means that the client left.
pub struct InFlight {
    app: Rc<App>,
    slot: SlotRef,
    submitted: bool,
    /// Tokens handed to the socket.
    pub sent: u32,
    first_sent_ns: Option<u64>,
    last_sent_ns: Option<u64>,
    ended: bool,
}

impl InFlight {
    /// Server state.
    pub fn app(&self) -> &Rc<App> {
        &self.app
    }

    /// Shared progress.
    pub fn slot(&self) -> &SlotRef {
        &self.slot
    }

    /// Hands the request to the engine. False when the engine's queue is full.
    pub fn submit(&mut self, parsed: &Parsed) -> bool {
        let slot = Rc::new(Slot {
            id: self.slot.id,
            arrival_ns: self.slot.arrival_ns,
            request_id: self.slot.request_id.clone(),
            prompt_tokens: parsed.prompt_tokens,
            progress: RefCell::new(Progress::default()),
        });
        self.slot = Rc::clone(&slot);
        if self.app.engine.get() == Engine::Dead {
            slot.update(|p| p.dead = true);
            return true;
        }
        let sent = self.app.link.send(ToEngine::Submit {
            id: slot.id,
            prompt_tokens: parsed.prompt_tokens,
            max_tokens: parsed.max_tokens,
            stops: parsed.stops,
            arrival_ns: slot.arrival_ns,
        });
        if sent {
            self.submitted = true;
            self.app.metrics.borrow_mut().waiting += 1;
            self.app.slots.borrow_mut().insert(slot.id, slot);
        }
        sent
    }

    /// Notes tokens handed to the socket now.
    pub fn note_sent(&mut self, upto: u32) {
        let now = now_ns();
        self.first_sent_ns.get_or_insert(now);
        self.last_sent_ns = Some(now);
        self.sent = upto;
    }

    /// Ends the request once; later calls do nothing.
    pub fn end(&mut self, end: End, status: u16) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        if self.submitted
            && let Some(slot) = self.app.forget(self.slot.id)
        {
            // Still with the engine: give its place back.
            self.app.metrics.borrow_mut().finish(Finish::Abort);
            self.app.link.send(ToEngine::Abort { id: slot.id });
        }
        self.app.ledger.borrow_mut().end(end);
        if self.app.truth.on() {
            let p = self.slot.progress.borrow();
            self.app.truth.write(
                "request_end",
                json!({
                    "n": self.slot.id,
                    "id": self.slot.request_id,
                    "end": end.word(),
                    "status": status,
                    "arrival_ns": self.slot.arrival_ns,
                    "admitted_ns": p.admitted_ns,
                    "first_token_due_ns": p.first_due_ns,
                    "last_token_due_ns": p.last_due_ns,
                    "first_token_ns": self.first_sent_ns,
                    "last_token_ns": self.last_sent_ns,
                    "tokens": self.sent,
                    "prompt_tokens": self.slot.prompt_tokens,
                }),
            );
        }
        self.app.ended.notify_one();
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        let end = if self.app.leaving.get() {
            End::ServerExit
        } else {
            End::ClientGone
        };
        self.end(end, 0);
    }
}
