//! Reads of a socket with the kernel's own stamp of what they brought: the second stamp beside the
//! one that this process takes after the read. What lies between them is the time for which bytes
//! that had arrived waited for this client.
//!
//! The kernel stamps a segment when it has received it (`SO_TIMESTAMPING`, software), on the wall
//! clock; a read carries the stamp of the last segment of which it brought bytes. The wall clock may
//! be stepped, so it is paired with the run clock again and again, and a stamp that cannot be true is
//! dropped. Where the kernel gives none there is none, never a zero.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, BorrowedFd};

use blackstart_clock::{NS_PER_MS, NS_PER_S, RunClock, unix_ns};

/// Software stamps of received segments, and that they be reported.
const RECEIVE_STAMPS: libc::c_uint =
    libc::SOF_TIMESTAMPING_RX_SOFTWARE | libc::SOF_TIMESTAMPING_SOFTWARE;
/// After so long the clocks are paired anew.
const PAIR_AGAIN_NS: i64 = NS_PER_S;
/// Longer lags are judged by a fresh pair: they may be a step of the wall clock.
const DOUBTFUL_LAG_NS: i64 = NS_PER_MS;
/// How often both clocks are read for one pair; the tightest reading counts.
const PAIR_SAMPLES: usize = 3;
/// Room for the one control message that a read brings.
const CONTROL_BYTES: usize = 128;

/// What a read brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Received {
    /// Bytes; 0 at the end of the stream.
    pub bytes: usize,
    /// The kernel's stamp on the wall clock, nanoseconds since the Unix epoch.
    pub kernel_unix_ns: Option<i64>,
}

/// Control messages, aligned as their head wants it.
#[repr(C, align(8))]
struct Control(MaybeUninit<[u8; CONTROL_BYTES]>);

/// Three stamps, of which software stamps are the first (`struct scm_timestamping`).
type Stamps = [libc::timespec; 3];

/// Reads a socket into `buffer`, whose first [`Received::bytes`] bytes are then initialised.
///
/// # Errors
/// The system's; `WouldBlock` when there is nothing to read.
pub fn receive(socket: BorrowedFd<'_>, buffer: &mut [MaybeUninit<u8>]) -> io::Result<Received> {
    let mut part = libc::iovec {
        iov_base: buffer.as_mut_ptr().cast(),
        iov_len: buffer.len(),
    };
    let mut control = Control(MaybeUninit::uninit());
    // SAFETY: `msghdr` is plain data for which zeros are valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = &raw mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = CONTROL_BYTES as _;
    let bytes = loop {
        // SAFETY: every pointer in `message` is to memory of the stated length that outlives the call.
        let n = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut message, libc::MSG_DONTWAIT) };
        if let Ok(bytes) = usize::try_from(n) {
            break bytes;
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    };
    Ok(Received {
        bytes,
        kernel_unix_ns: stamp(&message),
    })
}

/// The software stamp among the control messages of a read.
fn stamp(message: &libc::msghdr) -> Option<i64> {
    // SAFETY: the kernel has filled `msg_control` up to `msg_controllen`.
    let first = unsafe { libc::CMSG_FIRSTHDR(message) };
    // Nothing else was asked for, so it is the first message or none.
    if first.is_null() {
        return None;
    }
    // SAFETY: `CMSG_FIRSTHDR` gives a whole head or null.
    let head = unsafe { &*first };
    if head.cmsg_level != libc::SOL_SOCKET
        || head.cmsg_type != libc::SCM_TIMESTAMPING
        || (head.cmsg_len as usize) < size_of::<libc::cmsghdr>() + size_of::<Stamps>()
    {
        return None;
    }
    // SAFETY: the message is as long as its head says, which was checked; it need not be aligned.
    let stamps: Stamps = unsafe { libc::CMSG_DATA(first).cast::<Stamps>().read_unaligned() };
    let ns = stamps[0].tv_sec * NS_PER_S + stamps[0].tv_nsec;
    (ns != 0).then_some(ns)
}

/// Joins the kernel's stamps of one load thread with the run clock.
#[derive(Debug)]
pub struct ReceiveClock {
    pub(crate) clock: RunClock,
    wall_minus_run_ns: Cell<i64>,
    paired_ns: Cell<i64>,
    refusal: RefCell<Option<String>>,
}

impl ReceiveClock {
    /// Of sockets that have not been asked yet.
    pub fn new(clock: RunClock) -> Self {
        let this = Self {
            clock,
            wall_minus_run_ns: Cell::new(0),
            paired_ns: Cell::new(0),
            refusal: RefCell::new(None),
        };
        this.pair();
        this
    }

    /// Asks the kernel to stamp what a socket receives. A refusal only costs the stamps.
    pub fn ask(&self, socket: BorrowedFd<'_>) {
        let stamps = RECEIVE_STAMPS;
        // SAFETY: the option's value is an integer that outlives the call.
        let answer = unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_TIMESTAMPING,
                (&raw const stamps).cast(),
                size_of::<libc::c_uint>() as libc::socklen_t,
            )
        };
        if answer != 0 {
            let reason = io::Error::last_os_error().to_string();
            self.refusal.borrow_mut().get_or_insert(reason);
        }
    }

    /// Why the kernel refused to stamp a socket, if it did.
    pub fn refusal(&self) -> Option<String> {
        self.refusal.borrow().clone()
    }

    fn pair(&self) {
        let mut tightest_ns = i64::MAX;
        for _ in 0..PAIR_SAMPLES {
            let before = self.clock.now();
            let wall = unix_ns();
            let width = self.clock.now() - before;
            if width < tightest_ns {
                tightest_ns = width;
                self.wall_minus_run_ns.set(wall - (before + width / 2));
            }
        }
        self.paired_ns.set(self.clock.now());
    }

    /// Run time of a kernel's stamp, of bytes that were read at `read_ns` from a socket that was opened
    /// at `opened_ns`; `None` if it is not from between the two.
    pub fn run_time(&self, kernel_unix_ns: i64, opened_ns: i64, read_ns: i64) -> Option<i64> {
        let at_ns = kernel_unix_ns.saturating_sub(self.wall_minus_run_ns.get());
        let fresh = read_ns - self.paired_ns.get() < PAIR_AGAIN_NS;
        let lag_ns = read_ns.saturating_sub(at_ns);
        if fresh && (0..DOUBTFUL_LAG_NS).contains(&lag_ns) {
            return (at_ns >= opened_ns).then_some(at_ns);
        }
        self.pair();
        let at_ns = kernel_unix_ns.saturating_sub(self.wall_minus_run_ns.get());
        (opened_ns..=read_ns).contains(&at_ns).then_some(at_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blackstart_clock::{NS_PER_US, monotonic_ns};
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;

    #[test]
    fn a_read_carries_the_stamp_of_its_last_segment() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let clock = ReceiveClock::new(RunClock::with_epoch(monotonic_ns()));
        let opened_ns = clock.clock.now();
        let mut buffer = [MaybeUninit::uninit(); 64];
        let nothing = receive(socket.as_fd(), &mut buffer).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        clock.ask(socket.as_fd());
        if let Some(reason) = clock.refusal() {
            println!("skipped: a_read_carries_the_stamp_of_its_last_segment: {reason}");
            return;
        }
        // The kernel turns its stamps on a moment after the first socket asks for them.
        std::thread::sleep(std::time::Duration::from_millis(100));
        server.write_all(b"first").unwrap();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let second_ns = clock.clock.now();
        server.write_all(b"second").unwrap();
        let written_ns = clock.clock.now();
        std::thread::sleep(std::time::Duration::from_millis(20));
        let received = receive(socket.as_fd(), &mut buffer).unwrap();
        let read_ns = clock.clock.now();
        assert_eq!(received.bytes, 11);
        let kernel = received
            .kernel_unix_ns
            .expect("Linux stamps what it receives");
        let at_ns = clock.run_time(kernel, opened_ns, read_ns).unwrap();
        assert!(at_ns >= second_ns - 50 * NS_PER_US, "{at_ns} {second_ns}");
        assert!(
            read_ns - at_ns >= 15 * NS_PER_MS,
            "{at_ns} {written_ns} {read_ns}"
        );
        drop(server);
        assert_eq!(receive(socket.as_fd(), &mut buffer).unwrap().bytes, 0);
    }

    #[test]
    fn a_refusal_is_kept_and_costs_nothing_else() {
        let clock = ReceiveClock::new(RunClock::with_epoch(monotonic_ns()));
        // No socket at all; the first reason stands.
        let file = tempfile::tempfile().unwrap();
        clock.ask(file.as_fd());
        let reason = clock.refusal().expect("a file has no stamps");
        clock.ask(file.as_fd());
        assert_eq!(clock.refusal(), Some(reason));
    }

    #[test]
    fn a_stamp_that_cannot_be_true_is_none() {
        let clock = ReceiveClock::new(RunClock::with_epoch(monotonic_ns() - 10 * NS_PER_S));
        let read_ns = clock.clock.now();
        let wall = unix_ns();
        let at = |lag_ns: i64| clock.run_time(wall - lag_ns, read_ns - 2 * NS_PER_S, read_ns);
        let ago = |lag_ns: i64| read_ns - at(lag_ns).unwrap();
        // Coarse on purpose: the two reads above are apart.
        assert!((0..50 * NS_PER_MS).contains(&ago(100 * NS_PER_US)));
        assert!((NS_PER_S - 50 * NS_PER_MS..=NS_PER_S).contains(&ago(NS_PER_S)));
        assert_eq!(at(-NS_PER_S), None, "later than its read");
        assert_eq!(at(3 * NS_PER_S), None, "before the socket was opened");
        assert_eq!(clock.run_time(i64::MIN, 0, read_ns), None);
    }

    #[test]
    fn a_step_of_the_wall_clock_does_not_become_a_lag() {
        let clock = ReceiveClock::new(RunClock::with_epoch(monotonic_ns() - 10 * NS_PER_S));
        for step_ns in [-300 * NS_PER_MS, 300 * NS_PER_MS] {
            // As if the pair had been taken before the clock was stepped.
            clock
                .wall_minus_run_ns
                .set(clock.wall_minus_run_ns.get() + step_ns);
            let kernel = unix_ns();
            let read_ns = clock.clock.now();
            let at_ns = clock.run_time(kernel, 0, read_ns);
            assert!(
                at_ns.is_none_or(|at| read_ns - at < 50 * NS_PER_MS),
                "{at_ns:?}"
            );
        }
    }
}
