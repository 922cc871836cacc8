//! The engine's loop: one thread that waits for records and deadlines together.
//!
//! `ppoll` with a nanosecond timeout computed from absolute deadlines, timer slack
//! 1 ns and an optional short spin; no tick, no drift.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;

use blackstart_clock::{RealTime, Urgency, request_real_time};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::{RecvFlags, SendFlags, recv, send};
use serde_json::json;

use crate::args::Config;
use crate::engine::sched::{MAX_WAITING, Request, Rules, Scheduler};
use crate::ipc::{Finish, FromEngine, ToEngine, drain_records};
use crate::mono::{NS_PER_S, now_ns, sharpen_timers, sleep_until};
use crate::truth::Truth;

/// Output that the API process may leave unread before the engine waits for it.
const MAX_OUT_BYTES: usize = 256 * 1024 * 1024;
/// Waking later than this past a deadline means the process was stopped (SIGSTOP,
/// a frozen control group): engine time then excludes the gap.
const FROZEN_NS: u64 = 100_000_000;
/// An arrival older than this counts as arriving now (ns).
const MAX_BACKDATE_NS: u64 = 50_000_000;
/// From this many running sequences on, tokens are sent in spans of `coalesce_ns`.
const COALESCE_FROM_SEQS: usize = 32;
/// Longest single wait (bounds every poll).
const MAX_WAIT_NS: u64 = 10 * NS_PER_S;
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// Why the loop ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The API process asked for it.
    Shutdown,
    /// The API process is gone without a word: the engine is an orphan.
    Orphaned,
    /// The worker process died.
    WorkerDied,
}

/// Runs until shutdown, orphaning or the death of the worker.
///
/// `worker` is a socket whose other end the worker holds.
///
/// # Errors
/// Socket errors other than a vanished peer, and records that are not ours.
pub fn serve(
    socket: &UnixStream,
    worker: Option<&UnixStream>,
    config: &Config,
    truth: &Truth,
) -> io::Result<End> {
    sharpen_timers();
    if config.realtime {
        let granted = request_real_time(Urgency::Instants) == RealTime::Granted;
        truth.write("realtime", json!({ "granted": granted }));
    }
    socket.set_nonblocking(true)?;
    let mut scheduler = Scheduler::new(Rules {
        max_num_seqs: config.max_num_seqs as usize,
        ttft_ns: config.ttft_ns,
        ttft_per_prompt_token_ns: config.ttft_per_prompt_token_ns,
        itl_ns: config.itl_ns,
        itl_per_seq_ns: config.itl_per_seq_ns,
        jitter_ns: config.jitter_ns,
        seed: config.seed,
    });
    let mut clock = EngineClock::default();
    let mut input: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut out: Vec<u8> = Vec::with_capacity(READ_BYTES);
    let mut commands: Vec<ToEngine> = Vec::new();
    let mut scratch = vec![0_u8; READ_BYTES];

    loop {
        // What is due, unless the clock stands or the reader is far behind.
        let runs = clock.stalled_at.is_none() && out.len() < MAX_OUT_BYTES;
        if runs {
            let offset = clock.offset_ns;
            scheduler.advance(clock.engine_time(now_ns()), &mut |m| {
                push(&mut out, m, offset)
            });
        }
        if !flush(socket, &mut out)? {
            return Ok(End::Orphaned);
        }

        let wake_ns = match scheduler.next_due_ns() {
            Some(due) if runs => {
                let late = if scheduler.running() >= COALESCE_FROM_SEQS {
                    config.coalesce_ns
                } else {
                    0
                };
                Some(due.saturating_add(clock.offset_ns).saturating_add(late))
            }
            _ => None,
        };
        let now = now_ns();
        let sleep_ns = wake_ns.map_or(MAX_WAIT_NS, |w| {
            w.saturating_sub(config.spin_ns)
                .saturating_sub(now)
                .min(MAX_WAIT_NS)
        });
        let (readable, worker_gone) = wait(socket, worker, !out.is_empty(), sleep_ns)?;
        if worker_gone {
            return Ok(End::WorkerDied);
        }
        if let Some(wake) = wake_ns {
            if !readable {
                while now_ns() < wake && wake - now_ns().min(wake) <= config.spin_ns {
                    std::hint::spin_loop();
                }
            }
            let woke = now_ns();
            let planned = wake.min(now + MAX_WAIT_NS);
            if woke > planned + FROZEN_NS {
                let from = planned;
                clock.offset_ns += woke - from;
                truth.write_at(from, "engine_frozen", json!({ "until_ns": woke }));
            }
        }
        if !readable {
            continue;
        }

        loop {
            match recv(socket, &mut scratch[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Ok(End::Orphaned),
                Ok((_, n)) => {
                    input.extend_from_slice(&scratch[..n]);
                    if n < scratch.len() {
                        break;
                    }
                }
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => {}
                Err(rustix::io::Errno::CONNRESET) => return Ok(End::Orphaned),
                Err(e) => return Err(e.into()),
            }
        }
        drain_records(&mut input, ToEngine::decode, |m| commands.push(m))
            .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
        for command in commands.drain(..) {
            let real = now_ns();
            let now = clock.engine_time(real);
            let offset = clock.offset_ns;
            match command {
                ToEngine::Submit {
                    id,
                    prompt_tokens,
                    max_tokens,
                    stops,
                    arrival_ns,
                } => {
                    let request = Request {
                        id,
                        prompt_tokens,
                        max_tokens,
                        stops,
                    };
                    let at = clock.arrival(arrival_ns, real);
                    if clock.stalled_at.is_some() && clock.held.len() >= MAX_WAITING {
                        let finish = Finish::Abort;
                        push(
                            &mut out,
                            FromEngine::Ended {
                                id,
                                at_ns: at,
                                finish,
                            },
                            offset,
                        );
                    } else if clock.stalled_at.is_some() {
                        // Queued behind the stall; counted as waiting.
                        clock.held.push(request);
                    } else {
                        scheduler.submit(at, request, &mut |m| push(&mut out, m, offset));
                    }
                }
                ToEngine::Abort { id } => {
                    clock.held.retain(|r| r.id != id);
                    if clock.stalled_at.is_some() {
                        clock.dropped.push(id);
                    } else {
                        scheduler.abort(now, id, &mut |m| push(&mut out, m, offset));
                    }
                }
                ToEngine::Stall { on } => {
                    if on {
                        clock.stall(real);
                    } else if clock.resume(real) {
                        let (now, offset) = (clock.engine_time(real), clock.offset_ns);
                        for id in std::mem::take(&mut clock.dropped) {
                            scheduler.abort(now, id, &mut |m| push(&mut out, m, offset));
                        }
                        for request in std::mem::take(&mut clock.held) {
                            scheduler.submit(now, request, &mut |m| push(&mut out, m, offset));
                        }
                    }
                }
                ToEngine::Shutdown => {
                    for r in std::mem::take(&mut clock.held) {
                        scheduler.submit(now, r, &mut |_| {});
                    }
                    scheduler.abort_all(now, &mut |m| push(&mut out, m, offset));
                    flush_all(socket, &mut out);
                    return Ok(End::Shutdown);
                }
            }
        }
    }
}

/// Engine time = CLOCK_MONOTONIC − `offset_ns`, standing still while stalled.
#[derive(Debug, Default)]
struct EngineClock {
    offset_ns: u64,
    /// Engine time at which an ordered stall began.
    stalled_at: Option<u64>,
    /// Requests that came during the stall.
    held: Vec<Request>,
    /// Requests given up during the stall.
    dropped: Vec<u64>,
}

impl EngineClock {
    fn engine_time(&self, real_ns: u64) -> u64 {
        self.stalled_at
            .unwrap_or_else(|| real_ns.saturating_sub(self.offset_ns))
    }

    fn arrival(&self, arrival_ns: u64, real_ns: u64) -> u64 {
        let at = if arrival_ns <= real_ns && real_ns - arrival_ns <= MAX_BACKDATE_NS {
            arrival_ns
        } else {
            real_ns
        };
        self.engine_time(at)
    }

    fn stall(&mut self, real_ns: u64) {
        if self.stalled_at.is_none() {
            self.stalled_at = Some(real_ns.saturating_sub(self.offset_ns));
        }
    }

    /// True when there was a stall to end.
    fn resume(&mut self, real_ns: u64) -> bool {
        let Some(at) = self.stalled_at.take() else {
            return false;
        };
        self.offset_ns = real_ns.saturating_sub(at);
        true
    }
}

/// Puts a record on the output, its instants back on CLOCK_MONOTONIC.
fn push(out: &mut Vec<u8>, message: FromEngine, offset_ns: u64) {
    let on_clock = match message {
        FromEngine::Admitted { id, at_ns } => FromEngine::Admitted {
            id,
            at_ns: at_ns.saturating_add(offset_ns),
        },
        FromEngine::Token {
            id,
            index,
            due_ns,
            finish,
        } => FromEngine::Token {
            id,
            index,
            due_ns: due_ns.saturating_add(offset_ns),
            finish,
        },
        FromEngine::Ended { id, at_ns, finish } => FromEngine::Ended {
            id,
            at_ns: at_ns.saturating_add(offset_ns),
            finish,
        },
        other => other,
    };
    out.extend_from_slice(&on_clock.encode());
}

/// Sends what the socket takes; false when the peer is gone.
fn flush(socket: &UnixStream, out: &mut Vec<u8>) -> io::Result<bool> {
    let mut sent = 0;
    let mut alive = true;
    while sent < out.len() {
        match send(socket, &out[sent..], SendFlags::NOSIGNAL) {
            Ok(n) => sent += n,
            Err(rustix::io::Errno::AGAIN) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                alive = false;
                break;
            }
            Err(e) => return Err(e.into()),
        }
    }
    out.drain(..sent);
    Ok(alive)
}

/// Gives the API process a moment to take the last records.
fn flush_all(socket: &UnixStream, out: &mut Vec<u8>) {
    const PATIENCE_NS: u64 = 2 * NS_PER_S;
    let deadline = now_ns() + PATIENCE_NS;
    while !out.is_empty() && now_ns() < deadline {
        match flush(socket, out) {
            Ok(true) => {}
            Ok(false) | Err(_) => return,
        }
        if !out.is_empty() {
            sleep_until(now_ns() + 1_000_000);
        }
    }
}

/// Waits for input, room for output, the worker's end or the time.
fn wait(
    socket: &UnixStream,
    worker: Option<&UnixStream>,
    want_write: bool,
    sleep_ns: u64,
) -> io::Result<(bool, bool)> {
    let mut flags = PollFlags::IN;
    if want_write {
        flags |= PollFlags::OUT;
    }
    let timeout = Timespec {
        tv_sec: (sleep_ns / NS_PER_S) as i64,
        tv_nsec: (sleep_ns % NS_PER_S) as i64,
    };
    let mut both;
    let mut one;
    let fds: &mut [PollFd<'_>] = match worker {
        Some(w) => {
            both = [
                PollFd::from_borrowed_fd(socket.as_fd(), flags),
                PollFd::from_borrowed_fd(w.as_fd(), PollFlags::IN),
            ];
            &mut both
        }
        None => {
            one = [PollFd::from_borrowed_fd(socket.as_fd(), flags)];
            &mut one
        }
    };
    match poll(fds, Some(&timeout)) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(e) => return Err(e.into()),
    }
    let ended = PollFlags::IN | PollFlags::HUP | PollFlags::ERR;
    let readable = fds[0].revents().intersects(ended);
    let worker_gone = fds.get(1).is_some_and(|f| f.revents().intersects(ended));
    Ok((readable, worker_gone))
}
