//! An alarm clock in a load thread's own event loop, exact to the kernel's timer. tokio's counts in
//! whole milliseconds and is always late.

use std::io;
use std::os::fd::OwnedFd;

use blackstart_clock::{NS_PER_S, monotonic_ns};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A timer of the kernel (timerfd).
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// # Errors
    /// When the system gives no timer.
    pub(crate) fn new() -> io::Result<Self> {
        let timer = timerfd_create(
            TimerfdClockId::Monotonic,
            TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC,
        )?;
        // SAFETY: `AsyncFd` owns the timer, and nothing here replaces or closes it before that drops.
        let timer = unsafe { AsyncFd::register_with_interest(timer, Interest::READABLE)? };
        Ok(Self { timer })
    }

    fn set(&self, first_ns: i64, period_ns: i64) -> io::Result<()> {
        let timespec = |ns: i64| Timespec {
            tv_sec: ns / NS_PER_S,
            tv_nsec: ns % NS_PER_S,
        };
        timerfd_settime(
            self.timer.get_ref(),
            TimerfdTimerFlags::ABSTIME,
            &Itimerspec {
                it_interval: timespec(period_ns),
                it_value: timespec(first_ns),
            },
        )?;
        Ok(())
    }

    /// Waits until a monotonic instant; returns at once if it is past. One at a time.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) async fn until(&self, monotonic_deadline_ns: i64) -> io::Result<()> {
        if monotonic_ns() >= monotonic_deadline_ns {
            return Ok(());
        }
        self.set(monotonic_deadline_ns, 0)?;
        loop {
            // Setting it anew is what makes it unreadable again: nothing is read from it.
            self.timer.readable().await?.clear_ready();
            if monotonic_ns() >= monotonic_deadline_ns {
                return Ok(());
            }
        }
    }

    /// Rings at `first_ns` and then after each period, until it is set otherwise.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn every(&self, first_ns: i64, period_ns: i64) -> io::Result<()> {
        self.set(first_ns, period_ns)
    }

    /// Waits for it to ring and tells how often it has rung since the last call.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) async fn rung(&self) -> io::Result<u64> {
        loop {
            let mut ready = self.timer.readable().await?;
            let mut times = [0_u8; 8];
            // Of a read that would block, the readiness was of an earlier setting.
            if let Ok(read) = ready.try_io(|fd| Ok(rustix::io::read(fd, &mut times)?)) {
                read?;
                return Ok(u64::from_ne_bytes(times));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_clock::NS_PER_MS;

    #[test]
    fn it_never_rings_early_and_can_be_set_again_at_any_time() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let alarm = Alarm::new().unwrap();
            let start = monotonic_ns();
            for k in 1..=3 {
                // Given up before it rings; what is left of it must not end the next wait.
                let never = alarm.until(start + 3600 * NS_PER_S);
                let waited = tokio::time::timeout(std::time::Duration::from_millis(1), never);
                assert!(waited.await.is_err());
                let due = start + k * 5 * NS_PER_MS;
                alarm.until(due).await.unwrap();
                assert!(monotonic_ns() >= due);
            }
            alarm.until(start).await.unwrap();
            alarm.every(monotonic_ns(), NS_PER_MS).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(5));
            assert!(alarm.rung().await.unwrap() >= 5);
        });
    }
}
