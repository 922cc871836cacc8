//! TLS for tests: certificates made on the spot, and a terminator in front of a plain server.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::JoinHandle;

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, date_time_ymd,
};
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsAcceptor;

/// Bytes that are passed on at once.
const BLOCK_BYTES: usize = 16 << 10;

static AUTHORITIES: AtomicUsize = AtomicUsize::new(0);

/// Somebody who issues certificates.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    /// One that nobody knows.
    pub fn new() -> Self {
        let mut params = params(&[]);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        // Two of one name would be one with two keys.
        let number = AUTHORITIES.fetch_add(1, Ordering::Relaxed);
        let name = format!("Authority {number} of tests");
        params.distinguished_name.push(DnType::CommonName, name);
        let key = KeyPair::generate().expect("a key");
        Self(CertifiedIssuer::self_signed(params, key).expect("a certificate"))
    }

    /// Its certificate.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// A certificate for these names, and its key.
    pub fn issue(&self, names: &[&str]) -> Identity {
        self.sign(params(names))
    }

    /// One that expired long ago.
    pub fn issue_expired(&self, names: &[&str]) -> Identity {
        let mut params = params(names);
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        self.sign(params)
    }

    fn sign(&self, params: CertificateParams) -> Identity {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.0).expect("a certificate");
        Identity {
            pem: certificate.pem(),
            certificate: certificate.into(),
            key,
        }
    }
}

impl Default for Authority {
    fn default() -> Self {
        Self::new()
    }
}

/// A server's certificate and key.
pub struct Identity {
    pem: String,
    certificate: CertificateDer<'static>,
    key: KeyPair,
}

impl Identity {
    /// As `openssl req -x509` makes it: its own issuer, and an authority.
    pub fn of_its_own(names: &[&str]) -> Self {
        let mut params = params(names);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("a certificate");
        Self {
            pem: certificate.pem(),
            certificate: certificate.into(),
            key,
        }
    }

    /// Its certificate.
    pub fn pem(&self) -> &str {
        &self.pem
    }
}

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    CertificateParams::new(names).expect("names")
}

/// How a terminator ends a connection whose server has closed its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Farewell {
    /// As it should: `close_notify`, then the end of the TCP connection.
    Proper,
    /// TCP ends without a word of TLS.
    Silent,
    /// `close_notify`, and TCP goes on.
    NotifyOnly,
}

/// A terminator of TLS in front of a plain server. It ends when dropped.
pub struct TlsFront {
    /// Where it listens.
    pub address: SocketAddr,
    accepted: Arc<AtomicUsize>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TlsFront {
    /// Listens on a port of its own.
    pub fn start(identity: &Identity, server: SocketAddr, farewell: Farewell) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        listener.set_nonblocking(true).expect("a listener");
        let key = PrivateKeyDer::try_from(identity.key.serialize_der()).expect("a key");
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![identity.certificate.clone()], key)
            .expect("a certificate with its key");
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let accepted = Arc::new(AtomicUsize::new(0));
        let (stop, stopped) = oneshot::channel();
        let count = Arc::clone(&accepted);
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_io()
                .build()
                .expect("a runtime");
            runtime.block_on(async move {
                let listener = tokio::net::TcpListener::from_std(listener).expect("a listener");
                let accept = async {
                    while let Ok((client, _)) = listener.accept().await {
                        count.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(serve(acceptor.clone(), client, server, farewell));
                    }
                };
                tokio::select! {
                    () = accept => {}
                    _ = stopped => {}
                }
            });
        });
        Self {
            address,
            accepted,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Its address.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Connections so far, failed handshakes included.
    pub fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

impl Drop for TlsFront {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What fails here is seen by the client.
async fn serve(
    acceptor: TlsAcceptor,
    client: TcpStream,
    server: SocketAddr,
    farewell: Farewell,
) -> Option<()> {
    client.set_nodelay(true).ok()?;
    let mut client = acceptor.accept(client).await.ok()?;
    let mut server = TcpStream::connect(server).await.ok()?;
    server.set_nodelay(true).ok()?;
    let (mut up, mut down) = (vec![0; BLOCK_BYTES], vec![0; BLOCK_BYTES]);
    let mut client_listens = true;
    loop {
        tokio::select! {
            n = client.read(&mut up), if client_listens => match n {
                Ok(n) if n > 0 => server.write_all(&up[..n]).await.ok()?,
                _ => {
                    client_listens = false;
                    server.shutdown().await.ok()?;
                }
            },
            n = server.read(&mut down) => match n {
                Ok(n) if n > 0 => {
                    client.write_all(&down[..n]).await.ok()?;
                    client.flush().await.ok()?;
                }
                _ => break,
            },
        }
    }
    match farewell {
        Farewell::Silent => {}
        Farewell::Proper => client.shutdown().await.ok()?,
        Farewell::NotifyOnly => {
            client.get_mut().1.send_close_notify();
            client.flush().await.ok()?;
            // Until the client is gone.
            while client.get_mut().0.read(&mut up).await.ok()? > 0 {}
        }
    }
    Some(())
}
