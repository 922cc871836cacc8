//! Starting: state file, port, engine process, start-up lines.

use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use crate::args::Config;
use crate::engine;
use crate::ipc::MAX_CONFIG_BYTES;
use crate::release::Release;
use crate::truth::Truth;

/// What runs the engine.
#[derive(Debug)]
pub enum EngineHandle {
    /// A process of its own.
    Process(Child),
    /// A thread of this process (canary).
    Thread,
}

/// Starts the engine and gives the API's end of its socket.
///
/// # Errors
/// Socket, process or thread creation failed.
pub fn start_engine(
    config: &Config,
    release: &Release,
    title: Option<&str>,
) -> io::Result<(EngineHandle, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let child = Command::new("/proc/self/exe")
        .arg0(title.unwrap_or(release.engine_title))
        .args(&config.engine_prefix)
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .spawn()?;
    let body = serde_json::to_vec(config)?;
    if body.len() > MAX_CONFIG_BYTES {
        return Err(io::Error::other(
            "the configuration is too long for the engine",
        ));
    }
    let mut to = &ours;
    // Four bytes hold MAX_CONFIG_BYTES.
    to.write_all(&(body.len() as u32).to_le_bytes())?;
    to.write_all(&body)?;
    Ok((EngineHandle::Process(child), ours))
}

/// Runs the engine on a thread of this process.
///
/// # Errors
/// Socket or thread creation failed.
pub fn start_engine_thread(config: &Config) -> io::Result<(EngineHandle, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    let truth = Truth::open(config.truth.as_deref(), "engine")?;
    let config = config.clone();
    std::thread::Builder::new()
        .name("engine".into())
        .spawn(move || {
            // The API side sees the closed socket whatever the reason.
            let _ = engine::run::serve(&theirs, None, &config, &truth);
        })?;
    Ok((EngineHandle::Thread, ours))
}
