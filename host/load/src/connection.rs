//! One connection: a TCP socket that stamps its reads and writes, and TLS where the address asks for it.
//!
//! It is polled by the task of the request that uses it, never by a task of its own: a read, its stamp
//! and the events in it are handled in one go, before another read can happen. Nothing here could retry
//! a request.

use std::cell::{Cell, RefCell};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use blackstart_record::ErrorClass;
use blackstart_tls::{TlsPeer, TlsStream};
use rustix::net::RecvFlags;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::address::Address;
use crate::http1::{Malformed, ResponseReader};
use crate::outcome::BodyEnd;
use crate::receive::{ReceiveClock, Received, receive};

/// A socket and the stamps of its traffic.
#[derive(Debug)]
struct Wire {
    socket: RefCell<TcpStream>,
    receive: Rc<ReceiveClock>,
    opened_ns: i64,
    last_read: Cell<ReadStamp>,
    reads: Cell<u64>,
    /// Read without waiting to be told that there is something.
    unprompted: Cell<bool>,
    first_write_ns: Cell<Option<i64>>,
    /// Of the present request's reads.
    read_lag_max_ns: Cell<Option<i64>>,
    /// First byte of the present request's answer.
    first_byte: Cell<Option<u8>>,
}

/// When a read brought bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadStamp {
    /// Taken by this thread, right after the read.
    pub(crate) user_ns: i64,
    /// The kernel's, of the last segment of which the read brought bytes.
    pub(crate) kernel_ns: Option<i64>,
}

impl Wire {
    fn new(socket: TcpStream, receive: &Rc<ReceiveClock>) -> Self {
        let opened_ns = receive.clock.now();
        Self {
            socket: RefCell::new(socket),
            receive: Rc::clone(receive),
            opened_ns,
            last_read: Cell::new(ReadStamp {
                user_ns: opened_ns,
                kernel_ns: None,
            }),
            reads: Cell::new(0),
            unprompted: Cell::new(false),
            first_write_ns: Cell::new(None),
            read_lag_max_ns: Cell::new(None),
            first_byte: Cell::new(None),
        }
    }

    /// Whether the peer is still there, as far as the kernel knows. Bytes that nobody asked for make
    /// a connection unusable too.
    fn alive(&self) -> bool {
        let mut byte = [0_u8; 1];
        let peeked = rustix::net::recv(
            &*self.socket.borrow(),
            &mut byte,
            RecvFlags::PEEK | RecvFlags::DONTWAIT,
        );
        matches!(peeked, Err(rustix::io::Errno::AGAIN))
    }

    fn poll_receive(
        &self,
        cx: &mut Context<'_>,
        buffer: &mut [MaybeUninit<u8>],
    ) -> Poll<io::Result<Received>> {
        let socket = self.socket.borrow();
        if self.unprompted.get() {
            return match receive(socket.as_fd(), buffer) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Poll::Pending,
                received => Poll::Ready(received),
            };
        }
        loop {
            ready!(socket.poll_read_ready(cx))?;
            let mut received = None;
            let tried = socket.try_io(Interest::READABLE, || {
                let got = receive(socket.as_fd(), buffer)?;
                received = Some(got);
                // A read that leaves room has emptied the socket. Said so, the runtime waits for the
                // kernel's next word, and a whole system call for each event is saved.
                if (1..buffer.len()).contains(&got.bytes) {
                    return Err(io::ErrorKind::WouldBlock.into());
                }
                Ok(())
            });
            match (received, tried) {
                (Some(received), _) => return Poll::Ready(Ok(received)),
                (None, Err(e)) if e.kind() != io::ErrorKind::WouldBlock => {
                    return Poll::Ready(Err(e));
                }
                (None, _) => {}
            }
        }
    }

    /// Takes the stamps of a read that brought bytes.
    fn stamp(&self, received: Received) {
        let user_ns = self.receive.clock.now();
        let kernel_ns = received
            .kernel_unix_ns
            .and_then(|unix_ns| self.receive.run_time(unix_ns, self.opened_ns, user_ns));
        self.last_read.set(ReadStamp { user_ns, kernel_ns });
        self.reads.set(self.reads.get() + 1);
        // Absent is less than any lag.
        let lag_ns = kernel_ns.map(|at_ns| user_ns - at_ns);
        self.read_lag_max_ns
            .set(self.read_lag_max_ns.get().max(lag_ns));
    }
}

/// The socket itself, with its stamps.
struct Stamped(Rc<Wire>);

impl AsyncRead for Stamped {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: only what a read initialises is written to.
        let received = ready!(self.0.poll_receive(cx, unsafe { buf.unfilled_mut() }))?;
        if received.bytes > 0 {
            self.0.stamp(received);
            // SAFETY: so many bytes were read into it.
            unsafe { buf.assume_init(received.bytes) };
            buf.advance(received.bytes);
        }
        Poll::Ready(Ok(()))
    }
}

impl Stamped {
    /// The stamp is taken before the system call: the earliest instant at which the byte can have
    /// left.
    fn stamped_write(
        &self,
        write: impl FnOnce(Pin<&mut TcpStream>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let now = self
            .0
            .first_write_ns
            .get()
            .is_none()
            .then(|| self.0.receive.clock.now());
        let polled = write(Pin::new(&mut *self.0.socket.borrow_mut()));
        if matches!(polled, Poll::Ready(Ok(n)) if n > 0) && now.is_some() {
            self.0.first_write_ns.set(now);
        }
        polled
    }
}

impl AsyncWrite for Stamped {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stamped_write(|socket| socket.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stamped_write(|socket| socket.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        self.0.socket.borrow().is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.socket.borrow_mut()).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut *self.0.socket.borrow_mut()).poll_shutdown(cx)
    }
}

/// What HTTP reads from and writes to. The stamps are always those of the socket: of TLS, the read
/// that completed the record from which the bytes come.
struct Transport {
    wire: Rc<Wire>,
    layer: Layer,
}

enum Layer {
    Plain(Stamped),
    Tls(Box<TlsStream<Stamped>>),
}

impl Layer {
    fn writer(&mut self) -> Pin<&mut dyn AsyncWrite> {
        match self {
            Self::Plain(socket) => Pin::<&mut Stamped>::new(socket),
            Self::Tls(stream) => Pin::<&mut TlsStream<Stamped>>::new(stream),
        }
    }
}

impl AsyncRead for Transport {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        match &mut self.layer {
            Layer::Plain(socket) => ready!(Pin::new(socket).poll_read(cx, buf))?,
            // Not its `poll_read`, which goes on reading the socket while there is room: the stamp of
            // the last of these reads would then be that of the bytes of all of them.
            Layer::Tls(stream) => {
                let decoded = ready!(Pin::new(&mut *stream).poll_fill_buf(cx))?;
                let taken = decoded.len().min(buf.remaining());
                buf.put_slice(&decoded[..taken]);
                Pin::new(&mut *stream).consume(taken);
            }
        }
        if self.wire.first_byte.get().is_none() {
            self.wire.first_byte.set(buf.filled().get(before).copied());
        }
        Poll::Ready(Ok(()))
    }
}

/// The stamps of a connection's present request.
pub(crate) struct Stamps(Rc<Wire>);

impl Stamps {
    /// The first write since [`Connection::expect_request`].
    pub(crate) fn first_write_ns(&self) -> Option<i64> {
        self.0.first_write_ns.get()
    }

    /// The longest time for which bytes that had arrived waited to be read, since
    /// [`Connection::expect_request`].
    pub(crate) fn read_lag_max_ns(&self) -> Option<i64> {
        self.0.read_lag_max_ns.get()
    }
}

/// One connection, used by one request at a time.
pub(crate) struct Connection {
    transport: Transport,
    /// The server's side of TLS.
    peer: Option<TlsPeer>,
    /// A write failed; the answer to it may still be there to be read.
    write_failure: Option<io::Error>,
    /// TLS holds bytes of a request that the socket did not take yet.
    unflushed: bool,
    /// Requests sent before.
    served: u64,
}

impl Connection {
    /// Connects to the first address that answers; with TLS, to the end of the handshake.
    ///
    /// # Errors
    /// The reason of the last address, as the end of the request that wanted the connection.
    pub(crate) async fn open(
        address: &Address,
        receive: &Rc<ReceiveClock>,
    ) -> Result<Self, BodyEnd> {
        let mut failure = BodyEnd::Failed(ErrorClass::Connect, "no address".to_owned());
        for socket in &address.sockets {
            match TcpStream::connect(socket).await {
                Ok(stream) => return Self::over(stream, address.tls.clone(), receive).await,
                Err(e) => failure = classify_connect(&e),
            }
        }
        Err(failure)
    }

    async fn over(
        stream: TcpStream,
        peer: Option<TlsPeer>,
        receive: &Rc<ReceiveClock>,
    ) -> Result<Self, BodyEnd> {
        // A request is one write; nothing is gained by holding its tail back.
        stream.set_nodelay(true).map_err(|e| classify_connect(&e))?;
        receive.ask(stream.as_fd());
        let wire = Rc::new(Wire::new(stream, receive));
        let socket = Stamped(Rc::clone(&wire));
        let layer = match &peer {
            None => Layer::Plain(socket),
            Some(peer) => match peer.handshake(socket).await {
                Ok(stream) => Layer::Tls(Box::new(stream)),
                Err(e) => return Err(BodyEnd::Failed(ErrorClass::Tls, peer.explain(&e))),
            },
        };
        Ok(Self {
            transport: Transport { wire, layer },
            peer,
            write_failure: None,
            unflushed: false,
            served: 0,
        })
    }

    fn wire(&self) -> &Wire {
        &self.transport.wire
    }

    /// Whether it served a request before.
    pub(crate) fn reused(&self) -> bool {
        self.served > 0
    }

    /// Whether another request may be sent on it.
    pub(crate) fn usable(&mut self) -> bool {
        if self.peer.is_some() {
            // What waits on the socket may be a session ticket, which is harmless, or the server's
            // farewell; some of it may have been read already. TLS itself must look.
            self.wire().unprompted.set(true);
            let mut byte = [0_u8; 1];
            let looked = Pin::new(&mut self.transport).poll_read(
                &mut Context::from_waker(Waker::noop()),
                &mut ReadBuf::new(&mut byte),
            );
            self.wire().unprompted.set(false);
            return looked.is_pending();
        }
        self.wire().alive()
    }

    /// Stamps of the last read that delivered bytes.
    pub(crate) fn last_read(&self) -> ReadStamp {
        self.wire().last_read.get()
    }

    /// Number of reads that delivered bytes.
    pub(crate) fn reads(&self) -> u64 {
        self.wire().reads.get()
    }

    /// A view of its stamps that outlives it.
    pub(crate) fn stamps(&self) -> Stamps {
        Stamps(Rc::clone(&self.transport.wire))
    }

    /// The next write is the first one of a request.
    pub(crate) fn expect_request(&mut self) {
        let wire = self.wire();
        wire.first_write_ns.set(None);
        wire.read_lag_max_ns.set(None);
        wire.first_byte.set(None);
        self.served += 1;
    }

    /// Writes what can be written of `unsent`, which shrinks by it, and reads. A failure to write is
    /// told only when nothing is there to be read: a server may answer and close before it has read
    /// all of a request.
    pub(crate) fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        unsent: &mut &[u8],
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if (!unsent.is_empty() || self.unflushed)
            && let Poll::Ready(Err(e)) = self.poll_write(cx, unsent)
        {
            *unsent = &[];
            self.unflushed = false;
            self.write_failure = Some(e);
        }
        let mut buffer = ReadBuf::new(buffer);
        let read = Pin::new(&mut self.transport).poll_read(cx, &mut buffer);
        let bytes = buffer.filled().len();
        match read {
            Poll::Ready(Ok(())) if bytes > 0 => Poll::Ready(Ok(bytes)),
            Poll::Ready(end) => {
                let end = self.write_failure.take().map_or(end, Err);
                Poll::Ready(end.map(|()| 0))
            }
            Poll::Pending => match self.write_failure.take() {
                Some(e) => Poll::Ready(Err(e)),
                None => Poll::Pending,
            },
        }
    }

    fn poll_write(&mut self, cx: &mut Context<'_>, unsent: &mut &[u8]) -> Poll<io::Result<()>> {
        while !unsent.is_empty() {
            let n = ready!(self.transport.layer.writer().poll_write(cx, unsent))?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            *unsent = &unsent[n..];
            self.unflushed = true;
        }
        ready!(self.transport.layer.writer().poll_flush(cx))?;
        self.unflushed = false;
        Poll::Ready(Ok(()))
    }

    /// Whether bytes of a request that it has taken are not on the socket yet.
    pub(crate) fn has_unsent(&self) -> bool {
        self.unflushed
    }

    /// What a failure to read or write means for the request that had come so far.
    pub(crate) fn classify(&self, error: &io::Error, answer: &ResponseReader) -> BodyEnd {
        if let Some(peer) = &self.peer
            && blackstart_tls::is_tls(error)
        {
            return BodyEnd::Failed(ErrorClass::Tls, peer.explain(error));
        }
        match error.kind() {
            // TLS that ends without a farewell: what it means is up to HTTP, as with TCP.
            io::ErrorKind::UnexpectedEof => closed(answer),
            _ => BodyEnd::Failed(ErrorClass::Reset, error.to_string()),
        }
    }

    /// What bytes that are no HTTP mean.
    pub(crate) fn classify_malformed(&self, error: Malformed, answer: &ResponseReader) -> BodyEnd {
        let first = self.wire().first_byte.get();
        if !answer.has_head() && first.is_some_and(blackstart_tls::looks_like_tls) {
            let text = "the server answers with TLS; use https:// in the address";
            return BodyEnd::Failed(ErrorClass::Tls, text.to_owned());
        }
        BodyEnd::Failed(ErrorClass::MalformedStream, error.to_string())
    }
}

/// What the end of a connection means for the request that had come so far.
pub(crate) fn closed(answer: &ResponseReader) -> BodyEnd {
    if answer.ends_with_connection() {
        BodyEnd::Clean
    } else if answer.begun() {
        BodyEnd::Cut
    } else {
        let text = "the connection was closed before an answer";
        BodyEnd::Failed(ErrorClass::Reset, text.to_owned())
    }
}

/// Class of a failure to connect. What the client's own host refuses is not the server's failure.
fn classify_connect(error: &io::Error) -> BodyEnd {
    let own = error.raw_os_error().is_some_and(|code| {
        [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOBUFS,
            libc::ENOMEM,
            libc::EADDRNOTAVAIL,
        ]
        .contains(&code)
    });
    let class = if own {
        ErrorClass::Undispatched
    } else {
        ErrorClass::Connect
    };
    BodyEnd::Failed(class, error.to_string())
}
