//! One connection: a TCP socket that stamps its reads and writes, under hyper's HTTP/1.1 client.
//!
//! hyper's connection is polled by the task of the request that uses it, never by a task of its own:
//! a read, its stamp and the events in it are handled in one go, and no other read happens between
//! the one that delivered a frame and the handling of that frame. There is no pool that could retry.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use blackstart_clock::RunClock;
use blackstart_record::ErrorClass;
use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustix::net::RecvFlags;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

use crate::address::Address;
use crate::outcome::BodyEnd;

/// Largest buffer for one read; also the largest response head.
const MAX_READ_BUFFER_BYTES: usize = 64 << 10;

/// A socket and the stamps of its traffic.
#[derive(Debug)]
struct Wire {
    socket: RefCell<TcpStream>,
    clock: RunClock,
    last_read_ns: Cell<i64>,
    reads: Cell<u64>,
    first_write_ns: Cell<Option<i64>>,
}

impl Wire {
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
}

/// What hyper reads from and writes to.
struct Stamped(Rc<Wire>);

impl AsyncRead for Stamped {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let mut socket = self.0.socket.borrow_mut();
        let polled = Pin::new(&mut *socket).poll_read(cx, buf);
        if matches!(polled, Poll::Ready(Ok(()))) && buf.filled().len() > before {
            self.0.last_read_ns.set(self.0.clock.now());
            self.0.reads.set(self.0.reads.get() + 1);
        }
        polled
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
            .then(|| self.0.clock.now());
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

/// The stamps of a connection's present request.
pub(crate) struct Stamps(Rc<Wire>);

impl Stamps {
    /// The first write since [`Connection::expect_write`].
    pub(crate) fn first_write_ns(&self) -> Option<i64> {
        self.0.first_write_ns.get()
    }
}

/// A request as hyper takes it.
pub(crate) type Request = hyper::Request<Full<Bytes>>;

type Driver = http1::Connection<TokioIo<Stamped>, Full<Bytes>>;

/// One connection, used by one request at a time.
pub(crate) struct Connection {
    wire: Rc<Wire>,
    sender: http1::SendRequest<Full<Bytes>>,
    driver: Pin<Box<Driver>>,
    closed: bool,
    /// Requests sent before.
    served: u64,
}

impl Connection {
    /// Connects to the first address that answers.
    ///
    /// # Errors
    /// The reason of the last address.
    pub(crate) async fn open(address: &Address, clock: RunClock) -> Result<Self, io::Error> {
        let mut failure = io::Error::other("no address");
        for socket in &address.sockets {
            match TcpStream::connect(socket).await {
                Ok(stream) => {
                    // A request is one write; nothing is gained by holding its tail back.
                    stream.set_nodelay(true)?;
                    return Self::over(stream, clock).await.map_err(io::Error::other);
                }
                Err(e) => failure = e,
            }
        }
        Err(failure)
    }

    async fn over(stream: TcpStream, clock: RunClock) -> Result<Self, hyper::Error> {
        let wire = Rc::new(Wire {
            socket: RefCell::new(stream),
            clock,
            last_read_ns: Cell::new(clock.now()),
            reads: Cell::new(0),
            first_write_ns: Cell::new(None),
        });
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(MAX_READ_BUFFER_BYTES)
            .handshake(TokioIo::new(Stamped(Rc::clone(&wire))))
            .await?;
        Ok(Self {
            wire,
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
    pub(crate) fn usable(&self) -> bool {
        !self.closed && !self.sender.is_closed() && self.wire.alive()
    }

    /// Stamp of the last read that delivered bytes.
    pub(crate) fn last_read_ns(&self) -> i64 {
        self.wire.last_read_ns.get()
    }

    /// Number of reads that delivered bytes.
    pub(crate) fn reads(&self) -> u64 {
        self.wire.reads.get()
    }

    /// A view of its stamps that outlives it.
    pub(crate) fn stamps(&self) -> Stamps {
        Stamps(Rc::clone(&self.wire))
    }

    /// The next write is the first one of a request.
    pub(crate) fn expect_write(&self) {
        self.wire.first_write_ns.set(None);
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
pub(crate) fn classify_connect(error: &io::Error) -> BodyEnd {
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

/// What a failure of hyper means.
pub(crate) fn classify(error: &hyper::Error, stage: Stage) -> BodyEnd {
    let text = describe(error);
    let failed = |class| BodyEnd::Failed(class, text.clone());
    if error.is_parse() {
        return failed(ErrorClass::MalformedStream);
    }
    if let Some(io) = io_source(error) {
        return match io.kind() {
            io::ErrorKind::UnexpectedEof => BodyEnd::Cut,
            io::ErrorKind::InvalidInput | io::ErrorKind::InvalidData => {
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
