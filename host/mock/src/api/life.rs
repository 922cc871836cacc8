//! The API process from the engine's start to its way out.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use serde_json::json;
use tokio::net::TcpSocket;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{Notify, watch};

use crate::api::app::App;
use crate::api::server::{self, Connections, Routes};
use crate::api::start::EngineHandle;
use crate::api::stats::stats_loop;
use crate::args::{Config, DieAs, MockArgs};
use crate::boot::Boot;
use crate::ipc::FromEngine;
use crate::logline::{Kind, LineWriter, write_stdout};
use crate::mono::now_ns;
use crate::phases::{Pace, Phase};
use crate::release::Release;
use crate::release::lines::{Line, Occasion};
use crate::truth::Truth;

/// Says what an I/O error was about.
pub(super) fn at<T>(what: &str, r: io::Result<T>) -> io::Result<T> {
    r.map_err(|e| io::Error::new(e.kind(), format!("{what}: {e}")))
}

/// The orders to stop.
pub(super) struct Signals {
    term: Signal,
    int: Signal,
}

impl Signals {
    pub(super) fn install() -> io::Result<Self> {
        Ok(Signals {
            term: signal(SignalKind::terminate())?,
            int: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn any(&mut self) -> &'static str {
        tokio::select! {
            _ = self.term.recv() => "SIGTERM",
            _ = self.int.recv() => "SIGINT",
        }
    }
}

/// Sleeps to an instant on CLOCK_MONOTONIC: coarse by the runtime's timer, then exact.
pub(super) async fn sleep_until(deadline_ns: u64) {
    /// The runtime's timer has millisecond steps.
    const COARSE_NS: u64 = 3_000_000;
    let now = now_ns();
    if deadline_ns > now + COARSE_NS {
        tokio::time::sleep(Duration::from_nanos(deadline_ns - now - COARSE_NS)).await;
    }
    crate::mono::sleep_until(deadline_ns);
}

/// How starting or serving ended.
pub(super) enum Out {
    /// Told to stop.
    Signal(&'static str),
    /// The engine ended, or said that it cannot start.
    EngineGone,
    /// A scripted failure of the API process itself.
    ApiDied,
}

/// The API's own line printer.
pub(super) fn boot<'a>(
    config: &'a Config,
    release: &'static Release,
    lines: &'a [Line],
    truth: &'a Truth,
    writer: &LineWriter,
) -> Boot<'a> {
    Boot {
        release,
        lines,
        config,
        truth,
        api: Some(writer.clone()),
        engine: None,
        worker: None,
    }
}

/// A scripted failure of the API process itself; the exit code.
pub(super) fn api_dies(config: &Config, writer: &LineWriter) -> u8 {
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
/// A running server.
pub(super) struct Server {
    /// Shared state.
    pub app: Rc<App>,
    /// What runs the engine.
    pub handle: EngineHandle,
    /// Log lines of the release.
    pub lines: Vec<Line>,
    /// Printer of the API's lines.
    pub writer: LineWriter,
    /// Real-time priority of the API thread: granted or not, `None` = not asked for.
    pub realtime: Option<bool>,
    /// Orders to stop.
    pub signals: Signals,
    /// True = wind down.
    pub leave: watch::Sender<bool>,
}

/// Whether the engine became ready (`true`) or failed, once it said so.
#[derive(Default)]
struct Readiness {
    told: Notify,
    ready: Cell<Option<bool>>,
}

impl Server {
    /// Starts up, serves, leaves; the exit code.
    pub(super) async fn run(&mut self, args: &MockArgs, socket: TcpSocket) -> io::Result<u8> {
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
        if args.announce || args.port == 0 {
            let line = json!({
                "event": "ready", "port": port, "admin_port": admin_port, "pid": std::process::id(), "engine_pid": engine_pid,
                "realtime": self.realtime,
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
                Out::EngineGone | Out::ApiDied => {
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
    fn start_link(&self) -> (Rc<Readiness>, Rc<Notify>) {
        let ready = Rc::new(Readiness::default());
        let gone = Rc::new(Notify::new());
        let link = Rc::clone(&self.app.link);
        tokio::task::spawn_local(Rc::clone(&link).write_loop());
        let (app, tell, end) = (Rc::clone(&self.app), Rc::clone(&ready), Rc::clone(&gone));
        tokio::task::spawn_local(async move {
            let read = link.read_loop(|record| match record {
                FromEngine::Ready { .. } => {
                    tell.ready.set(Some(true));
                    tell.told.notify_one();
                }
                FromEngine::Failed => {
                    tell.ready.set(Some(false));
                    tell.told.notify_one();
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
    async fn start_phases(&mut self, ready: &Readiness, gone: &Notify) -> Option<Out> {
        let mut pace = match self.handle {
            EngineHandle::Thread => return None,
            EngineHandle::Process(_) => {
                tokio::select! {
                    biased;
                    () = ready.told.notified() => {
                        if ready.ready.get() != Some(true) {
                            return Some(Out::EngineGone);
                        }
                        Pace::from(now_ns())
                    }
                    () = gone.notified() => return Some(Out::EngineGone),
                    name = self.signals.any() => return Some(Out::Signal(name)),
                }
            }
        };
        for phase in [Phase::Server, Phase::Routes] {
            let deadline = pace.advance(self.app.config.phases.seconds(phase));
            tokio::select! {
                biased;
                () = gone.notified() => return Some(Out::EngineGone),
                name = self.signals.any() => return Some(Out::Signal(name)),
                () = sleep_until(deadline) => {}
            }
            if self.app.config.die_at == Some(phase) {
                api_dies(&self.app.config, &self.writer);
                return Some(Out::ApiDied);
            }
            self.boot().print(Occasion::After(phase), &[]);
        }
        None
    }

    pub(super) fn boot(&self) -> Boot<'_> {
        boot(
            &self.app.config,
            self.app.release,
            &self.lines,
            &self.app.truth,
            &self.writer,
        )
    }
}
