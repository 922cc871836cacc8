//! Real-time scheduling for the calling thread, where the system allows it.

/// Whether the calling thread runs under `SCHED_FIFO`, and if not why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RealTime {
    /// The thread runs under `SCHED_FIFO`.
    Granted,
    /// The system refused; the text is the system's reason.
    Refused(String),
}

/// How urgent a thread is among the instrument's own. All levels are above ordinary threads and
/// below the kernel's own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Keeps instants: load threads, the effect timeline.
    Instants,
    /// Must not starve, but gives way to [`Urgency::Instants`]: observers, the look-up of victims.
    Observing,
}

impl Urgency {
    /// `SCHED_FIFO` priority asked for.
    fn fifo_priority(self) -> i32 {
        match self {
            Self::Instants => 10,
            Self::Observing => 5,
        }
    }
}

/// Asks for `SCHED_FIFO`, and for [`Urgency::Instants`] a 1 ns timer slack, on the calling thread. A
/// refusal is not an error: it is reported, and the run goes on under the ordinary scheduler.
///
/// Children are under the ordinary scheduler again, but without timer slack, which real-time threads do
/// not have: a thread that starts the system under test must give it back what it had before.
pub fn request_real_time(urgency: Urgency) -> RealTime {
    // The slack is set first: it helps under the ordinary scheduler as well.
    if urgency == Urgency::Instants {
        // SAFETY: PR_SET_TIMERSLACK takes one integer and touches only this thread.
        unsafe {
            libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong, 0, 0, 0);
        }
    }
    let param = libc::sched_param {
        sched_priority: urgency.fifo_priority(),
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
