//! Setting the API process up: options, state file, port, engine, shared state.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::rc::Rc;

use blackstart_clock::{RealTime, Urgency, request_real_time};
use hyper::header::HeaderValue;
use serde_json::json;
use tokio::sync::watch;

use crate::api::app::{App, Parts};
use crate::api::life::{Server, Signals, api_dies, at, boot, sleep_until};
use crate::api::link::Link;
use crate::api::server;
use crate::api::start::{start_engine, start_engine_thread};
use crate::api::state::StateFile;
use crate::args::{Config, MockArgs};
use crate::logline::LineWriter;
use crate::mono::now_ns;
use crate::phases::{Pace, Phase};
use crate::release::lines::Occasion;
use crate::release::{self, Release};
use crate::truth::Truth;

/// Exit code of a wrong command line.
const EXIT_USAGE: u8 = 3;
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

async fn life(args: MockArgs, mut config: Config, release: &'static Release) -> io::Result<u8> {
    let started_ns = now_ns();
    let lines = release.lines().map_err(io::Error::other)?;
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

    let realtime = config
        .realtime
        .then(|| request_real_time(Urgency::Instants) == RealTime::Granted);
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
        boot(&config, release, &lines, &truth, &writer).print(Occasion::After(Phase::Import), &[]);
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
        lines,
        writer,
        realtime,
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
