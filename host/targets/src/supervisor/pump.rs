//! Reads what the tree prints, stamps it, writes the log: one thread, so that stamps in the file
//! never go back.

use std::fs::File;
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, Urgency, monotonic_ns, request_real_time};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use super::DRAIN_TIMEOUT_NS;
use crate::lines::{LineSplitter, unix_now};

/// Bytes of one read: a pipe's whole default capacity.
const READ_BYTES: usize = 64 * 1024;

/// The thread that writes a log.
pub(super) struct Pump {
    wake: Arc<OwnedFd>,
    sources: Sender<OwnedFd>,
    closing: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Pump {
    /// Starts the thread; `mask` is kept out of the log. `on_error` gets the first failure to write, once.
    pub(super) fn start(
        file: File,
        clock: RunClock,
        mask: Arc<[u8]>,
        on_error: impl FnOnce(String) + Send + 'static,
    ) -> std::io::Result<Self> {
        let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        let closing = Arc::new(AtomicBool::new(false));
        let (sources, inbox) = channel();
        let worker = Worker {
            file,
            clock,
            mask,
            wake: wake.clone(),
            inbox,
            closing: closing.clone(),
            sources: Vec::new(),
            on_error: Some(Box::new(on_error)),
        };
        let thread = std::thread::Builder::new()
            .name("log".to_owned())
            .spawn(move || {
                // A line that is read late is stamped late. A refusal costs only that.
                let _ = request_real_time(Urgency::Observing);
                worker.run();
            })?;
        Ok(Self {
            wake,
            sources,
            closing,
            thread: Some(thread),
        })
    }

    /// Adds the read end of a pipe. One per start of the server: a line that a dying server began
    /// is never continued by its successor.
    pub(super) fn add(&self, read_end: OwnedFd) {
        if self.sources.send(read_end).is_ok() {
            self.notify();
        }
    }

    /// Writes what is still in the pipes, waits for their ends (bounded), ends the thread.
    pub(super) fn finish(mut self) {
        self.closing.store(true, Ordering::Release);
        self.notify();
        if let Some(thread) = self.thread.take() {
            // Its panic would be a lost log tail, which cannot be mended here.
            let _ = thread.join();
        }
    }

    fn notify(&self) {
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = rustix::io::write(self.wake.as_fd(), &1u64.to_ne_bytes());
    }
}

struct Source {
    fd: OwnedFd,
    splitter: LineSplitter,
}

struct Worker {
    file: File,
    clock: RunClock,
    mask: Arc<[u8]>,
    wake: Arc<OwnedFd>,
    inbox: Receiver<OwnedFd>,
    closing: Arc<AtomicBool>,
    sources: Vec<Source>,
    on_error: Option<Box<dyn FnOnce(String) + Send>>,
}

impl Worker {
    fn run(mut self) {
        let mut buffer = vec![0; READ_BYTES];
        let mut out = Vec::with_capacity(READ_BYTES);
        let mut drain_until = None;
        loop {
            // Read before the inbox is emptied: what was added before closing is then seen.
            let closing = self.closing.load(Ordering::Acquire);
            while let Ok(fd) = self.inbox.try_recv() {
                self.sources.push(Source {
                    fd,
                    splitter: LineSplitter::masking(self.mask.clone()),
                });
            }
            if closing && drain_until.is_none() {
                drain_until = Some(monotonic_ns() + DRAIN_TIMEOUT_NS);
            }
            if drain_until.is_some_and(|t| self.sources.is_empty() || monotonic_ns() >= t) {
                break;
            }
            let ready = self.wait(drain_until.is_some());
            for index in (0..ready.len()).rev() {
                if !ready[index] {
                    continue;
                }
                let source = &mut self.sources[index];
                match rustix::io::read(&source.fd, &mut buffer) {
                    Err(Errno::INTR | Errno::AGAIN) => {}
                    Ok(0) | Err(_) => {
                        source.splitter.finish(unix_now(&self.clock), &mut out);
                        self.sources.swap_remove(index);
                    }
                    Ok(n) => {
                        // The stamp stands as close to the read as it can.
                        let stamp = unix_now(&self.clock);
                        source.splitter.feed(&buffer[..n], stamp, &mut out);
                    }
                }
            }
            self.write(&mut out);
        }
        for source in &mut self.sources {
            source.splitter.finish(unix_now(&self.clock), &mut out);
        }
        self.write(&mut out);
    }

    /// Which sources have something to read; new sources and closing interrupt the wait.
    fn wait(&self, draining: bool) -> Vec<bool> {
        let mut fds = Vec::with_capacity(self.sources.len() + 1);
        fds.push(PollFd::new(&self.wake, PollFlags::IN));
        for source in &self.sources {
            fds.push(PollFd::new(&source.fd, PollFlags::IN));
        }
        let tick = if draining { 20 * NS_PER_MS } else { NS_PER_S };
        let timeout = Timespec {
            tv_sec: tick / NS_PER_S,
            tv_nsec: tick % NS_PER_S,
        };
        if poll(&mut fds, Some(&timeout)).is_err() {
            return vec![false; self.sources.len()];
        }
        if !fds[0].revents().is_empty() {
            let mut count = [0; 8];
            // Non-blocking; the count itself says nothing.
            let _ = rustix::io::read(&*self.wake, &mut count);
        }
        fds[1..].iter().map(|f| !f.revents().is_empty()).collect()
    }

    /// A failed write stops the log, never the server: its pipes are still emptied.
    fn write(&mut self, out: &mut Vec<u8>) {
        if !out.is_empty()
            && self.on_error.is_some()
            && let Err(error) = self.file.write_all(out)
            && let Some(report) = self.on_error.take()
        {
            report(error.to_string());
        }
        out.clear();
    }
}
