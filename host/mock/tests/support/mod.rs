//! Running the mock as real processes and talking to it over plain sockets.
#![allow(dead_code)] // Each test binary uses its own part.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// The longest any single wait of a test may take.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Waits until `check` gives something.
pub fn wait_for<T>(what: &str, mut check: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(v) = check() {
            return v;
        }
        assert!(Instant::now() < deadline, "gave up waiting for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A running mock; dropping it kills every process it ever had.
pub struct Mock {
    child: Child,
    pub dir: tempfile::TempDir,
    pub port: u16,
    pub admin_port: Option<u16>,
    pub engine_pid: i32,
}

/// Options for very short starts.
pub const QUICK: &[&str] = &["--startup-scale", "0.02"];

/// `more`, and those `--name value` pairs of `defaults` that it does not set.
pub fn with_defaults<'a>(defaults: &[&'a str], more: &[&'a str]) -> Vec<&'a str> {
    let unset = defaults.chunks(2).filter(|pair| !more.contains(&pair[0]));
    let mut all: Vec<&str> = unset.flatten().copied().collect();
    all.extend(more);
    all
}

fn spawn(dir: &Path, args: &[&str]) -> Child {
    let log = File::options()
        .create(true)
        .append(true)
        .open(dir.join("log"))
        .unwrap();
    let errors = File::options()
        .create(true)
        .append(true)
        .open(dir.join("err"))
        .unwrap();
    Command::new(env!("CARGO_BIN_EXE_blackstart-mock"))
        .args(["mock", "--truth"])
        .arg(dir.join("truth.jsonl"))
        .arg("--announce")
        .args(with_defaults(&["--admin-port", "0", "--port", "0"], args))
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .unwrap()
}

impl Mock {
    /// Starts with `args` and waits until it is ready.
    pub fn start(args: &[&str]) -> Mock {
        let dir = tempfile::tempdir().unwrap();
        Mock::start_in(dir, args)
    }

    /// Starts in a directory that may hold an earlier life's files.
    pub fn start_in(dir: tempfile::TempDir, args: &[&str]) -> Mock {
        let mut mock = Mock::launch_in(dir, args);
        let pid = mock.pid();
        let ready = wait_for("the announcement", || {
            if let Some(status) = mock.child.try_wait().unwrap() {
                panic!("the mock ended with {status}: {}", mock.errors());
            }
            mock.log()
                .lines()
                .filter_map(|l| serde_json::from_str::<Value>(l).ok())
                .find(|v| v["pid"] == pid)
        });
        mock.port = u16::try_from(ready["port"].as_u64().unwrap()).unwrap();
        mock.admin_port = ready["admin_port"]
            .as_u64()
            .map(|p| u16::try_from(p).unwrap());
        mock.engine_pid = i32::try_from(ready["engine_pid"].as_i64().unwrap()).unwrap();
        mock
    }

    /// Starts without waiting.
    pub fn launch_in(dir: tempfile::TempDir, args: &[&str]) -> Mock {
        let child = spawn(dir.path(), args);
        Mock {
            child,
            dir,
            port: 0,
            admin_port: None,
            engine_pid: 0,
        }
    }

    pub fn pid(&self) -> i32 {
        self.child.id() as i32
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn log(&self) -> String {
        String::from_utf8_lossy(&std::fs::read(self.path("log")).unwrap_or_default()).into_owned()
    }

    pub fn errors(&self) -> String {
        std::fs::read_to_string(self.path("err")).unwrap_or_default()
    }

    /// All truth lines so far.
    pub fn truth(&self) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path("truth.jsonl")).unwrap_or_default();
        text.lines()
            .map(|l| serde_json::from_str(l).expect("a truth line is JSON"))
            .collect()
    }

    pub fn events(&self, event: &str) -> Vec<Value> {
        self.truth()
            .into_iter()
            .filter(|t| t["event"] == event)
            .collect()
    }

    /// The truth's end of request `id`.
    pub fn end_of(&self, id: &str) -> Value {
        wait_for(&format!("the end of {id}"), || {
            self.events("request_end")
                .into_iter()
                .find(|e| e["id"] == id)
        })
    }

    pub fn connect(&self) -> TcpStream {
        connect(self.port)
    }

    pub fn post(&self, path: &str, id: &str, body: &str) -> TcpStream {
        let mut s = self.connect();
        send_post(&mut s, path, id, body);
        s
    }

    /// A whole GET answer.
    pub fn get(&self, path: &str) -> Answer {
        get(self.port, path)
    }

    pub fn admin(&self, path: &str) -> Value {
        serde_json::from_str(&get(self.admin_port.unwrap(), path).body).unwrap()
    }

    pub fn fault(&self, body: &str) -> Answer {
        let mut s = connect(self.admin_port.unwrap());
        send_post(&mut s, "/admin/fault", "", body);
        read_answer(&mut s)
    }

    /// Waits for the end of the API process: exit code, or minus the signal.
    pub fn exit_code(&mut self) -> i32 {
        let child = &mut self.child;
        let status = wait_for("the API process's end", || child.try_wait().unwrap());
        status.code().unwrap_or_else(|| -status.signal().unwrap())
    }

    pub fn running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Gives the directory to the next life, killing what is left of this one first.
    pub fn into_dir(mut self) -> tempfile::TempDir {
        let empty = tempfile::tempdir().unwrap();
        self.kill_all();
        std::mem::replace(&mut self.dir, empty)
    }

    /// Keeps this life's processes as they are (`self` still cleans them up) and
    /// starts another on the same files.
    pub fn second_life(&self, args: &[&str]) -> Child {
        spawn(self.dir.path(), args)
    }

    fn kill_all(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        // The truth names every process of every life: none may stay.
        for t in self.truth() {
            for key in ["pid", "worker_pid"] {
                if let Some(pid) = t[key].as_i64().and_then(|p| i32::try_from(p).ok())
                    && is_ours(pid)
                {
                    kill(pid, libc::SIGKILL);
                }
            }
        }
    }
}

impl Drop for Mock {
    fn drop(&mut self) {
        self.kill_all();
    }
}

/// True when `pid` runs this crate's executable (pids are reused).
pub fn is_ours(pid: i32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe"))
        .is_ok_and(|exe| exe == Path::new(env!("CARGO_BIN_EXE_blackstart-mock")))
}

pub fn kill(pid: i32, signal: i32) {
    // SAFETY: kill(2) touches no memory of ours.
    unsafe { libc::kill(pid, signal) };
}

/// Waits until `pid` is gone or a zombie.
pub fn wait_gone(pid: i32) {
    wait_for(&format!("the end of process {pid}"), || {
        (!is_ours(pid)).then_some(())
    });
}

pub fn connect(port: u16) -> TcpStream {
    let s = TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port))).unwrap();
    s.set_read_timeout(Some(PATIENCE)).unwrap();
    s
}

pub fn refused(port: u16) -> bool {
    TcpStream::connect(SocketAddr::from(([127, 0, 0, 1], port)))
        .is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionRefused)
}

pub fn send_post(s: &mut TcpStream, path: &str, id: &str, body: &str) {
    let id = if id.is_empty() {
        String::new()
    } else {
        format!("x-request-id: {id}\r\n")
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n{id}connection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    s.write_all(head.as_bytes()).unwrap();
    s.write_all(body.as_bytes()).unwrap();
}

/// A response.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub head: String,
    pub body: String,
    /// How the bytes ended: `None` = clean end.
    pub error: Option<std::io::ErrorKind>,
}

impl Answer {
    /// The `data:` payloads of a stream.
    pub fn events(&self) -> Vec<String> {
        self.body
            .split("\n\n")
            .filter_map(|e| e.strip_prefix("data: "))
            .map(str::to_owned)
            .collect()
    }

    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }
}

pub fn get(port: u16, path: &str) -> Answer {
    let mut s = connect(port);
    write!(
        s,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )
    .unwrap();
    read_answer(&mut s)
}

/// Reads to the end of the connection, undoing chunked coding.
pub fn read_answer(s: &mut TcpStream) -> Answer {
    let mut bytes = Vec::new();
    let error = s.read_to_end(&mut bytes).err().map(|e| e.kind());
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, rest) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let status = head
        .split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(0);
    let body = if head
        .to_ascii_lowercase()
        .contains("transfer-encoding: chunked")
    {
        dechunk(rest)
    } else {
        rest.to_owned()
    };
    Answer {
        status,
        head: head.to_owned(),
        body,
        error,
    }
}

fn dechunk(mut rest: &str) -> String {
    let mut out = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let Ok(n) = usize::from_str_radix(size.trim(), 16) else {
            break;
        };
        if n == 0 || after.len() < n {
            break;
        }
        out.push_str(&after[..n]);
        rest = after[n..].trim_start_matches("\r\n");
    }
    out
}

/// Reads a stream line by line until `n` data events have come.
pub fn read_events(reader: &mut BufReader<TcpStream>, n: usize) -> Vec<String> {
    let mut events = Vec::new();
    let mut line = String::new();
    while events.len() < n {
        line.clear();
        let read = reader.read_line(&mut line).unwrap();
        assert!(
            read > 0,
            "the stream ended after {} of {n} events",
            events.len()
        );
        if let Some(e) = line.trim_end().strip_prefix("data: ") {
            events.push(e.to_owned());
        }
    }
    events
}

pub fn chat(max_tokens: u32) -> String {
    format!(
        r#"{{"model":"mock-8b","messages":[{{"role":"user","content":"one two three"}}],"stream":true,"max_tokens":{max_tokens},"ignore_eos":true,"stream_options":{{"include_usage":true}}}}"#
    )
}

pub fn completion(max_tokens: u32) -> String {
    format!(
        r#"{{"model":"mock-8b","prompt":"one two three","max_tokens":{max_tokens},"ignore_eos":true}}"#
    )
}
