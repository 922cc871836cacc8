//! One connection: a TCP socket that stamps its reads and writes, TLS where the address asks for it,
//! and hyper's HTTP/1.1 client on top.
//!
//! hyper's connection is polled by the task of the request that uses it, never by a task of its own:
//! a read, its stamp and the events in it are handled in one go, and no other read happens between
//! the one that delivered a frame and the handling of that frame. There is no pool that could retry.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker, ready};

use blackstart_record::ErrorClass;
use blackstart_tls::{TlsPeer, TlsStream};
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, Interest, ReadBuf};
use tokio::net::TcpStream;

use crate::address::Address;
use crate::outcome::BodyEnd;
use crate::receive::{ReceiveClock, Received, receive};

/// Largest buffer for one read; also the largest response head.
const MAX_READ_BUFFER_BYTES: usize = 64 << 10;

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

/// What hyper reads from and writes to. The stamps are always those of the socket: of TLS, the read
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

impl AsyncWrite for Transport {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.layer.writer().poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.layer.writer().poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        match &self.layer {
            Layer::Plain(socket) => socket.is_write_vectored(),
            Layer::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.layer.writer().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.layer.writer().poll_shutdown(cx)
    }
}

/// The stamps of a connection's present request.
pub(crate) struct Stamps(Rc<Wire>);

impl Stamps {
    /// The first write since [`Connection::expect_write`].
    pub(crate) fn first_write_ns(&self) -> Option<i64> {
        self.0.first_write_ns.get()
    }

    /// The longest time for which bytes that had arrived waited to be read, since
    /// [`Connection::expect_write`].
    pub(crate) fn read_lag_max_ns(&self) -> Option<i64> {
        self.0.read_lag_max_ns.get()
    }
}

/// A request as hyper takes it.
pub(crate) type Request = hyper::Request<Full<Bytes>>;

type Driver = http1::Connection<TokioIo<Transport>, Full<Bytes>>;

/// One connection, used by one request at a time.
pub(crate) struct Connection {
    wire: Rc<Wire>,
    /// The server's side of TLS.
    peer: Option<TlsPeer>,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    closed: bool,
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
        let transport = Transport {
            wire: Rc::clone(&wire),
            layer,
        };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_READ_BUFFER_BYTES)
            .handshake(TokioIo::new(transport))
            .await
            .map_err(|e| BodyEnd::Failed(ErrorClass::Connect, describe(&e)))?;
        Ok(Self {
            wire,
            peer,
            sender,
            driver: Box::pin(driver),
            closed: false,
            served: 0,
        })
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
            self.wire.unprompted.set(true);
            self.drive(&mut Context::from_waker(Waker::noop()));
            self.wire.unprompted.set(false);
            return !self.closed && !self.sender.is_closed();
        }
        !self.closed && !self.sender.is_closed() && self.wire.alive()
    }

    /// Stamps of the last read that delivered bytes.
    pub(crate) fn last_read(&self) -> ReadStamp {
        self.wire.last_read.get()
    }

    /// Number of reads that delivered bytes.
    pub(crate) fn reads(&self) -> u64 {
        self.wire.reads.get()
    }

    /// Whether a byte of an answer came since [`expect_write`](Self::expect_write).
    pub(crate) fn answered(&self) -> bool {
        self.wire.first_byte.get().is_some()
    }

    /// A view of its stamps that outlives it.
    pub(crate) fn stamps(&self) -> Stamps {
        Stamps(Rc::clone(&self.wire))
    }

    /// The next write is the first one of a request.
    pub(crate) fn expect_write(&self) {
        self.wire.first_write_ns.set(None);
        self.wire.read_lag_max_ns.set(None);
        self.wire.first_byte.set(None);
    }

    /// Lets hyper see the end of an exchange.
    pub(crate) async fn settle(&mut self) {
        poll_fn(|cx| {
            self.drive(cx);
            Poll::Ready(())
        })
        .await;
    }

    fn drive(&mut self, cx: &mut Context<'_>) {
        // Its error is the response's or the body's as well, where it is classified.
        if !self.closed && self.driver.as_mut().poll(cx).is_ready() {
            self.closed = true;
        }
    }

    /// Waits until the connection can take a request. Apart from [`send`](Self::send), so that the
    /// caller can wait for the intended instant in between.
    pub(crate) async fn ready(&mut self) -> Result<(), hyper::Error> {
        poll_fn(|cx| {
            self.drive(cx);
            self.sender.poll_ready(cx)
        })
        .await
    }

    /// Sends a request and waits for the response's head.
    pub(crate) async fn send(
        &mut self,
        request: Request,
    ) -> Result<hyper::Response<Incoming>, hyper::Error> {
        self.served += 1;
        let mut response = pin!(self.sender.send_request(request));
        poll_fn(|cx| {
            self.drive(cx);
            response.as_mut().poll(cx)
        })
        .await
    }

    /// The next frame of a body, or `None` at its proper end.
    pub(crate) async fn frame(
        &mut self,
        body: &mut Incoming,
    ) -> Option<Result<Frame<Bytes>, hyper::Error>> {
        poll_fn(|cx| {
            // What the last read brought goes first; only then may the next read happen.
            if let Poll::Ready(frame) = Pin::new(&mut *body).poll_frame(cx) {
                return Poll::Ready(frame);
            }
            self.drive(cx);
            Pin::new(&mut *body).poll_frame(cx)
        })
        .await
    }

    /// What a failure of hyper means for a request that had come so far.
    pub(crate) fn classify(&self, error: &hyper::Error, stage: Stage) -> BodyEnd {
        let io = io_source(error);
        if let Some(io) = io
            && let Some(peer) = &self.peer
            && blackstart_tls::is_tls(io)
        {
            return BodyEnd::Failed(ErrorClass::Tls, peer.explain(io));
        }
        let text = describe(error);
        let failed = |class| BodyEnd::Failed(class, text.clone());
        if error.is_parse() {
            let first = self.wire.first_byte.get();
            if stage == Stage::Head && first.is_some_and(blackstart_tls::looks_like_tls) {
                let text = "the server answers with TLS; use https:// in the address";
                return BodyEnd::Failed(ErrorClass::Tls, text.to_owned());
            }
            return failed(ErrorClass::MalformedStream);
        }
        if let Some(io) = io {
            return match (io.kind(), stage) {
                // TLS that ends without a farewell: what it means is up to HTTP, as with TCP.
                (io::ErrorKind::UnexpectedEof, Stage::Unanswered) => BodyEnd::Failed(
                    ErrorClass::Reset,
                    "the connection was closed before an answer".to_owned(),
                ),
                (io::ErrorKind::UnexpectedEof, _) => BodyEnd::Cut,
                (io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData, _) => {
                    failed(ErrorClass::MalformedStream)
                }
                _ => failed(ErrorClass::Reset),
            };
        }
        match stage {
            Stage::Unanswered => failed(ErrorClass::Reset),
            Stage::Head | Stage::Body => BodyEnd::Cut,
        }
    }
}

/// How far a request had come when its connection failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// No byte of the response was read.
    Unanswered,
    /// Inside the head.
    Head,
    /// Inside the body.
    Body,
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

fn io_source(error: &hyper::Error) -> Option<&io::Error> {
    let mut source = std::error::Error::source(error);
    // hyper nests one or two deep.
    for _ in 0..4 {
        let inner = source?;
        if let Some(io) = inner.downcast_ref::<io::Error>() {
            return Some(io);
        }
        source = inner.source();
    }
    None
}

fn describe(error: &hyper::Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
