//! Accepting connections and serving them until the server leaves.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};

use crate::api::admin;
use crate::api::app::App;
use crate::api::http::{self, Connection};

/// Connections the kernel may hold before they are accepted.
const BACKLOG: u32 = 4096;
/// Pause after a failed accept (out of file descriptors).
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Binds without listening: the port is taken, connections are refused. vLLM does
/// the same while its engine starts.
///
/// # Errors
/// The address is in use or not ours.
pub fn bind(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Opens the port.
///
/// # Errors
/// As `listen(2)`.
pub fn listen(socket: TcpSocket) -> io::Result<TcpListener> {
    socket.listen(BACKLOG)
}

/// Which routes a listener has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Routes {
    /// The OpenAI interface.
    Main,
    /// The admin interface.
    Admin,
}

/// Open connections and the order to wind down.
#[derive(Clone)]
pub struct Connections {
    open: Rc<Cell<usize>>,
    closed: Rc<Notify>,
    leave: watch::Receiver<bool>,
}

impl Connections {
    /// None yet; `true` on `leave` lets each finish its current response.
    pub fn new(leave: watch::Receiver<bool>) -> Self {
        Connections {
            open: Rc::new(Cell::new(0)),
            closed: Rc::new(Notify::new()),
            leave,
        }
    }

    /// Waits until all are closed, or the patience ends.
    pub async fn drained(&self, patience: Duration) {
        let all_closed = async {
            while self.open.get() > 0 {
                self.closed.notified().await;
            }
        };
        // Running out of patience is an expected end: hung clients are cut.
        let _ = tokio::time::timeout(patience, all_closed).await;
    }
}

/// Accepts until told to leave; dropping the listener refuses later connections.
pub async fn accept_loop(
    app: Rc<App>,
    listener: TcpListener,
    routes: Routes,
    connections: Connections,
) {
    let mut leave = connections.leave.clone();
    loop {
        tokio::select! {
            biased;
            _ = leave.wait_for(|l| *l) => return,
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    tokio::task::spawn_local(serve(Rc::clone(&app), stream, peer, routes, connections.clone()));
                }
                Err(_) => tokio::time::sleep(ACCEPT_RETRY).await,
            },
        }
    }
}

struct Count<'a>(&'a Connections);

impl Drop for Count<'_> {
    fn drop(&mut self) {
        self.0.open.set(self.0.open.get() - 1);
        self.0.closed.notify_one();
    }
}

async fn serve(
    app: Rc<App>,
    stream: TcpStream,
    peer: SocketAddr,
    routes: Routes,
    connections: Connections,
) {
    connections.open.set(connections.open.get() + 1);
    let _count = Count(&connections);
    // Tokens must leave at once; a socket that refuses the option is closing anyway.
    let _ = stream.set_nodelay(true);
    let connection = Connection {
        peer,
        reset: Rc::new(Notify::new()),
    };
    let reset = Rc::clone(&connection.reset);
    let service = service_fn(move |request| {
        let (app, connection) = (Rc::clone(&app), connection.clone());
        async move {
            match routes {
                Routes::Main => http::handle(app, connection, request).await,
                Routes::Admin => Ok(admin::handle(&app, request).await),
            }
        }
    });
    let mut served = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let mut leave = connections.leave.clone();
    let mut leaving = false;
    loop {
        tokio::select! {
            // The connection first: it flushes the tokens before a reset.
            biased;
            _ = &mut served => return,
            () = reset.notified() => {
                let stream = served.into_parts().io.into_inner();
                // Zero linger turns the close into a RST.
                let _ = stream.set_zero_linger();
                return;
            }
            _ = leave.wait_for(|l| *l), if !leaving => {
                leaving = true;
                std::pin::Pin::new(&mut served).graceful_shutdown();
            }
        }
    }
}
