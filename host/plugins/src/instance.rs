//! One running instance of a plugin: its store, the deadline of each call, its log
//! lines, and its quarantine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::component::{Component, Linker};
use wasmtime::{Store, StoreContextMut, Trap, UpdateDeadline};

use crate::engine::Engine;
use crate::error::{PluginError, Quarantine, Stopped};
use crate::limits::{
    Limiter, MAX_CORE_INSTANCES, MAX_HANDLES, MAX_LOG_BYTES, MAX_LOG_MESSAGES, MAX_TEXT_BYTES,
    MAX_TRANSFER_BYTES, WALL_FACTOR,
};
use crate::text::shown;
use crate::ticker::TICK;
use crate::types::{Call, Label};

/// How grave a plugin's log line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogLevel {
    /// For the plugin's author.
    Debug,
    /// Worth knowing.
    Info,
    /// Something may be wrong.
    Warn,
    /// Something is wrong; a panic's message arrives here.
    Error,
}

/// A log line of a plugin: cut to a bound and free of control characters.
#[derive(Debug)]
pub struct LogLine<'a> {
    /// Who says it.
    pub plugin: &'a Label,
    /// During which call.
    pub call: Call,
    /// How grave it is.
    pub level: LogLevel,
    /// What it says.
    pub message: &'a str,
}

/// Takes log lines of plugins.
pub(crate) type LogSink = Arc<dyn Fn(&LogLine<'_>) + Send + Sync>;

/// The sink used when none is given.
pub(crate) fn log_to_tracing(line: &LogLine<'_>) {
    let (plugin, version) = (line.plugin.name.as_str(), line.plugin.version.as_str());
    let (call, message) = (line.call, line.message);
    match line.level {
        LogLevel::Debug => tracing::debug!(target: "plugin", plugin, version, %call, "{message}"),
        LogLevel::Info => tracing::info!(target: "plugin", plugin, version, %call, "{message}"),
        LogLevel::Warn => tracing::warn!(target: "plugin", plugin, version, %call, "{message}"),
        LogLevel::Error => tracing::error!(target: "plugin", plugin, version, %call, "{message}"),
    }
}

/// What a store holds: `world` is the part that differs between the worlds.
pub(crate) struct HostState<W> {
    pub world: W,
    label: Label,
    limiter: Limiter,
    log: LogSink,
    call: CallState,
}

/// The call under way.
struct CallState {
    call: Call,
    budget: Duration,
    /// Set at the first epoch that ends during the call, so that a short call reads
    /// no clock: wall clock and processor time of this thread at that moment.
    measured_from: Option<(Instant, Duration)>,
    messages: u32,
    /// The last message of level error: a panic's text.
    last_error: Option<String>,
}

/// Raised by the epoch callback.
#[derive(Debug, thiserror::Error)]
#[error("deadline")]
struct DeadlineOver;

/// Raised by a host function that a guest called in a way the contract rules out.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Misuse(pub String);

impl<W> HostState<W> {
    /// A line from the log import.
    pub fn log_line(&mut self, level: LogLevel, message: &str) {
        self.call.messages = self.call.messages.saturating_add(1);
        let over = self.call.messages > MAX_LOG_MESSAGES;
        if over && level != LogLevel::Error {
            return;
        }
        let message = shown(message, MAX_LOG_BYTES);
        if !over {
            self.pass_on(level, &message);
        }
        if level == LogLevel::Error {
            self.call.last_error = Some(message);
        }
    }

    fn pass_on(&self, level: LogLevel, message: &str) {
        (self.log)(&LogLine {
            plugin: &self.label,
            call: self.call.call,
            level,
            message,
        });
    }

    /// Says how many lines of the call were not passed on.
    fn close_log(&self) {
        let dropped = self.call.messages.saturating_sub(MAX_LOG_MESSAGES);
        if dropped > 0 {
            let message = format!("{dropped} more log lines of this call were dropped");
            self.pass_on(LogLevel::Warn, &message);
        }
    }
}

/// Deadlines count the processor time of the calling thread, so that a busy machine
/// does not condemn a good plugin; wall clock bounds them at a multiple.
fn epoch_ended<W>(
    mut store: StoreContextMut<'_, HostState<W>>,
) -> wasmtime::Result<UpdateDeadline> {
    let call = &mut store.data_mut().call;
    let (wall, cpu) = (Instant::now(), thread_cpu());
    let (wall_from, cpu_from) = *call.measured_from.get_or_insert((wall, cpu));
    let used = cpu.saturating_sub(cpu_from);
    if used >= call.budget || wall.saturating_duration_since(wall_from) >= call.budget * WALL_FACTOR
    {
        return Err(DeadlineOver.into());
    }
    Ok(UpdateDeadline::Continue(ticks(call.budget - used)))
}

/// Epochs that cover `duration`.
fn ticks(duration: Duration) -> u64 {
    let whole = duration.as_nanos().div_ceil(TICK.as_nanos());
    u64::try_from(whole).unwrap_or(u64::MAX / 2).max(1)
}

/// Processor time of this thread.
fn thread_cpu() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or(0),
        u32::try_from(time.tv_nsec).unwrap_or(0),
    )
}

/// A running instance with its typed exports `B`; gone for good once it is stopped.
pub(crate) struct Instance<W: 'static, B> {
    engine: Engine,
    label: Label,
    state: Result<Box<Alive<W, B>>, Arc<Quarantine>>,
}

struct Alive<W: 'static, B> {
    store: Store<HostState<W>>,
    exports: B,
}

impl<W: Send + 'static, B> Instance<W, B> {
    /// Instantiates a component; `bind` finds its typed exports.
    pub fn new(
        engine: &Engine,
        label: &Label,
        world: W,
        bind: impl FnOnce(&mut Store<HostState<W>>) -> wasmtime::Result<B>,
    ) -> Result<Instance<W, B>, PluginError> {
        let limits = engine.limits();
        let mut store = Store::new(
            engine.wasm(),
            HostState {
                world,
                label: label.clone(),
                limiter: Limiter::new(limits),
                log: Arc::clone(engine.log()),
                call: CallState {
                    call: Call::Instantiate,
                    budget: limits.call_budget,
                    measured_from: None,
                    messages: 0,
                    last_error: None,
                },
            },
        );
        store.limiter(|state| &mut state.limiter);
        store.set_hostcall_fuel(MAX_TRANSFER_BYTES);
        store.set_max_component_handles(MAX_HANDLES);
        store.epoch_deadline_callback(epoch_ended);
        store.set_epoch_deadline(FIRST_TICKS);
        let running = engine.ticker().enter();
        let bound = bind(&mut store);
        drop(running);
        store.data().close_log();
        match bound {
            Ok(exports) => Ok(Instance {
                engine: engine.clone(),
                label: label.clone(),
                state: Ok(Box::new(Alive { store, exports })),
            }),
            Err(error) => {
                let quarantine = Quarantine {
                    plugin: label.clone(),
                    call: Call::Instantiate,
                    stopped: why(&error, store.data_mut()),
                };
                note_shortage(engine, &quarantine);
                Err(PluginError::Quarantined(Arc::new(quarantine)))
            }
        }
    }

    /// Who runs here.
    pub fn label(&self) -> &Label {
        &self.label
    }

    /// The engine it runs in.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// Runs one call within `budget`. Whatever stops it also ends the instance.
    pub fn call<R>(
        &mut self,
        call: Call,
        budget: Duration,
        run: impl FnOnce(&mut Store<HostState<W>>, &B) -> wasmtime::Result<R>,
    ) -> Result<R, PluginError> {
        let alive = match &mut self.state {
            Ok(alive) => alive,
            Err(quarantine) => return Err(PluginError::Quarantined(Arc::clone(quarantine))),
        };
        let Alive { store, exports } = &mut **alive;
        let state = &mut store.data_mut().call;
        state.call = call;
        state.budget = budget;
        state.measured_from = None;
        state.messages = 0;
        state.last_error = None;
        store.set_epoch_deadline(FIRST_TICKS);
        let running = self.engine.ticker().enter();
        let result = run(store, exports);
        drop(running);
        store.data().close_log();
        match result {
            Ok(value) => Ok(value),
            Err(error) => {
                let stopped = why(&error, store.data_mut());
                Err(self.quarantine(call, stopped))
            }
        }
    }

    /// The part of the state that the world owns; `None` once stopped.
    pub fn world_mut(&mut self) -> Option<&mut W> {
        let alive = self.state.as_mut().ok()?;
        Some(&mut alive.store.data_mut().world)
    }

    /// Throws the instance away; every later call gives the same error.
    pub fn quarantine(&mut self, call: Call, stopped: Stopped) -> PluginError {
        let quarantine = Arc::new(Quarantine {
            plugin: self.label.clone(),
            call,
            stopped,
        });
        tracing::warn!(target: "plugin", "{quarantine}");
        note_shortage(&self.engine, &quarantine);
        self.state = Err(Arc::clone(&quarantine));
        PluginError::Quarantined(quarantine)
    }

    /// Why it was stopped, if it was.
    pub fn quarantined(&self) -> Option<&Quarantine> {
        self.state.as_ref().err().map(Arc::as_ref)
    }

    /// Takes an answer apart with `check`; what it refuses ends the instance.
    pub fn checked<R>(
        &mut self,
        call: Call,
        check: impl FnOnce() -> Result<R, Stopped>,
    ) -> Result<R, PluginError> {
        check().map_err(|stopped| self.quarantine(call, stopped))
    }
}

/// Remembers in the engine what stopped a plugin for the machine's sake.
fn note_shortage(engine: &Engine, quarantine: &Quarantine) {
    if matches!(quarantine.stopped, Stopped::HostShortage(_)) {
        engine.note_shortage(&quarantine.to_string());
    }
}

/// Epochs until the callback looks at a call for the first time.
const FIRST_TICKS: u64 = 1;

/// Reads off an engine error why a call ended.
fn why<W>(error: &wasmtime::Error, state: &mut HostState<W>) -> Stopped {
    if let Some(hit) = state.limiter.hit.take() {
        return hit;
    }
    if error.downcast_ref::<DeadlineOver>().is_some() {
        let budget = state.call.budget;
        return Stopped::Deadline { budget };
    }
    if let Some(Misuse(what)) = error.downcast_ref::<Misuse>() {
        return Stopped::Misuse(what.clone());
    }
    if let Some(what) = crate::shortage::of(error) {
        return Stopped::HostShortage(what);
    }
    match error.downcast_ref::<Trap>() {
        Some(Trap::StackOverflow) => return Stopped::StackOverflow,
        Some(Trap::UnreachableCodeReached) => {
            return match state.call.last_error.take() {
                Some(text) => Stopped::Panic(text),
                None => Stopped::Trap("it reached an `unreachable` instruction".into()),
            };
        }
        Some(trap) => return Stopped::Trap(trap.to_string()),
        None => {}
    }
    let text = shown(&error.root_cause().to_string(), MAX_TEXT_BYTES);
    // The engine has no public type for these two.
    if text.contains("fuel allocated for hostcalls") {
        return Stopped::TooLarge {
            what: "the data it hands over".into(),
            limit: format!("{} MiB", MAX_TRANSFER_BYTES >> 20),
        };
    }
    if text.contains("resource limit exceeded: instance count") {
        return Stopped::Count {
            what: "core instances",
            limit: MAX_CORE_INSTANCES,
        };
    }
    Stopped::Trap(text)
}

/// Why a component does not fit a linker, as one line.
pub(crate) fn link_error(error: &wasmtime::Error) -> String {
    shown(&format!("{error:#}"), MAX_TEXT_BYTES)
}

/// A component resolved against the imports its world and grants give it.
pub(crate) fn resolve<W: 'static>(
    linker: &Linker<HostState<W>>,
    component: &Component,
) -> Result<wasmtime::component::InstancePre<HostState<W>>, String> {
    linker
        .instantiate_pre(component)
        .map_err(|e| link_error(&e))
}
