//! Listeners and connections.

use std::{
    io,
    net::SocketAddr,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use axum::body::Body;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::{
        conn::auto,
        graceful::{GracefulShutdown, Watcher},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpSocket, TcpStream},
    sync::Semaphore,
};
use tokio_rustls::TlsAcceptor;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Peer, Route, Shared,
    tls::{self, Tls, TlsFiles},
};
use crate::app::App;

/// Connections that wait to be accepted: thousands may come at once.
const BACKLOG: u32 = 4096;
/// Connections at once; more wait in the backlog, so that memory and files are bounded.
const CONNECTIONS: usize = 8192;
/// Files that a manager with all its connections needs.
const FILES: u64 = 16_384;
/// How long headers may take: who is slower is not worth a connection.
const HEADER_TIME: Duration = Duration::from_secs(30);
/// How long a TLS handshake may take.
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// Somewhat more than the headers that are taken, so that those that are too long get a proper answer.
const BUFFER: usize = 256 * 1024;
const HEADER_LIST: u32 = 64 * 1024;
const STREAMS: u32 = 256;

/// How to listen.
#[derive(Debug, Clone)]
pub struct ServeOptions {
    /// Where.
    pub listen: Vec<SocketAddr>,
    /// With which certificates; none means no encryption.
    pub tls: Option<TlsFiles>,
    /// Whether everybody is an administrator; only on loopback.
    pub no_auth: bool,
    /// How long requests that are under way may take when told to stop.
    pub grace: Duration,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The address cannot be listened on.
    #[error("{address} cannot be listened on; is it in use, or not one of this host's?")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Nobody has to prove anything, and others could reach us.
    #[error("without authentication only loopback addresses are listened on, and {address} is none")]
    Open {
        /// The address.
        address: SocketAddr,
    },
    /// There is nothing to listen on.
    #[error("no address to listen on was given")]
    Nowhere,
    /// The certificates are not usable.
    #[error("{}: {reason}", file.display())]
    Tls {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
}

/// Sockets that are open, before anything is served on them.
pub struct Bound {
    listeners: Vec<TcpListener>,
    addresses: Vec<SocketAddr>,
    tls: Option<Arc<Tls>>,
    options: ServeOptions,
}

/// Opens the sockets, so that the addresses are known before the application is made.
pub fn bind(options: ServeOptions) -> Result<Bound, ServeError> {
    if options.listen.is_empty() {
        return Err(ServeError::Nowhere);
    }
    if options.no_auth
        && let Some(address) = options.listen.iter().find(|address| !address.ip().is_loopback())
    {
        return Err(ServeError::Open { address: *address });
    }
    raise_file_limit();
    let tls = options.tls.clone().map(|files| Tls::new(files).map(Arc::new)).transpose()?;
    let mut listeners = Vec::new();
    let mut addresses = Vec::new();
    for address in &options.listen {
        let failed = |source| ServeError::Listen { address: *address, source };
        let listener = listen(*address).map_err(failed)?;
        addresses.push(listener.local_addr().map_err(failed)?);
        listeners.push(listener);
    }
    Ok(Bound { listeners, addresses, tls, options })
}

impl Bound {
    /// The addresses, with ports that the system chose.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// The first address as others write it: `http://127.0.0.1:9890`.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addresses[0])
    }

    /// Serves until told to stop, and then until all requests are answered or the time of grace is over.
    pub async fn serve(self, app: App, routes: Vec<Route>, stop: CancellationToken) {
        let shared = Arc::new(Shared::new(app, routes, self.options.no_auth, stop.clone()));
        let graceful = Arc::new(GracefulShutdown::new());
        let tasks = TaskTracker::new();
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        if let Some(tls) = self.tls.clone() {
            let stop = stop.clone();
            tasks.spawn(async move { tls.watch(stop).await });
        }
        let watching = (shared.clone(), stop.clone());
        tasks.spawn(async move {
            let journal = watching.0.app.engine.journal().clone();
            watching.0.metrics.watch(&*journal, watching.1).await;
        });
        let (connections, force) = (TaskTracker::new(), CancellationToken::new());
        for listener in self.listeners {
            let acceptor = Acceptor {
                shared: shared.clone(),
                tls: self.tls.clone(),
                places: places.clone(),
                stop: stop.clone(),
                connections: connections.clone(),
                force: force.clone(),
            };
            tasks.spawn(acceptor.accept(listener, graceful.clone()));
        }
        stop.cancelled().await;
        tasks.close();
        tasks.wait().await;
        // The acceptors are gone, and with them their shares of it.
        let Some(graceful) = Arc::into_inner(graceful) else { return };
        if tokio::time::timeout(self.options.grace, graceful.shutdown()).await.is_err() {
            tracing::warn!("requests that did not end in time are given up");
            force.cancel();
            connections.close();
            connections.wait().await;
        }
    }
}

/// Accepts connections of one listener.
struct Acceptor {
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    places: Arc<Semaphore>,
    stop: CancellationToken,
    connections: TaskTracker,
    /// Ends connections that outlast the time of grace.
    force: CancellationToken,
}

impl Acceptor {
    async fn accept(self, listener: TcpListener, graceful: Arc<GracefulShutdown>) {
        loop {
            let next = async {
                let place = self.places.clone().acquire_owned().await;
                (place, listener.accept().await)
            };
            let (place, accepted) = tokio::select! {
                () = self.stop.cancelled() => return,
                next = next => next,
            };
            let (stream, address) = match accepted {
                Ok(accepted) => accepted,
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Out of files, most likely: a pause lets connections end.
                    tokio::time::sleep(Duration::from_millis(50)).await;
                    continue;
                }
            };
            let (shared, tls, watcher) = (self.shared.clone(), self.tls.clone(), graceful.watcher());
            let force = self.force.clone();
            self.connections.spawn(async move {
                let _place = place;
                let ended = tokio::select! {
                    () = force.cancelled() => Err("the manager stops".to_owned()),
                    ended = connection(shared, tls, stream, address, watcher) => ended,
                };
                if let Err(error) = ended {
                    tracing::debug!(%address, error, "a connection ended early");
                }
            });
        }
    }
}

async fn connection(
    shared: Arc<Shared>,
    tls: Option<Arc<Tls>>,
    stream: TcpStream,
    address: SocketAddr,
    watcher: Watcher,
) -> Result<(), String> {
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    let Some(tls) = tls else {
        let peer = Peer { address, tls: false, certificate: Arc::default() };
        return talk(shared, stream, peer, watcher).await;
    };
    let handshake = TlsAcceptor::from(tls.config()).accept(stream);
    let stream = match tokio::time::timeout(HANDSHAKE_TIME, handshake).await {
        Ok(done) => done.map_err(|error| error.to_string())?,
        Err(_) => return Err("the handshake took too long".to_owned()),
    };
    let certificates = stream.get_ref().1.peer_certificates();
    let names = certificates.and_then(<[_]>::first).map(tls::names).unwrap_or_default();
    let peer = Peer { address, tls: true, certificate: names.into() };
    talk(shared, stream, peer, watcher).await
}

async fn talk<S>(shared: Arc<Shared>, stream: S, peer: Peer, watcher: Watcher) -> Result<(), String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let spoke = Arc::new(AtomicBool::new(false));
    let heard = spoke.clone();
    let service = service_fn(move |request: hyper::Request<Incoming>| {
        heard.store(true, Ordering::Relaxed);
        let (shared, peer) = (shared.clone(), peer.clone());
        async move { Ok::<_, std::convert::Infallible>(shared.answer(peer, request.map(Body::new)).await) }
    });
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(HEADER_TIME).max_buf_size(BUFFER);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(HEADER_LIST)
        .max_concurrent_streams(STREAMS)
        .keep_alive_interval(HEADER_TIME);
    let conversation = watcher.watch(builder.serve_connection(TokioIo::new(stream), service).into_owned());
    tokio::pin!(conversation);
    // Before the first bytes tell the version apart no timeout of the protocol runs yet.
    tokio::select! {
        done = &mut conversation => return done.map_err(|error| error.to_string()),
        () = tokio::time::sleep(HEADER_TIME) => {}
    }
    if !spoke.load(Ordering::Relaxed) {
        return Err("nothing was asked".to_owned());
    }
    conversation.await.map_err(|error| error.to_string())
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A manager that was just stopped leaves connections behind that must not keep the next one from starting.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// As many files as we need, or as many as we may have.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    let wanted = maximum.map_or(FILES, |most| most.min(FILES));
    if current.is_some_and(|current| current < wanted)
        && let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: Some(wanted), maximum })
    {
        tracing::warn!(%error, "the limit of open files could not be raised; fewer connections are possible");
    }
}
