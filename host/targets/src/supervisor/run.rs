//! The supervisor's main loop.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::{ExitCode, Stdio};
use std::sync::Arc;

use blackstart_clock::{NS_PER_S, RunClock, Urgency, monotonic_ns, request_real_time};
use blackstart_plan::{OrphanPolicy, RestartPolicy};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::WaitStatus;

use super::pump::Pump;
use super::tree;
use super::wire::{Command, Config, Orphan, WireEvent};
use super::{MAX_COMMAND_BYTES, MAX_CONFIG_BYTES};
use crate::proc;
use crate::process_ref::Signal;

/// Longest time between two looks at the world, should a wake-up be lost.
const IDLE_NS: i64 = NS_PER_S;
/// The kernel's timer slack of an ordinary thread, where it cannot be read.
const DEFAULT_TIMER_SLACK_NS: u64 = 50_000;
/// How long, in an orderly stop, processes may outlive the main process before SIGKILL.
const SURVIVOR_GRACE_NS: i64 = 2 * NS_PER_S;

/// The supervisor process: configuration and commands on standard input, events on standard
/// output, until the tree has been stopped. The exit code is 0 when nothing was left behind. The value
/// of `mask_env`, a variable of its own environment, is kept out of the server's log.
pub fn run(mask_env: Option<&str>) -> ExitCode {
    let mask = mask_env.and_then(std::env::var_os).unwrap_or_default();
    // Of the ordinary scheduler; real-time threads have none, and children would inherit that.
    let timer_slack_ns = rustix::thread::current_timer_slack().unwrap_or(DEFAULT_TIMER_SLACK_NS);
    // A server that keeps the host busy must not delay its own restart beyond the policy's delay.
    // A refusal costs only that.
    let _ = request_real_time(Urgency::Observing);
    let signals = match become_supervisor() {
        Ok(signals) => signals,
        Err(reason) => return refuse(reason),
    };
    let mut input = Input::default();
    let config = match input.config() {
        Ok(config) => config,
        Err(reason) => return refuse(reason),
    };
    let clock = RunClock::from_recorded(config.epoch_monotonic_ns, config.epoch_unix_ns);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&config.log_path);
    let pump = file.and_then(|file| {
        Pump::start(file, clock, Arc::from(mask.as_bytes()), |reason| {
            emit(&WireEvent::LogFailed {
                at: monotonic_ns(),
                reason,
            });
        })
    });
    let pump = match pump {
        Ok(pump) => pump,
        Err(e) => return refuse(format!("log `{}`: {e}", config.log_path.display())),
    };
    let mut supervisor = Supervisor {
        config,
        signals,
        input,
        pump,
        timer_slack_ns,
        main: None,
        starts: 0,
        restart_at: None,
        orphans: Vec::new(),
        stop: None,
    };
    if let Err(reason) = supervisor.start() {
        return refuse(reason);
    }
    supervisor.supervise();
    supervisor.finish()
}

fn refuse(reason: String) -> ExitCode {
    emit(&WireEvent::LaunchFailed {
        at: monotonic_ns(),
        reason,
    });
    ExitCode::FAILURE
}

/// One event line. A lost reader is noticed on standard input, not here.
fn emit(event: &WireEvent) {
    if let Ok(mut line) = serde_json::to_vec(event) {
        line.push(b'\n');
        let mut out = std::io::stdout().lock();
        let _ = out.write_all(&line);
        let _ = out.flush();
    }
}

/// Own session (a terminal's Ctrl-C is the instrument's business), subreaper, signals by file
/// descriptor.
fn become_supervisor() -> Result<OwnedFd, String> {
    // Fails only for a group leader, which has its own group already.
    let _ = rustix::process::setsid();
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1))
        .map_err(|e| format!("cannot become subreaper: {e}"))?;
    // SAFETY: plain system calls on values that live here; the mask is set before any thread.
    unsafe {
        libc::signal(libc::SIGINT, libc::SIG_IGN);
        libc::signal(libc::SIGHUP, libc::SIG_IGN);
        libc::signal(libc::SIGPIPE, libc::SIG_IGN);
        let mut mask: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut mask);
        libc::sigaddset(&raw mut mask, libc::SIGCHLD);
        libc::sigaddset(&raw mut mask, libc::SIGTERM);
        if libc::sigprocmask(libc::SIG_BLOCK, &raw const mask, std::ptr::null_mut()) != 0 {
            return Err(format!(
                "cannot block signals: {}",
                std::io::Error::last_os_error()
            ));
        }
        let fd = libc::signalfd(-1, &raw const mask, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
        if fd < 0 {
            return Err(format!("signalfd: {}", std::io::Error::last_os_error()));
        }
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// The main process.
struct Main {
    pid: u32,
    start_time: u64,
}

/// Orphans of one main process.
struct Orphaned {
    processes: Vec<Orphan>,
    count: u32,
}

/// An orderly stop under way.
struct Stop {
    kill_at: i64,
}

struct Supervisor {
    config: Config,
    signals: OwnedFd,
    input: Input,
    pump: Pump,
    /// What the server is started with, in nanoseconds.
    timer_slack_ns: u64,
    main: Option<Main>,
    starts: u32,
    restart_at: Option<i64>,
    orphans: Vec<Orphaned>,
    stop: Option<Stop>,
}

impl Supervisor {
    /// Starts the server. The reason of a failure is for people.
    fn start(&mut self) -> Result<(), String> {
        let program = self.config.command.first().ok_or("the command is empty")?;
        let (read_end, write_end) =
            pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("pipe: {e}"))?;
        let copy = write_end
            .try_clone()
            .map_err(|e| format!("output pipe: {e}"))?;
        let mut command = std::process::Command::new(program);
        command
            .args(&self.config.command[1..])
            .envs(&self.config.env)
            .stdin(Stdio::null())
            .stdout(write_end)
            .stderr(copy)
            .process_group(0);
        if let Some(cwd) = &self.config.cwd {
            command.current_dir(cwd);
        }
        let timer_slack_ns = self.timer_slack_ns;
        // SAFETY: only async-signal-safe calls between fork and exec.
        unsafe {
            command.pre_exec(move || {
                libc::prctl(
                    libc::PR_SET_TIMERSLACK,
                    timer_slack_ns as libc::c_ulong,
                    0,
                    0,
                    0,
                );
                let mut none: libc::sigset_t = std::mem::zeroed();
                libc::sigemptyset(&raw mut none);
                libc::sigprocmask(libc::SIG_SETMASK, &raw const none, std::ptr::null_mut());
                libc::signal(libc::SIGINT, libc::SIG_DFL);
                libc::signal(libc::SIGHUP, libc::SIG_DFL);
                // Should the supervisor itself be killed, the server must not run on unseen.
                libc::prctl(
                    libc::PR_SET_PDEATHSIG,
                    libc::SIGKILL as libc::c_ulong,
                    0,
                    0,
                    0,
                );
                Ok(())
            });
        }
        let child = command.spawn().map_err(|e| format!("`{program}`: {e}"))?;
        let at = monotonic_ns();
        // Not reaped yet by anyone but this thread, so its entry is there even if it ended.
        let pid = child.id();
        let start_time = proc::stat(pid).map_err(|e| format!("/proc/{pid}/stat: {e}"))?;
        let start_time = start_time.start_time;
        // The command holds the pipe's write ends; they must not outlive the server.
        drop(command);
        self.pump.add(read_end);
        self.main = Some(Main { pid, start_time });
        emit(&WireEvent::Started {
            at,
            pid,
            start_time,
            restarts: self.starts,
        });
        self.starts = self.starts.saturating_add(1);
        Ok(())
    }

    /// Until a stop has been asked for, and the tree is gone or its time is over.
    fn supervise(&mut self) {
        loop {
            self.reap();
            if let Some(stop) = &self.stop {
                let overdue = monotonic_ns() >= stop.kill_at;
                if overdue || (self.main.is_none() && tree::descendants().is_empty()) {
                    return;
                }
            }
            if self.restart_at.is_some_and(|t| monotonic_ns() >= t) {
                self.restart_at = None;
                if let Err(reason) = self.start() {
                    emit(&WireEvent::NotRestarted {
                        at: monotonic_ns(),
                        reason: format!("the next start failed: {reason}"),
                    });
                }
                continue;
            }
            self.wait();
        }
    }

    /// Waits for a child, a command, a signal or the next instant of the plan.
    fn wait(&mut self) {
        let now = monotonic_ns();
        let next = [self.restart_at, self.stop.as_ref().map(|s| s.kill_at)]
            .into_iter()
            .flatten()
            .fold(now + IDLE_NS, i64::min);
        let wait = (next - now).max(0);
        let timeout = Timespec {
            tv_sec: wait / NS_PER_S,
            tv_nsec: wait % NS_PER_S,
        };
        let stdin = std::io::stdin();
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        if !self.input.ended {
            fds.push(PollFd::new(&stdin, PollFlags::IN));
        }
        if poll(&mut fds, Some(&timeout)).is_err() {
            return;
        }
        let signalled = !fds[0].revents().is_empty();
        let spoken = fds.get(1).is_some_and(|f| !f.revents().is_empty());
        if signalled && self.terminate_asked() {
            self.begin_stop();
        }
        if spoken {
            for command in self.input.commands() {
                match command {
                    Command::Stop => self.begin_stop(),
                }
            }
            if self.input.ended {
                self.begin_stop();
            }
        }
    }

    /// Empties the signal descriptor; whether a SIGTERM was among them.
    fn terminate_asked(&self) -> bool {
        let mut asked = false;
        loop {
            // SAFETY: the structure is plain data, the descriptor is ours and non-blocking, and
            // the length is that of the structure.
            let signal = unsafe {
                let mut info: libc::signalfd_siginfo = std::mem::zeroed();
                let size = std::mem::size_of::<libc::signalfd_siginfo>();
                let got = libc::read(self.signals.as_raw_fd(), (&raw mut info).cast(), size);
                if got != size as isize {
                    return asked;
                }
                info.ssi_signo
            };
            asked |= signal == libc::SIGTERM as u32;
        }
    }

    /// SIGTERM to the main process. SIGCONT to all, since a frozen process hears nothing else.
    fn begin_stop(&mut self) {
        if self.stop.is_some() {
            return;
        }
        self.restart_at = None;
        self.stop = Some(Stop {
            kill_at: monotonic_ns() + self.config.stop_timeout_ns,
        });
        if let Some(main) = &self.main {
            let main = Orphan {
                pid: main.pid,
                start_time: main.start_time,
                title: String::new(),
            };
            tree::signal(&main, Signal::Term);
        }
        for process in tree::descendants() {
            tree::signal(&process, Signal::Cont);
        }
    }

    /// Takes note of ended children.
    fn reap(&mut self) {
        let main = self.main.as_ref().map(|m| m.pid);
        let mut main_status = None;
        tree::reap(|pid, status| {
            if Some(pid) == main {
                main_status = Some(status);
            }
        });
        if let Some(status) = main_status {
            self.main_ended(status);
        }
        // Orphans that were left alone: have they gone by themselves?
        let at = monotonic_ns();
        self.orphans.retain_mut(|group| {
            group.processes.retain(|p| {
                proc::stat(p.pid).is_ok_and(|s| s.start_time == p.start_time && s.lives())
            });
            if group.processes.is_empty() {
                emit(&WireEvent::OrphansGone {
                    at,
                    count: group.count,
                    killed: false,
                });
            }
            !group.processes.is_empty()
        });
    }

    fn main_ended(&mut self, status: WaitStatus) {
        let at = monotonic_ns();
        let Some(main) = self.main.take() else { return };
        let known: Vec<(u32, u64)> = self
            .orphans
            .iter()
            .flat_map(|g| g.processes.iter().map(|p| (p.pid, p.start_time)))
            .collect();
        // All that still lives below the supervisor and was not an earlier server's orphan.
        let orphans: Vec<Orphan> = tree::descendants()
            .into_iter()
            .filter(|p| !known.contains(&(p.pid, p.start_time)))
            .collect();
        let (code, signal) = (status.exit_status(), status.terminating_signal());
        emit(&WireEvent::Exited {
            at,
            pid: main.pid,
            code,
            signal,
            orphans: orphans.clone(),
        });
        if let Some(stop) = &mut self.stop {
            // A launcher that ends first: its server gets the same chance, but not all the time.
            stop.kill_at = stop.kill_at.min(at.saturating_add(SURVIVOR_GRACE_NS));
            for process in &orphans {
                tree::signal(process, Signal::Term);
            }
            return;
        }
        if !orphans.is_empty() {
            match self.config.orphans {
                OrphanPolicy::Kill => {
                    let (_, left) = tree::kill_all(|_, _| {});
                    if left.is_empty() {
                        emit(&WireEvent::OrphansGone {
                            at: monotonic_ns(),
                            count: orphans.len() as u32,
                            killed: true,
                        });
                    } else {
                        // Not killable yet (uninterruptible): watched like those left alone.
                        self.orphans.push(Orphaned {
                            count: orphans.len() as u32,
                            processes: left,
                        });
                    }
                }
                OrphanPolicy::Leave => self.orphans.push(Orphaned {
                    count: orphans.len() as u32,
                    processes: orphans,
                }),
            }
        }
        match not_restarted(self.config.restart, code, signal) {
            None => self.restart_at = Some(at.saturating_add(self.config.restart_delay_ns)),
            Some(reason) => emit(&WireEvent::NotRestarted {
                at: monotonic_ns(),
                reason,
            }),
        }
    }

    /// Nothing stays: what the orderly stop left is killed.
    fn finish(mut self) -> ExitCode {
        let main = self.main.as_ref().map(|m| m.pid);
        let mut main_status = None;
        let (_, left) = tree::kill_all(|pid, status| {
            if Some(pid) == main {
                main_status = Some(status);
            }
        });
        if let (Some(main), Some(status)) = (self.main.take(), main_status) {
            emit(&WireEvent::Exited {
                at: monotonic_ns(),
                pid: main.pid,
                code: status.exit_status(),
                signal: status.terminating_signal(),
                orphans: Vec::new(),
            });
        }
        self.pump.finish();
        let clean = left.is_empty();
        emit(&WireEvent::Stopped {
            at: monotonic_ns(),
            left,
        });
        if clean {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }
}

/// Why a policy does not start a server again that ended so; `None` = it does.
fn not_restarted(policy: RestartPolicy, code: Option<i32>, signal: Option<i32>) -> Option<String> {
    match policy {
        RestartPolicy::Always => None,
        RestartPolicy::OnFailure if signal.is_some() || code != Some(0) => None,
        RestartPolicy::OnFailure => Some(
            "restart policy `on-failure`: exit code 0 is not a failure (a server that shuts down \
             in good order after losing its engine exits so); `always` would start it again"
                .to_owned(),
        ),
        RestartPolicy::No => Some("restart policy `no`".to_owned()),
    }
}

/// Lines on standard input, without blocking once the configuration is read.
#[derive(Default)]
struct Input {
    bytes: Vec<u8>,
    ended: bool,
}

impl Input {
    fn config(&mut self) -> Result<Config, String> {
        loop {
            if let Some(line) = self.line() {
                return serde_json::from_slice(&line)
                    .map_err(|e| format!("supervisor configuration: {e}"));
            }
            if self.ended {
                return Err("supervisor configuration: standard input ended".to_owned());
            }
            if self.bytes.len() > MAX_CONFIG_BYTES {
                return Err(format!(
                    "supervisor configuration is longer than {MAX_CONFIG_BYTES} bytes"
                ));
            }
            self.read();
        }
    }

    /// What has come since; nonsense ends the input, as a dead instrument would.
    fn commands(&mut self) -> Vec<Command> {
        self.read();
        let mut found = Vec::new();
        while let Some(line) = self.line() {
            match serde_json::from_slice(&line) {
                Ok(command) => found.push(command),
                Err(_) => self.ended = true,
            }
        }
        if self.bytes.len() > MAX_COMMAND_BYTES {
            self.ended = true;
        }
        found
    }

    fn read(&mut self) {
        let mut chunk = [0; 4096];
        match rustix::io::read(std::io::stdin(), &mut chunk) {
            Ok(0) => self.ended = true,
            Ok(n) => self.bytes.extend_from_slice(&chunk[..n]),
            Err(Errno::INTR | Errno::AGAIN) => {}
            Err(_) => self.ended = true,
        }
    }

    fn line(&mut self) -> Option<Vec<u8>> {
        let end = self.bytes.iter().position(|&b| b == b'\n')?;
        let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
        line.pop();
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_decide_as_container_runtimes_do() {
        use RestartPolicy::{Always, No, OnFailure};
        assert!(not_restarted(Always, Some(0), None).is_none());
        assert!(not_restarted(OnFailure, Some(1), None).is_none());
        assert!(not_restarted(OnFailure, None, Some(9)).is_none());
        let reason = not_restarted(OnFailure, Some(0), None).expect("not restarted");
        assert!(reason.contains("exit code 0"), "{reason}");
        assert!(not_restarted(No, None, Some(9)).is_some());
    }
}
