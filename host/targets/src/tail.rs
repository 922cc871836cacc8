//! Follows the log file of a server that the instrument did not start.

use std::fs::{File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use blackstart_clock::{
    NS_PER_MS, RunClock, Urgency, monotonic_ns, request_real_time, sleep_until,
};

use crate::lines::{LineSplitter, unix_now};

/// How often the file is looked at; the resolution of a followed line's stamp.
pub const TAIL_INTERVAL_NS: i64 = 5 * NS_PER_MS;
/// Most bytes taken at one look, so that a stop is heard.
const READ_BYTES: usize = 256 * 1024;

/// A thread that copies new lines, stamped, until it is dropped.
#[derive(Debug)]
pub struct LogTail {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl LogTail {
    /// Follows `source` from its present end; stamped lines go to `log_path`. A file that is
    /// replaced or truncated (rotation) is read from its new beginning. `on_error` gets the first
    /// failure to read or write, once.
    ///
    /// # Errors
    /// When either file cannot be opened; the path says which.
    pub fn follow(
        source: &Path,
        log_path: &Path,
        clock: RunClock,
        on_error: impl FnOnce(String) + Send + 'static,
    ) -> Result<Self, (PathBuf, std::io::Error)> {
        let at_source = |e| (source.to_owned(), e);
        let mut file = File::open(source).map_err(at_source)?;
        if file.metadata().map_err(at_source)?.is_dir() {
            let e = std::io::Error::other("it is a directory");
            return Err(at_source(e));
        }
        let position = file.seek(SeekFrom::End(0)).map_err(at_source)?;
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(log_path)
            .map_err(|e| (log_path.to_owned(), e))?;
        let stop = Arc::new(AtomicBool::new(false));
        let follower = Follower {
            source: source.to_owned(),
            file,
            position,
            log,
            clock,
            splitter: LineSplitter::default(),
            buffer: vec![0; READ_BYTES],
            out: Vec::new(),
            stop: stop.clone(),
        };
        let thread = std::thread::Builder::new()
            .name("log-tail".to_owned())
            .spawn(move || {
                // A line that is read late is stamped late. A refusal costs only that.
                let _ = request_real_time(Urgency::Observing);
                if let Err(e) = follower.run() {
                    on_error(e.to_string());
                }
            })
            .map_err(at_source)?;
        Ok(Self {
            stop,
            thread: Some(thread),
        })
    }
}

impl Drop for LogTail {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

struct Follower {
    source: PathBuf,
    file: File,
    position: u64,
    log: File,
    clock: RunClock,
    splitter: LineSplitter,
    buffer: Vec<u8>,
    out: Vec<u8>,
    stop: Arc<AtomicBool>,
}

impl Follower {
    fn run(mut self) -> std::io::Result<()> {
        let mut next = monotonic_ns();
        loop {
            let stopping = self.stop.load(Ordering::Acquire);
            // Full reads are repeated at once, except when stopping: one last look is bounded.
            while self.copy()? == READ_BYTES && !stopping {}
            if stopping {
                self.splitter.finish(unix_now(&self.clock), &mut self.out);
                return self.flush();
            }
            self.reopen_if_replaced()?;
            next = (next + TAIL_INTERVAL_NS).max(monotonic_ns());
            sleep_until(next);
        }
    }

    fn copy(&mut self) -> std::io::Result<usize> {
        let count = self.file.read(&mut self.buffer)?;
        let stamp = unix_now(&self.clock);
        self.position += count as u64;
        self.splitter
            .feed(&self.buffer[..count], stamp, &mut self.out);
        self.flush()?;
        Ok(count)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        if !self.out.is_empty() {
            self.log.write_all(&self.out)?;
            self.out.clear();
        }
        Ok(())
    }

    fn reopen_if_replaced(&mut self) -> std::io::Result<()> {
        // Between a rotation's rename and the new file there is none: look again later.
        let Ok(named) = std::fs::metadata(&self.source) else {
            return Ok(());
        };
        let open = self.file.metadata()?;
        if (named.dev(), named.ino()) != (open.dev(), open.ino()) {
            // What came between the last read and the rotation.
            while self.copy()? == READ_BYTES {}
            self.splitter.finish(unix_now(&self.clock), &mut self.out);
            self.file = File::open(&self.source)?;
            self.position = 0;
        } else if open.len() < self.position {
            self.file.seek(SeekFrom::Start(0))?;
            self.position = 0;
        }
        Ok(())
    }
}
