//! What accelerators a host has and how they are set, one text for each.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use blackstart_plan::Accelerators;
use rustix::process::{Pid, Signal, kill_process_group};

use crate::failure::excerpt;

/// The program that is asked for NVIDIA GPUs.
pub const NVIDIA_SMI: &str = "nvidia-smi";
/// How long it may take. On a host whose driver is starting it takes seconds.
pub const FINGERPRINT_TIMEOUT: Duration = Duration::from_secs(20);
/// The properties that must be equal between replicas and runs for their figures to be comparable.
const QUERY: &str =
    "name,driver_version,clocks.max.sm,clocks.applications.graphics,power.limit,persistence_mode";
/// Number of properties in [`QUERY`].
const FIELDS: usize = 6;
/// Most bytes read of the program's output.
const MAX_OUTPUT_BYTES: u64 = 256 * 1024;
/// Most accelerators of one host.
const MAX_ACCELERATORS: usize = 256;
/// How often the program's end is looked for.
const POLL: Duration = Duration::from_millis(5);

/// The fingerprint of this host's accelerators, one text for each.
///
/// # Errors
/// The reason why there is none. It never means "no accelerator differs".
pub fn fingerprint(accelerators: Accelerators) -> Result<Vec<String>, String> {
    match accelerators {
        Accelerators::None => Err("the configuration declares that there is none".to_owned()),
        Accelerators::NvidiaLocal => fingerprint_with(Path::new(NVIDIA_SMI), FINGERPRINT_TIMEOUT),
    }
}

/// The fingerprint of NVIDIA GPUs by that program, within that time.
///
/// # Errors
/// The reason why there is none.
pub fn fingerprint_with(program: &Path, timeout: Duration) -> Result<Vec<String>, String> {
    let name = program.display();
    let mut child = Command::new(program)
        .arg(format!("--query-gpu={QUERY}"))
        .arg("--format=csv,noheader")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own: what it starts is ended with it.
        .process_group(0)
        .spawn()
        .map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("`{name}` is not installed or not on the PATH")
            }
            _ => format!("`{name}` cannot be started: {e}"),
        })?;
    let deadline = Instant::now() + timeout;
    let out = reader(child.stdout.take());
    let err = reader(child.stderr.take());
    let status = match wait(&mut child, deadline) {
        Ok(Some(status)) => status,
        Ok(None) => {
            end(&mut child);
            return Err(format!(
                "`{name}` did not answer within {} ms",
                timeout.as_millis()
            ));
        }
        Err(e) => {
            end(&mut child);
            return Err(format!("`{name}` cannot be waited for: {e}"));
        }
    };
    let text = |from: &mpsc::Receiver<String>| {
        // It has ended, so its output is there, unless a child of it holds the pipe.
        let left = deadline.saturating_duration_since(Instant::now()).max(POLL);
        from.recv_timeout(left).ok()
    };
    let Some(output) = text(&out) else {
        return Err(format!("`{name}` ended but its output was not closed"));
    };
    if !status.success() {
        let said = [output, text(&err).unwrap_or_default()].join(" ");
        return Err(format!("`{name}` failed ({status}): {}", excerpt(&said)));
    }
    parse(&output).map_err(|why| format!("`{name}`: {why}"))
}

fn parse(output: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for line in output.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != FIELDS {
            return Err(format!(
                "{} instead of {FIELDS} properties in {:?}",
                fields.len(),
                excerpt(line)
            ));
        }
        if found.len() == MAX_ACCELERATORS {
            return Err(format!("more than {MAX_ACCELERATORS} accelerators"));
        }
        found.push(excerpt(&fields.join(", ")));
    }
    if found.is_empty() {
        return Err("it names no accelerator".to_owned());
    }
    Ok(found)
}

/// Reads a pipe to its end on a thread of its own, which outlives a pipe that is never closed.
fn reader(pipe: Option<impl Read + Send + 'static>) -> mpsc::Receiver<String> {
    let (send, receive) = mpsc::channel();
    if let Some(pipe) = pipe {
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            let _ = pipe.take(MAX_OUTPUT_BYTES).read_to_end(&mut bytes);
            let _ = send.send(String::from_utf8_lossy(&bytes).into_owned());
        });
    }
    receive
}

fn wait(child: &mut Child, deadline: Instant) -> std::io::Result<Option<std::process::ExitStatus>> {
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

fn end(child: &mut Child) {
    if let Ok(raw) = i32::try_from(child.id())
        && let Some(group) = Pid::from_raw(raw)
    {
        let _ = kill_process_group(group, Signal::KILL);
    }
    let _ = child.kill();
    let _ = child.wait();
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::sync::{Mutex, MutexGuard, PoisonError};

    /// A program that was just written cannot be started while a child of another test, between
    /// its fork and its exec, still holds it open for writing. So one at a time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

    fn alone() -> MutexGuard<'static, ()> {
        ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fake(script: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("nvidia-smi");
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, path)
    }

    const PATIENT: Duration = Duration::from_secs(60);

    #[test]
    fn two_gpus() {
        let _alone = alone();
        let (_dir, path) = fake(
            "[ \"$2\" = --format=csv,noheader ] || exit 9\n\
             echo 'NVIDIA H100, 570.1, 1980 MHz, [N/A], 700.00 W, Enabled'\n\
             echo 'NVIDIA H100,570.1,1980 MHz,[N/A],650.00 W,Enabled'",
        );
        assert_eq!(
            fingerprint_with(&path, PATIENT).unwrap(),
            [
                "NVIDIA H100, 570.1, 1980 MHz, [N/A], 700.00 W, Enabled",
                "NVIDIA H100, 570.1, 1980 MHz, [N/A], 650.00 W, Enabled",
            ]
        );
    }

    #[test]
    fn reasons() {
        let _alone = alone();
        let why = |script: &str| {
            let (_dir, path) = fake(script);
            fingerprint_with(&path, PATIENT).unwrap_err()
        };
        assert!(why("echo 'no devices were found'; exit 6").contains("no devices were found"));
        assert!(why("echo driver mismatch >&2; exit 18").contains("driver mismatch"));
        assert!(why("exit 0").contains("no accelerator"));
        assert!(why("echo 'NVIDIA H100, 570.1'").contains("2 instead of 6"));
        let absent = fingerprint_with(Path::new("/nonexistent/nvidia-smi"), PATIENT).unwrap_err();
        assert!(absent.contains("not installed"), "{absent}");
        assert!(fingerprint(Accelerators::None).is_err());
    }

    #[test]
    fn one_that_hangs_is_ended_with_its_children() {
        let _alone = alone();
        let (dir, path) = fake("sleep 600 & echo $! > \"$(dirname \"$0\")/pid\"; wait");
        let pid_file = dir.path().join("pid");
        let why = fingerprint_with(&path, Duration::from_secs(2)).unwrap_err();
        assert!(why.contains("did not answer"), "{why}");
        let pid = std::fs::read_to_string(pid_file).unwrap();
        let stat = format!("/proc/{}/stat", pid.trim());
        let deadline = Instant::now() + PATIENT;
        // Gone, or a zombie that nobody has collected yet.
        while std::fs::read_to_string(&stat).is_ok_and(|s| !s.contains(") Z ")) {
            assert!(Instant::now() < deadline, "{pid} survived");
            std::thread::sleep(POLL);
        }
    }
}
