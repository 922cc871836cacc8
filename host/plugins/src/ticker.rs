//! The thread that makes the engine's epoch advance while guests run.
//!
//! It sleeps while no guest has run for a while, so that an idle plugin host does
//! not wake a processor that is busy keeping a schedule.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// Length of an epoch: the grain of every deadline.
pub(crate) const TICK: Duration = Duration::from_millis(5);
/// Ticks without a call after which the thread sleeps.
const IDLE_TICKS: u32 = 200;

#[derive(Default)]
struct Shared {
    /// Calls under way.
    running: AtomicUsize,
    /// The thread sleeps until it is woken.
    parked: AtomicBool,
    /// Epochs made so far; read by tests only.
    ticks: AtomicU64,
    stop: Mutex<bool>,
    wake: Condvar,
}

/// Owns the thread; dropping it ends the thread.
pub(crate) struct Ticker {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// A call is under way while this lives.
pub(crate) struct Running<'a>(&'a Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Ticker {
    /// Starts the thread; `tick` is called once an epoch.
    pub fn start(tick: impl Fn() + Send + 'static) -> std::io::Result<Ticker> {
        let shared = Arc::new(Shared::default());
        let theirs = Arc::clone(&shared);
        let thread = std::thread::Builder::new()
            .name("plugin-epoch".into())
            .spawn(move || run(&theirs, tick))?;
        Ok(Ticker {
            shared,
            thread: Some(thread),
        })
    }

    /// Says that a guest is about to run.
    pub fn enter(&self) -> Running<'_> {
        // Sequentially consistent on both sides, here and in `run`: either this
        // sees `parked`, or the thread sees the call.
        self.shared.running.fetch_add(1, Ordering::SeqCst);
        if self.shared.parked.load(Ordering::SeqCst) {
            drop(lock(&self.shared.stop));
            self.shared.wake.notify_one();
        }
        Running(&self.shared)
    }

    #[cfg(test)]
    fn ticks(&self) -> u64 {
        self.shared.ticks.load(Ordering::SeqCst)
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        *lock(&self.shared.stop) = true;
        self.shared.wake.notify_one();
        if let Some(thread) = self.thread.take() {
            // The thread runs nothing but `tick`, which does not panic.
            let _ = thread.join();
        }
    }
}

fn lock(mutex: &Mutex<bool>) -> std::sync::MutexGuard<'_, bool> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(shared: &Shared, tick: impl Fn()) {
    let mut idle = 0;
    let mut stop = lock(&shared.stop);
    while !*stop {
        if shared.running.load(Ordering::SeqCst) > 0 {
            idle = 0;
        } else {
            idle += 1;
        }
        if idle > IDLE_TICKS {
            shared.parked.store(true, Ordering::SeqCst);
            while !*stop && shared.running.load(Ordering::SeqCst) == 0 {
                stop = shared
                    .wake
                    .wait(stop)
                    .unwrap_or_else(PoisonError::into_inner);
            }
            shared.parked.store(false, Ordering::SeqCst);
            idle = 0;
            continue;
        }
        stop = shared
            .wake
            .wait_timeout(stop, TICK)
            .unwrap_or_else(PoisonError::into_inner)
            .0;
        tick();
        shared.ticks.fetch_add(1, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits until `done`, at most ten seconds.
    fn eventually(mut done: impl FnMut() -> bool) -> bool {
        for _ in 0..2000 {
            if done() {
                return true;
            }
            std::thread::sleep(TICK);
        }
        false
    }

    #[test]
    fn it_ticks_while_a_call_runs_sleeps_when_idle_and_wakes() {
        let counted = Arc::new(AtomicU64::new(0));
        let theirs = Arc::clone(&counted);
        let ticker = Ticker::start(move || {
            theirs.fetch_add(1, Ordering::SeqCst);
        })
        .unwrap();
        let running = ticker.enter();
        assert!(eventually(|| counted.load(Ordering::SeqCst) > 3));
        drop(running);
        assert!(
            eventually(|| ticker.shared.parked.load(Ordering::SeqCst)),
            "an idle ticker must sleep"
        );
        let asleep = ticker.ticks();
        let running = ticker.enter();
        assert!(eventually(|| ticker.ticks() > asleep));
        drop(running);
        drop(ticker);
        let ended = counted.load(Ordering::SeqCst);
        std::thread::sleep(TICK * 4);
        assert_eq!(counted.load(Ordering::SeqCst), ended);
    }
}
