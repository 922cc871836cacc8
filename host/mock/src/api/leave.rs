//! The ways out: a failed start, a dead engine, an order to stop.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::sync::Notify;

use crate::api::app::Engine;
use crate::api::life::{Out, Server};
use crate::api::server::Connections;
use crate::api::start::EngineHandle;
use crate::args::MockArgs;
use crate::ipc::ToEngine;
use crate::logline::Kind;
use crate::mono::now_ns;
use crate::release::lines::Occasion;

/// How long open responses may take to finish once the server leaves.
const LEAVE_PATIENCE: Duration = Duration::from_secs(3);
/// How long a drain that overran keeps silent connections open.
const OVERRUN_PATIENCE: Duration = Duration::from_secs(600);
/// How long the engine may take to exit when asked.
const ENGINE_EXIT_PATIENCE: Duration = Duration::from_secs(2);

impl Server {
    /// The start failed or was interrupted.
    pub(super) fn start_failed(&mut self, out: Out) -> u8 {
        let code = match out {
            Out::Signal(name) => {
                self.app.truth.write("signal", json!({ "name": name }));
                self.end_engine(Duration::ZERO);
                0
            }
            Out::ApiDied => {
                self.end_engine(Duration::ZERO);
                self.app.config.exit_code
            }
            Out::EngineGone => {
                let status = self.end_engine(ENGINE_EXIT_PATIENCE);
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

    /// Waits up to `patience` for the engine to end by itself, then kills it; its
    /// exit code, or minus the signal.
    fn end_engine(&mut self, patience: Duration) -> i32 {
        const STEP_NS: u64 = 2_000_000;
        let EngineHandle::Process(child) = &mut self.handle else {
            return 0;
        };
        let code = |s: ExitStatus| s.code().or(s.signal().map(|n| -n)).unwrap_or(0);
        let deadline = Instant::now() + patience;
        while Instant::now() < deadline {
            match child.try_wait() {
                Ok(Some(status)) => return code(status),
                Ok(None) => crate::mono::sleep_until(now_ns() + STEP_NS),
                Err(_) => break,
            }
        }
        // Already dead is as good.
        let _ = child.kill();
        child.wait().map_or(0, code)
    }

    /// The engine ended without being asked. `Some` = exit with this code.
    pub(super) async fn engine_gone(
        &mut self,
        args: &MockArgs,
        connections: &Connections,
    ) -> Option<u8> {
        let ns = now_ns();
        let status = self.end_engine(ENGINE_EXIT_PATIENCE);
        self.app
            .truth
            .write_at(ns, "engine_gone", json!({ "status": status }));
        self.app.engine_died();
        let death = &self.app.release.engine_death;
        let engine = self.app.release.engine_name;
        self.boot()
            .print(Occasion::EngineDead, &[("engine", engine)]);
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
    pub(super) async fn stop(
        &mut self,
        args: &MockArgs,
        name: &str,
        gone: &Notify,
        connections: &Connections,
    ) -> u8 {
        self.app.truth.write("signal", json!({ "name": name }));
        let timeout = args.shutdown_timeout.clamp(0.0, 86_400.0);
        let mode = if timeout > 0.0 { "drain" } else { "abort" };
        self.boot().print(
            Occasion::Shutdown,
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
        self.end_engine(Duration::ZERO);
        0
    }
}
