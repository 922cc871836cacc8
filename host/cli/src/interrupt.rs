//! Ctrl-C, SIGTERM and a terminal that is gone (SIGHUP): the first asks for an orderly end, the second one does not wait for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};

use crate::exit::{Exit, Failure};

/// Makes a file that has reached its limit of size an error of the write, as a full disk is, and not the
/// end of this process. A handler, not `SIG_IGN`: programs that are started from here do not inherit it.
pub fn survive_file_size_limits() {
    // A refusal only costs the message.
    let _ = signal_hook::flag::register(SIGXFSZ, Arc::default());
}

/// Whether whoever started this process made it ignore a signal.
fn ignored(signal: i32) -> bool {
    // SAFETY: zeros are a valid `sigaction`; with no new action the call only fills it in.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &raw mut action) == 0
            && action.sa_sigaction == libc::SIG_IGN
    }
}

/// Says whether the operator asked to stop. Clones share one state.
#[derive(Debug, Clone)]
pub struct Interrupt {
    raised: Arc<AtomicBool>,
    signal: Arc<AtomicI32>,
}

impl Interrupt {
    /// Watches SIGINT, SIGTERM and, unless it is ignored (`nohup`), SIGHUP from now on. A second signal ends the process at once; the
    /// watchdog and the supervisors then undo and stop what is left.
    ///
    /// # Errors
    /// When the system refuses the handlers.
    pub fn watch() -> Result<Self, Failure> {
        let this = Self {
            raised: Arc::new(AtomicBool::new(false)),
            signal: Arc::new(AtomicI32::new(0)),
        };
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            if signal == SIGHUP && ignored(signal) {
                continue;
            }
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
            SIGHUP => "SIGHUP",
            _ => "SIGINT",
        }
    }
}
