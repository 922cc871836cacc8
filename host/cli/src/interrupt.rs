//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second one does not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::{SIGINT, SIGTERM};

use crate::exit::{Exit, Failure};

/// Says whether the operator asked to stop. Clones share one state.
#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Interrupt {
    /// Watches SIGINT and SIGTERM from now on. A second signal ends the process at once; the
    /// watchdog and the supervisors then undo and stop what is left.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn watch() -> Result<Self, Failure> {
        let this = Self {
            raised: Arc::new(AtomicBool::new(false)),
            signal: Arc::new(AtomicI32::new(0)),
        };
        for signal in [SIGINT, SIGTERM] {
            let register = || -> std::io::Result<()> {
                // Order matters: the shutdown handler looks at the flag before this signal sets it.
                signal_hook::flag::register_conditional_shutdown(
                    signal,
                    i32::from(Exit::Interrupted.code()),
                    this.raised.clone(),
                )?;
                signal_hook::flag::register(signal, this.raised.clone())?;
                let number = this.signal.clone();
                // SAFETY: an atomic store is async-signal-safe.
                unsafe {
                    signal_hook::low_level::register(signal, move || {
                        number.store(signal, Ordering::Relaxed);
                    })?;
                }
                Ok(())
            };
            register().map_err(|e| Failure::internal(e).context("watching for Ctrl-C"))?;
        }
        Ok(this)
    }

    /// Whether a signal came.
    pub fn raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Name of the signal that came.
    pub fn signal_name(&self) -> &'static str {
        match self.signal.load(Ordering::Relaxed) {
            SIGTERM => "SIGTERM",
            _ => "SIGINT",
        }
    }
}
