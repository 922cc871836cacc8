//! The API process's end of the engine socket.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;

use tokio::net::UnixStream;
use tokio::sync::Notify;

use crate::ipc::{FromEngine, ToEngine, drain_records};

/// Records that may wait for a stopped engine.
const MAX_QUEUED_BYTES: usize = 64 * 1024 * 1024;
/// Bytes read at once.
const READ_BYTES: usize = 64 * 1024;

/// A handle for sending records.
#[derive(Debug)]
pub struct Link {
    socket: UnixStream,
    queued: RefCell<Vec<u8>>,
    more: Notify,
}

impl Link {
    /// Wraps a connected socket.
    pub fn new(socket: UnixStream) -> Rc<Self> {
        Rc::new(Link {
            socket,
            queued: RefCell::new(Vec::new()),
            more: Notify::new(),
        })
    }

    /// Sends at once where the socket has room, else queues. False when the queue
    /// is full (the record is dropped).
    pub fn send(&self, message: ToEngine) -> bool {
        let bytes = message.encode();
        let mut queued = self.queued.borrow_mut();
        if queued.is_empty() {
            // A partial write of 32 bytes does not happen on a Unix socket, but costs nothing to handle.
            match self.socket.try_write(&bytes) {
                Ok(n) if n == bytes.len() => return true,
                Ok(n) => queued.extend_from_slice(&bytes[n..]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => queued.extend_from_slice(&bytes),
                // A dead engine: the reader notices and tells everyone.
                Err(_) => return true,
            }
        } else if queued.len() < MAX_QUEUED_BYTES {
            queued.extend_from_slice(&bytes);
        } else {
            return false;
        }
        self.more.notify_one();
        true
    }

    /// Writes what is queued, for ever.
    pub async fn write_loop(self: Rc<Self>) {
        loop {
            while !self.queued.borrow().is_empty() {
                if self.socket.writable().await.is_err() {
                    return;
                }
                let mut queued = self.queued.borrow_mut();
                match self.socket.try_write(&queued) {
                    Ok(n) => {
                        queued.drain(..n);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                    Err(_) => return,
                }
            }
            self.more.notified().await;
        }
    }

    /// Reads records until the engine is gone.
    ///
    /// # Errors
    /// A socket error, or a record that is not ours.
    pub async fn read_loop(self: Rc<Self>, mut each: impl FnMut(FromEngine)) -> io::Result<()> {
        let mut buffer: Vec<u8> = Vec::with_capacity(READ_BYTES);
        let mut scratch = vec![0_u8; READ_BYTES];
        loop {
            self.socket.readable().await?;
            match self.socket.try_read(&mut scratch) {
                Ok(0) => return Ok(()),
                Ok(n) => {
                    buffer.extend_from_slice(&scratch[..n]);
                    drain_records(&mut buffer, FromEngine::decode, &mut each)
                        .map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => return Ok(()),
                Err(e) => return Err(e),
            }
        }
    }
}
