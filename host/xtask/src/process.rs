//! Child processes with a time limit, and lines about progress on stderr.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a child is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Most bytes of a child's output that are kept.
const MAX_OUTPUT_BYTES: u64 = 64 * 1024 * 1024;

/// A line about progress.
pub fn say(text: impl AsRef<str>) {
    eprintln!("plugins: {}", text.as_ref());
}

/// Does something that takes time and says how long it took.
pub fn phase<T>(name: &str, work: impl FnOnce() -> Result<T>) -> Result<T> {
    let start = Instant::now();
    let done = work();
    let verdict = if done.is_ok() { "" } else { " (failed)" };
    say(format!(
        "{name}: {:.1} s{verdict}",
        start.elapsed().as_secs_f64()
    ));
    done
}

/// Runs a command to its end; its standard output goes to our standard error.
///
/// # Errors
/// It cannot be started, fails, or takes longer than `limit` (it is then killed).
pub fn run(command: &mut Command, limit: Duration) -> Result<()> {
    command.stdin(Stdio::null()).stdout(std::io::stderr());
    let mut child = spawn(command)?;
    check(command, wait(command, &mut child, limit)?)
}

/// Runs a command and returns what it printed.
///
/// # Errors
/// As [`run`], or output that is no UTF-8 or too long.
pub fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let (status, text) = output_and_status(command, limit)?;
    check(command, status)?;
    Ok(text)
}

/// As [`output`], but a failing command is no error.
///
/// # Errors
/// It cannot be started, takes too long, or prints what cannot be used.
pub fn output_and_status(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    command.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = spawn(command)?;
    let stdout = child.stdout.take().context("the child has no stdout")?;
    // Read beside the wait: a child that fills the pipe would never end.
    let reader = std::thread::spawn(move || {
        let mut text = Vec::new();
        let read = stdout.take(MAX_OUTPUT_BYTES).read_to_end(&mut text);
        read.map(|_| text)
    });
    let status = wait(command, &mut child, limit)?;
    let text = match reader.join() {
        Ok(text) => text.with_context(|| format!("reading from {}", name(command)))?,
        Err(_) => bail!("the thread that reads from {} panicked", name(command)),
    };
    let text = String::from_utf8(text)
        .with_context(|| format!("the output of {} is no UTF-8", name(command)))?;
    Ok((status, text))
}

/// Waits for a child, kills it after `limit`.
pub fn wait(
    command: &Command,
    child: &mut std::process::Child,
    limit: Duration,
) -> Result<ExitStatus> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if start.elapsed() > limit {
            // Both fail only where the child has just ended.
            let _ = child.kill();
            let _ = child.wait();
            bail!(
                "{} took longer than {} s and was stopped",
                name(command),
                limit.as_secs()
            );
        }
        std::thread::sleep(POLL);
    }
}

/// The program found on `PATH`.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(program))
        .find(|file| is_executable(file))
}

/// Whether a file exists that may be executed.
pub fn is_executable(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    file.metadata()
        .is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// Starts a command.
pub fn spawn(command: &mut Command) -> Result<std::process::Child> {
    command
        .spawn()
        .with_context(|| format!("cannot start {}", name(command)))
}

/// Fails if the command failed.
pub fn check(command: &Command, status: ExitStatus) -> Result<()> {
    if status.success() {
        return Ok(());
    }
    let args: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    bail!("`{} {}` failed: {status}", name(command), args.join(" "))
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLENTY: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn output_is_read_beside_the_wait() {
        // More than a pipe holds.
        let text = output(&mut shell("head -c 200000 /dev/zero | tr '\\0' x"), PLENTY);
        assert_eq!(text.expect("it prints").len(), 200_000);
    }

    #[test]
    fn a_failure_names_the_command() {
        let error = output(&mut shell("exit 3"), PLENTY).expect_err("it fails");
        assert!(error.to_string().contains("exit 3"), "{error}");
        let error = run(&mut Command::new("no-such-program-anywhere"), PLENTY);
        assert!(
            error
                .expect_err("it fails")
                .to_string()
                .contains("no-such-program")
        );
    }

    #[test]
    fn a_child_that_takes_too_long_is_stopped() {
        let mut sleeper = Command::new("sleep");
        sleeper.arg("600");
        let error = run(&mut sleeper, Duration::ZERO).expect_err("it is stopped");
        assert!(error.to_string().contains("longer than 0 s"), "{error}");
    }
}
