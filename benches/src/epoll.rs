//! The least that an event loop needs: readiness of sockets, with timeouts in nanoseconds.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// Sockets that are ready at once, at most.
const EVENTS: usize = 256;

/// An epoll instance; each socket is known by its own descriptor.
#[derive(Debug)]
pub struct Epoll {
    fd: OwnedFd,
    events: Vec<libc::epoll_event>,
}

impl Epoll {
    /// # Errors
    /// When the system gives none.
    pub fn new() -> io::Result<Self> {
        // SAFETY: no pointers; a descriptor that is not negative is ours.
        let fd = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        let none = libc::epoll_event { events: 0, u64: 0 };
        Ok(Self {
            fd,
            events: vec![none; EVENTS],
        })
    }

    /// Watches a socket for bytes to read, level-triggered. It ends when the socket is closed.
    ///
    /// # Errors
    /// When the system refuses.
    pub fn add(&self, socket: &impl AsRawFd) -> io::Result<()> {
        let fd = socket.as_raw_fd();
        let mut event = libc::epoll_event {
            events: (libc::EPOLLIN | libc::EPOLLRDHUP).cast_unsigned(),
            u64: u64::try_from(fd).unwrap_or_default(),
        };
        // SAFETY: `event` outlives the call.
        let rc = unsafe {
            libc::epoll_ctl(self.fd.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event)
        };
        if rc == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    /// Waits for readable sockets, at most so long; their descriptors go to `ready`.
    ///
    /// # Errors
    /// When the system refuses. An interruption by a signal is no error.
    pub fn wait(&mut self, timeout_ns: Option<i64>, ready: &mut Vec<RawFd>) -> io::Result<()> {
        ready.clear();
        let timeout = timeout_ns.map(|ns| libc::timespec {
            tv_sec: ns.max(0) / 1_000_000_000,
            tv_nsec: ns.max(0) % 1_000_000_000,
        });
        let timeout: *const libc::timespec = timeout.as_ref().map_or(std::ptr::null(), |t| t);
        // SAFETY: the buffer has room for EVENTS events, the timeout outlives the call.
        let n = unsafe {
            libc::syscall(
                libc::SYS_epoll_pwait2,
                self.fd.as_raw_fd(),
                self.events.as_mut_ptr(),
                EVENTS,
                timeout,
                std::ptr::null::<libc::sigset_t>(),
                0_usize,
            )
        };
        let Ok(n) = usize::try_from(n) else {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        };
        ready.extend(
            self.events[..n]
                .iter()
                .map(|e| RawFd::try_from(e.u64).unwrap_or(-1)),
        );
        Ok(())
    }
}
