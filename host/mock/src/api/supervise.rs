//! The life of the API process: start, serve, and the three ways out (engine dead,
//! SIGTERM, failed start).

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;
use std::time::Duration;

use hyper::header::HeaderValue;
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

use crate::api::app::{App, Engine, Parts};
use crate::api::link::Link;
use crate::api::server::{self, Connections, Routes};
use crate::api::start::{EngineHandle, start_engine, start_engine_thread};
use crate::api::state::StateFile;
use crate::args::{Config, DieAs, MockArgs};
use crate::boot::Boot;
use crate::ipc::{FromEngine, ToEngine};
use crate::logline::{Kind, LineWriter, write_stdout};
use crate::mono::{NS_PER_S, now_ns};
use crate::phases::{Pace, Phase};
use crate::release::{self, Release};
use crate::truth::Truth;

/// Exit code of a wrong command line.
const EXIT_USAGE: u8 = 3;
/// How long open responses may take to finish once the server leaves.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a drain that overran keeps silent connections open.
const OVERRUN_PATIENCE: Duration = Duration::from_secs(600);
/// How long the engine may take to exit when asked.
const ENGINE_EXIT_PATIENCE: Duration = Duration::from_secs(2);
/// Period of the throughput line.
const STATS_PERIOD: Duration = Duration::from_secs(10);

/// Runs the mock server until it is told to stop or fails as scripted.
pub fn run(args: MockArgs) -> ExitCode {
    let config = match args.config() {
        Ok(c) => c,
        Err(e) => return complain(EXIT_USAGE, &e),
    };
    let release = match release::find(&config.release) {
        Ok(r) => r,
        Err(e) => return complain(EXIT_USAGE, &e),
    };
    let runtime = match tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
    {
        Ok(r) => r,
        Err(e) => return complain(1, &format!("cannot start the runtime: {e}")),
    };
    let local = tokio::task::LocalSet::new();
    runtime.block_on(local.run_until(async move {
        match life(args, config, release).await {
            Ok(code) => ExitCode::from(code),
            Err(e) => complain(1, &e.to_string()),
        }
    }))
}

fn complain(code: u8, message: &str) -> ExitCode {
    eprintln!("blackstart mock: {message}");
    ExitCode::from(code)
}

fn at<T>(what: &str, r: io::Result<T>) -> io::Result<T> {
    r.map_err(|e| io::Error::new(e.kind(), format!("{what}: {e}")))
}

struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    fn install() -> io::Result<Self> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// Sleeps to an instant on CLOCK_MONOTONIC: coarse by the runtime's timer, then exact.
async fn sleep_until(deadline_ns: u64) {
    /// The runtime's timer has millisecond steps.
    const COARSE_NS: u64 = 3_000_000;
    let now = now_ns();
    if deadline_ns > now + COARSE_NS {
        tokio::time::sleep(Duration::from_nanos(deadline_ns - now - COARSE_NS)).await;
    }
    crate::mono::sleep_until(deadline_ns);
}

/// How starting or serving ended.
enum Out {
    Signal(&'static str),
    EngineGone,
    StartFailed,
}

async fn life(args: MockArgs, mut config: Config, release: &'static Release) -> io::Result<u8> {
    let started_ns = now_ns();
    let mut signals = at("signals", Signals::install())?;
    let truth = at("--truth", Truth::open(config.truth.as_deref(), "api"))?;
    let state = match &args.state_file {
        Some(path) => Some(at("--state-file", StateFile::begin(path))?),
        None => None,
    };
    apply_state(&args, &mut config, state.as_ref());
    let address = SocketAddr::new(args.host, args.port);
    let socket = server::bind(address).map_err(|e| {
        let mend = if e.kind() == io::ErrorKind::AddrInUse {
            "; stop what listens there or choose another --port"
        } else {
            ""
        };
        io::Error::new(e.kind(), format!("cannot bind {address}: {e}{mend}"))
    })?;
    config.port = socket.local_addr()?.port();
    truth.write_at(
        started_ns,
        "process_start",
        json!({
            "release": release.version, "start": state.as_ref().map(|s| s.start), "port": config.port,
            "replica": args.replica_name,
        }),
    );
    let replica = match &args.replica_name {
        None => None,
        Some(n) => Some(
            HeaderValue::from_str(n)
                .map_err(|_| io::Error::other("--replica-name must be printable ASCII"))?,
        ),
    };

    // The API's phases before the engine.
    let writer = LineWriter::new(release.prefix, "APIServer", std::process::id());
    let mut pace = Pace::from(started_ns);
    let import = pace.advance(config.phases.seconds(Phase::Import));
    config.banner_ns = import;
    let (handle, engine_socket) = if args.canary {
        at("engine thread", start_engine_thread(&config))?
    } else {
        tokio::select! {
            () = sleep_until(import) => {}
            _ = signals.any() => return Ok(0),
        }
        boot(&config, release, &truth, &writer).print(Phase::Import);
        if config.die_at == Some(Phase::Import) {
            return Ok(api_dies(&config, &writer));
        }
        at(
            "engine process",
            start_engine(&config, release, args.engine_title.as_deref()),
        )?
    };
    engine_socket.set_nonblocking(true)?;
    let link = Link::new(tokio::net::UnixStream::from_std(engine_socket)?);
    let app = App::new(Parts {
        config,
        release,
        truth,
        replica,
        access_log: (!args.no_access_log && !args.canary).then(|| writer.clone()),
        admin_on_main: args.admin_on_main,
        state,
        link: Rc::clone(&link),
    });
    let mut server = Server {
        app,
        handle,
        writer,
        signals,
        leave: watch::Sender::new(false),
    };
    server.run(&args, socket).await
}

fn apply_state(args: &MockArgs, config: &mut Config, state: Option<&StateFile>) {
    let Some(state) = state else { return };
    let reload = if state.start > 1 {
        args.slow_reload
    } else {
        None
    };
    config.phases.scale(state.factor.or(reload).unwrap_or(1.0));
    if args.die_on_start.is_some_and(|n| n != state.start) {
        config.die_at = None;
    }
}

fn boot<'a>(
    config: &'a Config,
    release: &'static Release,
    truth: &'a Truth,
    writer: &LineWriter,
) -> Boot<'a> {
    Boot {
        release,
        config,
        truth,
        api: Some(writer.clone()),
        engine: None,
        worker: None,
    }
}

fn api_dies(config: &Config, writer: &LineWriter) -> u8 {
    let exception = match config.die_as {
        DieAs::Oom => "MemoryError",
        DieAs::Nccl => "RuntimeError: NCCL error: unhandled system error",
        DieAs::Kv => "ValueError: No available memory for the cache blocks.",
    };
    writer.print(
        Kind::Bare,
        &format!("Traceback (most recent call last):\n{exception}"),
    );
    config.exit_code
}

struct Server {
    app: Rc<App>,
    handle: EngineHandle,
    writer: LineWriter,
    signals: Signals,
    leave: watch::Sender<bool>,
}

impl Server {
    async fn run(&mut self, args: &MockArgs, socket: TcpSocket) -> io::Result<u8> {
        let connections = Connections::new(self.leave.subscribe());
        let admin_port = self.start_admin(args, &connections)?;
        let (ready, gone) = self.start_link();
        match self.start_phases(&ready, &gone).await {
            None => {}
            Some(out) => return Ok(self.start_failed(out)),
        }
        let listener = at("listen", server::listen(socket))?;
        let engine_pid = match &self.handle {
            EngineHandle::Process(child) => child.id(),
            EngineHandle::Thread => std::process::id(),
        };
        let port = self.app.config.port;
        self.app
            .truth
            .write("ready", json!({ "port": port, "engine_pid": engine_pid }));
        if args.announce {
            let line = json!({
                "event": "ready", "port": port, "admin_port": admin_port, "pid": std::process::id(), "engine_pid": engine_pid,
            });
            write_stdout(format!("{line}\n").as_bytes());
        }
        let accepting = tokio::task::spawn_local(server::accept_loop(
            Rc::clone(&self.app),
            listener,
            Routes::Main,
            connections.clone(),
        ));
        if !self.app.config.quiet {
            tokio::task::spawn_local(stats_loop(Rc::clone(&self.app), self.writer.clone()));
        }
        let code = loop {
            let out = tokio::select! {
                () = gone.notified() => Out::EngineGone,
                name = self.signals.any() => Out::Signal(name),
            };
            match out {
                Out::Signal(name) => break self.stop(args, name, &gone, &connections).await,
                Out::EngineGone | Out::StartFailed => {
                    if let Some(code) = self.engine_gone(args, &connections).await {
                        break code;
                    }
                }
            }
        };
        accepting.abort();
        self.app.leaving.set(true);
        self.app.truth.write("exit", json!({ "code": code }));
        Ok(code)
    }

    fn start_admin(&self, args: &MockArgs, connections: &Connections) -> io::Result<Option<u16>> {
        let Some(port) = args.admin_port else {
            return Ok(None);
        };
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let socket = at(
            &format!("--admin-port: cannot bind {address}"),
            server::bind(address),
        )?;
        let listener = at("--admin-port", server::listen(socket))?;
        let port = listener.local_addr()?.port();
        tokio::task::spawn_local(server::accept_loop(
            Rc::clone(&self.app),
            listener,
            Routes::Admin,
            connections.clone(),
        ));
        Ok(Some(port))
    }

    /// Starts reading and writing the engine's socket. The first notification tells
    /// of readiness or failure (see the cell), the second of the engine's end.
    fn start_link(&self) -> (Rc<(Notify, Cell<Option<bool>>)>, Rc<Notify>) {
        let ready = Rc::new((Notify::new(), Cell::new(None)));
        let gone = Rc::new(Notify::new());
        let link = Rc::clone(&self.app.link);
        tokio::task::spawn_local(Rc::clone(&link).write_loop());
        let (app, tell, end) = (Rc::clone(&self.app), Rc::clone(&ready), Rc::clone(&gone));
        tokio::task::spawn_local(async move {
            let read = link.read_loop(|record| match record {
                FromEngine::Ready { .. } => {
                    tell.1.set(Some(true));
                    tell.0.notify_one();
                }
                FromEngine::Failed => {
                    tell.1.set(Some(false));
                    tell.0.notify_one();
                }
                other => app.on_record(other),
            });
            if let Err(e) = read.await {
                eprintln!("blackstart mock: {e}");
            }
            end.notify_one();
        });
        (ready, gone)
    }

    /// Waits for the engine, then walks through the API's own last phases.
    async fn start_phases(
        &mut self,
        ready: &(Notify, Cell<Option<bool>>),
        gone: &Notify,
    ) -> Option<Out> {
        let mut pace = match self.handle {
            EngineHandle::Thread => return None,
            EngineHandle::Process(_) => {
                tokio::select! {
                    biased;
                    () = ready.0.notified() => {
                        if ready.1.get() != Some(true) {
                            return Some(Out::StartFailed);
                        }
                        Pace::from(now_ns())
                    }
                    () = gone.notified() => return Some(Out::StartFailed),
                    name = self.signals.any() => return Some(Out::Signal(name)),
                }
            }
        };
        for phase in [Phase::Server, Phase::Routes] {
            let deadline = pace.advance(self.app.config.phases.seconds(phase));
            tokio::select! {
                biased;
                () = gone.notified() => return Some(Out::StartFailed),
                name = self.signals.any() => return Some(Out::Signal(name)),
                () = sleep_until(deadline) => {}
            }
            if self.app.config.die_at == Some(phase) {
                api_dies(&self.app.config, &self.writer);
                return Some(Out::StartFailed);
            }
            self.boot().print(phase);
        }
        None
    }

    fn boot(&self) -> Boot<'_> {
        boot(
            &self.app.config,
            self.app.release,
            &self.app.truth,
            &self.writer,
        )
    }

    /// The start failed or was interrupted.
    fn start_failed(&mut self, out: Out) -> u8 {
        let code = match out {
            Out::Signal(name) => {
                self.app.truth.write("signal", json!({ "name": name }));
                self.kill_engine();
                0
            }
            Out::StartFailed | Out::EngineGone => {
                let status = self.kill_engine();
                if !self.app.config.quiet {
                    self.writer.print(
                        Kind::Bare,
                        &format!(
                            "Traceback (most recent call last):\nRuntimeError: Engine core initialization failed. \
                             See root cause above. Failed core proc(s): {{'{}': {status}}}",
                            self.app.release.engine_name
                        ),
                    );
                }
                self.app
                    .truth
                    .write("boundary", json!({ "key": "failure.engine_start" }));
                self.app.config.exit_code
            }
        };
        self.app.truth.write("exit", json!({ "code": code }));
        code
    }

    /// Makes sure the engine is gone; its exit code, or minus the signal.
    fn kill_engine(&mut self) -> i32 {
        use std::os::unix::process::ExitStatusExt;
        let EngineHandle::Process(child) = &mut self.handle else {
            return 0;
        };
        let deadline = now_ns() + NS_PER_S / 2;
        loop {
            match child.try_wait() {
                Ok(Some(s)) => return s.code().or(s.signal().map(|n| -n)).unwrap_or(0),
                // An engine that said it failed exits by itself within this time.
                Ok(None) if self.app.link.is_closed() && now_ns() < deadline => {
                    crate::mono::sleep_until(now_ns() + 2_000_000);
                }
                Ok(None) | Err(_) => break,
            }
        }
        // Already dead is as good.
        let _ = child.kill();
        child
            .wait()
            .ok()
            .and_then(|s| s.code().or(s.signal().map(|n| -n)))
            .unwrap_or(0)
    }

    /// The engine ended without being asked. `Some` = exit with this code.
    async fn engine_gone(&mut self, args: &MockArgs, connections: &Connections) -> Option<u8> {
        let ns = now_ns();
        let status = self.kill_engine();
        self.app
            .truth
            .write_at(ns, "engine_gone", json!({ "status": status }));
        self.app.engine_died();
        let death = &self.app.release.engine_death;
        let engine = self.app.release.engine_name;
        self.boot().print_lines(death.lines, &[("engine", engine)]);
        if self.app.engine.get() == Engine::DeadUnnoticed {
            return None;
        }
        let unhealthy = args.unhealthy_ms.or(death.unhealthy_ms).unwrap_or(0);
        tokio::time::sleep(Duration::from_millis(unhealthy)).await;
        self.wind_down(connections, LEAVE_PATIENCE).await;
        // vLLM leaves in good order, with code 0.
        Some(0)
    }

    async fn wind_down(&self, connections: &Connections, patience: Duration) {
        self.leave.send_replace(true);
        if !self.app.config.quiet {
            self.writer.print(Kind::Uvicorn("INFO"), "Shutting down");
        }
        connections.drained(patience).await;
        if !self.app.config.quiet {
            for text in [
                "Waiting for application shutdown.",
                "Application shutdown complete.",
            ] {
                self.writer.print(Kind::Uvicorn("INFO"), text);
            }
            self.writer.print(
                Kind::Uvicorn("INFO"),
                &format!("Finished server process [{}]", std::process::id()),
            );
        }
    }

    /// An orderly end: abort (or drain) the open requests, exit 0.
    async fn stop(
        &mut self,
        args: &MockArgs,
        name: &str,
        gone: &Notify,
        connections: &Connections,
    ) -> u8 {
        self.app.truth.write("signal", json!({ "name": name }));
        let timeout = args.shutdown_timeout.clamp(0.0, 86_400.0);
        let mode = if timeout > 0.0 { "drain" } else { "abort" };
        self.boot().print_lines(
            self.app.release.shutdown,
            &[("mode", mode), ("timeout", &format!("{timeout:.0}"))],
        );
        let mut patience = LEAVE_PATIENCE;
        if timeout > 0.0 {
            let drained = async {
                while self.app.in_engine() > 0 {
                    self.app.ended.notified().await;
                }
            };
            if tokio::time::timeout(Duration::from_secs_f64(timeout), drained)
                .await
                .is_err()
            {
                // As recorded: a drain that overruns leaves its streams silent until
                // the clients give up.
                self.app.link.send(ToEngine::Stall { on: true });
                self.app
                    .truth
                    .write("drain_overrun", json!({ "open": self.app.in_engine() }));
                patience = OVERRUN_PATIENCE;
            }
        }
        if patience == LEAVE_PATIENCE {
            self.app.link.send(ToEngine::Shutdown);
            // The last records come before the end of the socket.
            let _ = tokio::time::timeout(ENGINE_EXIT_PATIENCE, gone.notified()).await;
        }
        self.wind_down(connections, patience).await;
        self.kill_engine();
        0
    }
}

/// vLLM's throughput line, every ten seconds while something happens.
async fn stats_loop(app: Rc<App>, writer: LineWriter) {
    let mut last = (0_u64, 0_u64);
    let mut was_busy = false;
    loop {
        tokio::time::sleep(STATS_PERIOD).await;
        let (prompt, generated, running, waiting) = {
            let m = app.metrics.borrow();
            (m.prompt_tokens, m.generation_tokens, m.running, m.waiting)
        };
        let busy = running + waiting > 0 || (prompt, generated) != last;
        if busy || was_busy {
            let per_s = |now: u64, before: u64| (now - before) as f64 / STATS_PERIOD.as_secs_f64();
            writer.print(
                Kind::Record("INFO", app.release.stats_file),
                &format!(
                    "Engine 000: Avg prompt throughput: {:.1} tokens/s, Avg generation throughput: {:.1} tokens/s, \
                     Running: {running} reqs, Waiting: {waiting} reqs, GPU KV cache usage: {:.1}%, \
                     Prefix cache hit rate: 0.0%",
                    per_s(prompt, last.0),
                    per_s(generated, last.1),
                    app.kv_usage() * 100.0
                ),
            );
        }
        was_busy = busy;
        last = (prompt, generated);
    }
}
