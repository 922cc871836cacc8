//! The `blackstart` program as a child process, and a guard that leaves none of its processes behind.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{MARK, Seen, marked};

/// The longest that a test waits for anything. Not a measure of speed: a test that waits so long hangs.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Waits until `check` gives something.
///
/// # Panics
/// After [`PATIENCE`].
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < deadline, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// The program under test, with a folder of its own. Dropping it kills every process that it, or
/// anything it started, ever started.
#[derive(Debug)]
pub struct Instrument {
    exe: PathBuf,
    mark: String,
    folder: tempfile::TempDir,
}

/// A run of the program that ended.
#[derive(Debug)]
pub struct Finished {
    /// Exit code; `None` = ended by a signal.
    pub code: Option<i32>,
    /// Everything on standard output.
    pub stdout: String,
    /// Everything on standard error.
    pub stderr: String,
}

impl Finished {
    /// The last line on standard output: the results directory of a campaign.
    ///
    /// # Panics
    /// When there is none, or it names no folder.
    pub fn results(&self) -> PathBuf {
        let last = self.stdout.lines().next_back().unwrap_or_default();
        let dir = PathBuf::from(last);
        assert!(
            dir.is_dir(),
            "the last line on stdout names no folder: {last:?}\n{}",
            self.stderr
        );
        dir
    }

    /// Checks the exit code, and shows everything that was printed if it is another.
    ///
    /// # Panics
    /// When it is another.
    #[track_caller]
    pub fn expect_code(&self, code: i32) -> &Self {
        assert_eq!(
            self.code,
            Some(code),
            "exit code\n--- stdout\n{}\n--- stderr\n{}",
            self.stdout,
            self.stderr
        );
        self
    }
}

/// A run of the program that is under way.
#[derive(Debug)]
pub struct Running {
    child: Child,
    out: PathBuf,
    err: PathBuf,
}

impl Instrument {
    /// The program at `exe` (a test's `env!("CARGO_BIN_EXE_blackstart")`).
    ///
    /// # Panics
    /// When no temporary folder can be made.
    pub fn new(exe: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        Self {
            exe: PathBuf::from(exe),
            mark: format!(
                "{}-{}",
                std::process::id(),
                COUNT.fetch_add(1, Ordering::Relaxed)
            ),
            folder: tempfile::tempdir().expect("a temporary folder can be made"),
        }
    }

    /// Its folder: the working directory of what it runs.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// A path in its folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Writes a file into its folder and says where it is.
    ///
    /// # Panics
    /// When it cannot be written.
    pub fn write(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        path
    }

    /// A command that runs the program in its folder, marked so that nothing it starts is lost.
    pub fn command<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Command {
        let mut command = Command::new(&self.exe);
        command
            .args(args)
            .current_dir(self.folder())
            .env(MARK, &self.mark)
            // What it prints must not depend on who runs the tests.
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        command
    }

    /// Starts it.
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Running {
        self.start_command(self.command(args))
    }

    /// Starts a command made by [`Self::command`].
    ///
    /// # Panics
    /// When it cannot be started.
    pub fn start_command(&self, mut command: Command) -> Running {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        // Files, not pipes: a process that outlives the program must not keep the test waiting.
        let (out, err) = (
            self.path(&format!(".stdout-{n}")),
            self.path(&format!(".stderr-{n}")),
        );
        let create =
            |path: &Path| File::create(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let child = command
            .stdout(create(&out))
            .stderr(create(&err))
            .spawn()
            .unwrap_or_else(|e| panic!("{}: {e}", self.exe.display()));
        Running { child, out, err }
    }

    /// Runs it to its end.
    ///
    /// # Panics
    /// When it cannot be started, or does not end within [`PATIENCE`].
    pub fn run<S: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = S>) -> Finished {
        self.start(args).finish()
    }

    /// Living processes that it started, directly or not.
    pub fn processes(&self) -> Vec<Seen> {
        marked(&self.mark)
    }

    /// Waits until none of its processes lives.
    ///
    /// # Panics
    /// When some live on, with what they are.
    #[track_caller]
    pub fn expect_nothing_left(&self, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            assert!(Instant::now() < deadline, "left running: {left:#?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Instrument {
    fn drop(&mut self) {
        // Supervisors start things again, so once is not enough; a frozen process dies all the same.
        const ROUNDS: u32 = 100;
        for _ in 0..ROUNDS {
            let left = self.processes();
            if left.is_empty() {
                return;
            }
            for seen in left {
                send(seen.pid, Signal::KILL);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Running {
    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed to standard error so far.
    pub fn stderr(&self) -> String {
        read_lossy(&self.err)
    }

    /// Waits until its standard error contains a text.
    ///
    /// # Panics
    /// When it ends without, or [`PATIENCE`] is over.
    pub fn wait_for_stderr(&mut self, text: &str) {
        let err = self.err.clone();
        self.wait_while_it_runs(&format!("{text:?} on its stderr"), || {
            read_lossy(&err).contains(text).then_some(())
        });
    }

    /// Waits until `check` gives something, as long as it runs.
    ///
    /// # Panics
    /// When it ends before that, or [`PATIENCE`] is over: with what it printed.
    pub fn wait_while_it_runs<T>(&mut self, what: &str, mut check: impl FnMut() -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        loop {
            // Asked first: what it did last may be what is waited for.
            let ended = self.child.try_wait().ok().flatten();
            if let Some(found) = check() {
                return found;
            }
            let over = Instant::now() > deadline;
            assert!(
                ended.is_none() && !over,
                "{} without {what}:\n{}",
                ended.map_or_else(|| format!("{PATIENCE:?}"), |s| s.to_string()),
                self.stderr()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        send(self.pid(), signal);
    }

    /// Waits for its end.
    ///
    /// # Panics
    /// After [`PATIENCE`], with what it printed.
    pub fn finish(mut self) -> Finished {
        let deadline = Instant::now() + PATIENCE;
        let status = loop {
            match self.child.try_wait().expect("a child can be waited for") {
                Some(status) => break status,
                None if Instant::now() > deadline => {
                    panic!("did not end within {PATIENCE:?}:\n{}", self.stderr())
                }
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        Finished {
            code: status.code(),
            stdout: read_lossy(&self.out),
            stderr: read_lossy(&self.err),
        }
    }
}

fn read_lossy(path: &Path) -> String {
    String::from_utf8_lossy(&std::fs::read(path).unwrap_or_default()).into_owned()
}

fn send(pid: u32, signal: Signal) {
    if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
        // It may have ended since it was seen.
        let _ = kill_process(pid, signal);
    }
}
