//! Idle connections of one load thread. Never a throttle: when none is idle, another one is opened.

use std::cell::RefCell;
use std::rc::Rc;

use blackstart_clock::RunClock;

use crate::address::Address;
use crate::connection::Connection;
use crate::outcome::BodyEnd;
use crate::receive::ReceiveClock;

/// Most bytes of one read.
const READ_BUFFER_BYTES: usize = 16 << 10;
/// Idle connections that are kept open; further ones are closed when they become idle.
const MAX_IDLE: usize = 4096;

/// Idle connections to one server.
pub(crate) struct Pool {
    address: Address,
    pub(crate) clock: RunClock,
    receive: Rc<ReceiveClock>,
    idle: RefCell<Vec<Connection>>,
    /// What any of its connections reads into, for the time of the read.
    pub(crate) buffer: RefCell<Box<[u8]>>,
}

impl Pool {
    pub(crate) fn new(address: Address, clock: RunClock) -> Self {
        Self {
            address,
            clock,
            receive: Rc::new(ReceiveClock::new(clock)),
            idle: RefCell::new(Vec::new()),
            buffer: RefCell::new(vec![0; READ_BUFFER_BYTES].into_boxed_slice()),
        }
    }

    /// Another connection.
    ///
    /// # Errors
    /// How a request ends that could not have one.
    pub(crate) async fn open(&self) -> Result<Connection, BodyEnd> {
        Connection::open(&self.address, &self.receive).await
    }

    /// Why the kernel refused to stamp what its connections receive, if it did.
    pub(crate) fn receive_stamps_refused(&self) -> Option<String> {
        self.receive.refusal()
    }

    /// The most recently used idle connection that the kernel knows nothing bad of. It may still turn
    /// out dead when it is written to; that is then its request's own failure.
    pub(crate) fn take(&self) -> Option<Connection> {
        let mut idle = self.idle.borrow_mut();
        while let Some(mut connection) = idle.pop() {
            if connection.usable() {
                return Some(connection);
            }
        }
        None
    }

    /// Takes a connection back after its exchange ended in good order. Whether it is still alive is
    /// asked when it is taken, and by the sweep.
    pub(crate) fn put(&self, connection: Connection) {
        let mut idle = self.idle.borrow_mut();
        if idle.len() < MAX_IDLE {
            idle.push(connection);
        }
    }

    /// Closes connections that their servers have closed.
    pub(crate) fn sweep(&self) {
        self.idle.borrow_mut().retain_mut(Connection::usable);
    }

    /// Opens connections until `count` are idle. A server that does not answer yet is no error: its
    /// requests will tell.
    pub(crate) async fn open_floor(&self, count: usize) {
        let already = self.idle.borrow().len();
        for _ in already..count {
            match self.open().await {
                Ok(connection) => self.idle.borrow_mut().push(connection),
                Err(_) => break,
            }
        }
    }
}
