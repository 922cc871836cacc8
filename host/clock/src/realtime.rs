//! Real-time scheduling for the calling thread, where the system allows it.

/// Whether the calling thread runs under `SCHED_FIFO`, and if not why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealTime {
    /// The thread runs under `SCHED_FIFO`.
    Granted,
    /// The system refused; the text is the system's reason.
    Refused(String),
}

/// `SCHED_FIFO` priority asked for: above ordinary threads, below the kernel's own.
const FIFO_PRIORITY: i32 = 10;

/// Asks for `SCHED_FIFO` and a 1 ns timer slack on the calling thread. A refusal is not an error:
/// it is reported, and the run goes on under the ordinary scheduler.
pub fn request_real_time() -> RealTime {
    // The slack is set first: it helps under the ordinary scheduler as well.
    // SAFETY: PR_SET_TIMERSLACK takes one integer and touches only this thread.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
    }
    let param = libc::sched_param {
        sched_priority: FIFO_PRIORITY,
    };
    // SAFETY: `param` outlives the call; pid 0 names the calling thread. RESET_ON_FORK keeps
    // children (the supervised server) under the ordinary scheduler.
    let rc = unsafe {
        libc::sched_setscheduler(
            0,
            libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK,
            &raw const param,
        )
    };
    if rc == 0 {
        RealTime::Granted
    } else {
        RealTime::Refused(std::io::Error::last_os_error().to_string())
    }
}
