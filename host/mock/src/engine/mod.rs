//! The engine-core process: starts up phase by phase, holds the "GPU", schedules
//! and times tokens. It survives its parent, as vLLM's does.

mod device;
pub mod run;
pub mod sched;

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode, Stdio};

use serde_json::json;

use crate::args::{Config, DieAs, EngineArgs};
use crate::boot::Boot;
use crate::ipc::{FromEngine, MAX_CONFIG_BYTES};
use crate::logline::{Kind, LineWriter};
use crate::mono::{NS_PER_S, now_ns, sharpen_timers, sleep_until};
use crate::phases::{Pace, Phase};
use crate::release::lines::{Line, Occasion};
use crate::release::{self, Release};
use crate::truth::Truth;

/// Title of the worker process.
const WORKER_TITLE: &str = "VLLM::Worker";

/// Runs the hidden engine (or worker) process. Its standard input is the socket
/// to its parent; the parent sends the configuration first.
pub fn run_engine(args: EngineArgs) -> ExitCode {
    if args.worker {
        return run_worker();
    }
    let socket = match io::stdin().as_fd().try_clone_to_owned() {
        Ok(fd) => UnixStream::from(fd),
        Err(e) => return complain(&format!("cannot take over standard input: {e}")),
    };
    match read_config(&socket) {
        Ok(config) => Engine::new(config).map_or_else(|e| complain(&e), |e| e.run(&socket)),
        Err(e) => complain(&e),
    }
}

fn complain(message: &str) -> ExitCode {
    eprintln!(
        "blackstart mock engine: {message}; this process is started by `blackstart mock`, not by hand"
    );
    ExitCode::FAILURE
}

/// Reads the length-prefixed configuration.
fn read_config(socket: &UnixStream) -> Result<Config, String> {
    let mut from = socket;
    let mut length = [0_u8; 4];
    from.read_exact(&mut length)
        .map_err(|e| format!("no configuration on standard input: {e}"))?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_CONFIG_BYTES {
        return Err(format!(
            "a configuration of {length} bytes is over the limit of {MAX_CONFIG_BYTES}"
        ));
    }
    let mut body = vec![0_u8; length];
    from.read_exact(&mut body)
        .map_err(|e| format!("configuration cut short: {e}"))?;
    serde_json::from_slice(&body).map_err(|e| format!("configuration: {e}"))
}

/// Sets the name that `ps` and `/proc/PID/comm` show (15 bytes are kept).
fn set_process_name(name: &str) {
    let mut bytes: Vec<u8> = name.bytes().filter(|b| *b != 0).take(15).collect();
    bytes.push(0);
    // SAFETY: PR_SET_NAME reads a NUL-terminated string that lives through the call.
    let _ = unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr(), 0, 0, 0) };
}

/// The worker: holds the engine's socket and ends with the engine.
fn run_worker() -> ExitCode {
    set_process_name(WORKER_TITLE);
    ignore_interrupts();
    let mut sink = [0_u8; 64];
    let mut input = io::stdin().lock();
    loop {
        match input.read(&mut sink) {
            Ok(0) => return ExitCode::SUCCESS,
            Ok(_) => {}
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return ExitCode::SUCCESS,
        }
    }
}

/// Ctrl-C reaches the whole process group; the API process decides what it means.
fn ignore_interrupts() {
    // SAFETY: SIG_IGN is a valid disposition; no handler code is installed.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_IGN) };
}

struct Engine {
    config: Config,
    release: &'static Release,
    lines: Vec<Line>,
    truth: Truth,
}

impl Engine {
    fn new(config: Config) -> Result<Self, String> {
        let release = release::find(&config.release)?;
        let lines = release.lines()?;
        let truth = Truth::open(config.truth.as_deref(), "engine")
            .map_err(|e| format!("cannot open the truth file: {e}"))?;
        Ok(Engine {
            config,
            release,
            lines,
            truth,
        })
    }

    fn run(self, socket: &UnixStream) -> ExitCode {
        set_process_name("VLLM::EngineCore");
        ignore_interrupts();
        sharpen_timers();
        self.truth.write(
            "process_start",
            json!({ "ppid": rustix::process::getppid().map(|p| p.as_raw_nonzero().get()) }),
        );
        let mut worker = match self.start_worker() {
            Ok(w) => w,
            Err(e) => return complain(&format!("cannot start the worker process: {e}")),
        };
        let worker_pid = worker.as_ref().map_or(0, |(child, _)| child.id());
        // Kept for the life of the process: the lock is the memory.
        let _device = match self.boot(worker_pid) {
            Ok(device) => device,
            Err(()) => {
                tell(socket, FromEngine::Failed);
                return ExitCode::from(self.config.exit_code);
            }
        };
        tell(
            socket,
            FromEngine::Ready {
                at_ns: now_ns(),
                worker_pid,
            },
        );
        let end = run::serve(
            socket,
            worker.as_ref().map(|(_, s)| s),
            &self.config,
            &self.truth,
        );
        match end {
            Ok(run::End::Orphaned) => {
                self.truth.write("engine_orphaned", json!({}));
                self.live_on();
                ExitCode::SUCCESS
            }
            Ok(run::End::WorkerDied) => {
                self.worker_died(worker.as_mut().map(|(child, _)| child));
                ExitCode::FAILURE
            }
            Ok(run::End::Shutdown) => ExitCode::SUCCESS,
            Err(e) => complain(&format!("engine socket: {e}")),
        }
    }

    /// Nobody listens any more; memory stays taken.
    fn live_on(&self) {
        const STEP_NS: u64 = 3600 * NS_PER_S;
        match self.config.orphan_life_s {
            0 => loop {
                sleep_until(now_ns() + STEP_NS);
            },
            s => sleep_until(now_ns().saturating_add(s.saturating_mul(NS_PER_S))),
        }
    }

    fn start_worker(&self) -> io::Result<Option<(Child, UnixStream)>> {
        if !self.config.worker {
            return Ok(None);
        }
        let (ours, theirs) = UnixStream::pair()?;
        let child = Command::new("/proc/self/exe")
            .arg0(WORKER_TITLE)
            .args(&self.config.engine_prefix)
            .arg("--worker")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .spawn()?;
        self.truth
            .write("worker_start", json!({ "worker_pid": child.id() }));
        Ok(Some((child, ours)))
    }

    fn writers(&self, worker_pid: u32) -> (LineWriter, LineWriter) {
        let r = self.release;
        let engine = LineWriter::new(r.prefix, r.engine_name, std::process::id());
        let worker = if worker_pid == 0 {
            engine.clone()
        } else {
            LineWriter::new(r.prefix, "Worker", worker_pid)
        };
        (engine, worker)
    }

    /// Walks through the engine's phases.
    fn boot(&self, worker_pid: u32) -> Result<Option<device::Device>, ()> {
        let (engine, worker) = self.writers(worker_pid);
        let boot = Boot {
            release: self.release,
            lines: &self.lines,
            config: &self.config,
            truth: &self.truth,
            api: None,
            engine: Some(engine),
            worker: Some(worker),
        };
        let mut pace = Pace::from(self.config.banner_ns);
        let mut device = None;
        for phase in [
            Phase::Spawn,
            Phase::Init,
            Phase::Download,
            Phase::Weights,
            Phase::Model,
            Phase::Compile,
            Phase::Kv,
            Phase::Graphs,
            Phase::Warmup,
        ] {
            sleep_until(pace.advance(self.config.phases.seconds(phase)));
            if self.config.die_at == Some(phase) {
                self.fail(self.config.die_as);
                return Err(());
            }
            boot.print(Occasion::After(phase), &[]);
            if phase == Phase::Spawn
                && let Some(path) = &self.config.device_lock
            {
                match device::take(path, self.config.device_lock_wait_ns) {
                    Ok(taken) => device = Some(taken),
                    Err(e) => {
                        self.truth
                            .write("device_busy", json!({ "error": e.to_string() }));
                        self.fail_with(
                            &device::busy_message(self.release.free_memory_names_device),
                            "failure.gpu_memory",
                        );
                        return Err(());
                    }
                }
                if worker_pid == 0 {
                    self.truth.write("device_taken", json!({}));
                } else {
                    self.truth
                        .write("device_taken", json!({ "worker_pid": worker_pid }));
                }
            }
        }
        Ok(device)
    }

    fn fail(&self, how: DieAs) {
        let (exception, key) = match how {
            DieAs::Oom => (
                "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.96 GiB. GPU 0 has a total \
                 capacity of 79.11 GiB of which 1.02 GiB is free.",
                "failure.cuda_oom",
            ),
            DieAs::Nccl => (
                "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)",
                "failure.nccl",
            ),
            DieAs::Kv => (
                "ValueError: No available memory for the cache blocks. Try increasing \
                 `gpu_memory_utilization` when initializing the engine.",
                "failure.kv_memory",
            ),
        };
        self.fail_with(exception, key);
    }

    fn fail_with(&self, exception: &str, key: &str) {
        let (engine, _) = self.writers(0);
        let ns = now_ns();
        if !self.config.quiet {
            engine.print(
                Kind::Record("ERROR", self.release.failed_file),
                &format!(
                    "EngineCore failed to start.\nTraceback (most recent call last):\n{exception}"
                ),
            );
        }
        self.truth.write_at(ns, "boundary", json!({ "key": key }));
    }

    fn worker_died(&self, worker: Option<&mut Child>) {
        let code = worker.and_then(|w| w.wait().ok()).and_then(|s| {
            use std::os::unix::process::ExitStatusExt;
            s.code().or(s.signal().map(|n| -n))
        });
        let (engine, _) = self.writers(0);
        let ns = now_ns();
        if !self.config.quiet {
            let code = code.map_or_else(|| "unknown".to_owned(), |c| c.to_string());
            engine.print(
                Kind::Record("ERROR", "multiproc_executor.py:270"),
                &format!("Worker proc VllmWorker-0 died unexpectedly (exit code: {code}), shutting down executor."),
            );
        }
        self.truth
            .write_at(ns, "boundary", json!({ "key": "failure.worker_died" }));
    }
}

/// Sends one record, blocking; a vanished API process is noticed later.
fn tell(socket: &UnixStream, message: FromEngine) {
    use std::io::Write;
    let mut to = socket;
    let _ = to.write_all(&message.encode());
}
