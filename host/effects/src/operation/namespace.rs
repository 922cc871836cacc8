//! A network namespace, held by a descriptor so that it stays the one it was.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use blackstart_clock::{NS_PER_MS, NS_PER_S, monotonic_ns, sleep_until};

/// Longest time that a tool may take.
const TOOL_TIMEOUT_NS: i64 = 10 * NS_PER_S;
/// Most bytes of a tool's answer.
const MAX_OUTPUT_BYTES: u64 = 1 << 20;

/// A network namespace.
#[derive(Debug, Clone)]
pub(crate) struct NetNs {
    fd: Arc<OwnedFd>,
    inode: u64,
}

impl NetNs {
    /// The one in which a process lives now.
    pub(crate) fn of(pid: u32) -> io::Result<Self> {
        let file = File::open(format!("/proc/{pid}/ns/net"))?;
        let inode = file.metadata()?.ino();
        Ok(Self {
            fd: Arc::new(file.into()),
            inode,
        })
    }

    /// The instrument's own.
    pub(crate) fn own() -> io::Result<Self> {
        Self::of(std::process::id())
    }

    /// The one that had this number when it was seen, if a process still lives in it.
    /// `first` is looked at before all others.
    ///
    /// # Errors
    /// `NotFound` when no process lives in it any more: the kernel has then removed it with all
    /// of its rules, unless someone keeps it by a mount.
    pub(crate) fn by_inode(inode: u64, first: u32) -> io::Result<Self> {
        let is = |ns: &Self| ns.inode == inode;
        if let Ok(ns) = Self::of(first)
            && is(&ns)
        {
            return Ok(ns);
        }
        for entry in std::fs::read_dir("/proc")?.flatten() {
            let Some(pid) = entry.file_name().to_str().and_then(|n| n.parse().ok()) else {
                continue;
            };
            if let Ok(ns) = Self::of(pid)
                && is(&ns)
            {
                return Ok(ns);
            }
        }
        Err(io::ErrorKind::NotFound.into())
    }

    pub(crate) fn inode(&self) -> u64 {
        self.inode
    }

    /// A tool that will run in it. It is started now and waits for its standard input, so that
    /// what is fed to it later takes effect without the start of a process.
    pub(crate) fn tool(&self, program: &str, args: &[&str]) -> Result<Tool, String> {
        let mut command = Command::new(program);
        command
            .args(args)
            .env("PATH", tool_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let fd = self.fd.clone();
        // SAFETY: between fork and exec only `setns` and `prctl` are called, which are safe there.
        unsafe {
            command.pre_exec(move || {
                // The tool must not outlive whoever waits for it with rules half fed.
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                if libc::setns(fd.as_raw_fd(), libc::CLONE_NEWNET) == 0 {
                    Ok(())
                } else {
                    Err(io::Error::last_os_error())
                }
            });
        }
        let child = command.spawn().map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => format!(
                "`{program}` is not installed on this host (Debian: package {})",
                if program == "nft" {
                    "nftables"
                } else {
                    "iproute2"
                }
            ),
            io::ErrorKind::PermissionDenied => format!(
                "this needs the right to enter the network namespace of another process \
                 (CAP_SYS_ADMIN and CAP_NET_ADMIN; run as root): {e}"
            ),
            _ => format!("`{program}`: {e}"),
        })?;
        Ok(Tool {
            program: program.to_owned(),
            child: Some(child),
        })
    }

    /// Runs a tool to its end.
    pub(crate) fn run(&self, program: &str, args: &[&str], input: &str) -> Result<String, String> {
        self.tool(program, args)?.feed(input)
    }
}

/// System tools stand in `sbin`, which is not on every user's path.
fn tool_path() -> String {
    let own = std::env::var("PATH").unwrap_or_default();
    format!("{own}:/usr/local/sbin:/usr/sbin:/sbin")
}

/// A tool that was started and waits for its input.
pub(crate) struct Tool {
    program: String,
    child: Option<Child>,
}

impl Tool {
    /// Gives it its input and waits for its end; its output, or what it complained about.
    pub(crate) fn feed(mut self, input: &str) -> Result<String, String> {
        let Some(mut child) = self.child.take() else {
            return Err("internal error: the tool was fed twice".to_owned());
        };
        let written = child
            .stdin
            .take()
            .map_or(Ok(()), |mut stdin| stdin.write_all(input.as_bytes()));
        let done = finish(&mut child);
        if done.is_err() {
            // Killed and reaped: it must not act later.
            let _ = child.kill();
            let _ = child.wait();
        }
        let (success, out, complaint) = done.map_err(|e| format!("`{}`: {e}", self.program))?;
        if success && written.is_ok() {
            Ok(out)
        } else {
            let first = complaint.lines().next().unwrap_or("it failed").trim();
            Err(format!("`{}`: {first}", self.program))
        }
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Waits for the end, and reads what was said. The tools used here say less than a pipe holds
/// before they end, or are read to their end by a thread.
fn finish(child: &mut Child) -> io::Result<(bool, String, String)> {
    let read = |pipe: Option<Box<dyn io::Read + Send>>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            if let Some(pipe) = pipe {
                // What is not text is not shown.
                let _ = io::Read::read_to_string(
                    &mut io::Read::take(pipe, MAX_OUTPUT_BYTES),
                    &mut text,
                );
            }
            text
        })
    };
    let out = read(child.stdout.take().map(|p| Box::new(p) as _));
    let complaint = read(child.stderr.take().map(|p| Box::new(p) as _));
    let until = monotonic_ns() + TOOL_TIMEOUT_NS;
    let mut pause = NS_PER_MS / 10;
    loop {
        if let Some(status) = child.try_wait()? {
            let text = |t: std::thread::JoinHandle<String>| t.join().unwrap_or_default();
            return Ok((status.success(), text(out), text(complaint)));
        }
        if monotonic_ns() >= until {
            return Err(io::Error::other(format!(
                "it did not end within {} s",
                TOOL_TIMEOUT_NS / NS_PER_S
            )));
        }
        sleep_until(monotonic_ns() + pause);
        pause = (pause * 2).min(20 * NS_PER_MS);
    }
}
