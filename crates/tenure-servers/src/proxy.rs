//! A proxy between a client and a server that does to their connections what a bad network does.
//! It knows no protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until};

/// Which way bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// What is done to bytes on their way.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Weather {
    delay: Duration,
    /// Nothing arrives until this has passed; then it all does, in order.
    held: bool,
    /// What is sent is gone for ever.
    swallowed: bool,
}

/// A proxy on a free port of the loopback; its connections end with it.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    weather: [watch::Sender<Weather>; 2],
    /// New connections are closed at once.
    refused: watch::Sender<bool>,
    connections: Mutex<Vec<AbortHandle>>,
}

impl State {
    fn weather(&self, way: Way) -> &watch::Sender<Weather> {
        &self.weather[way as usize]
    }
}

impl Proxy {
    /// A proxy for the server at that address, in fair weather.
    ///
    /// # Errors
    /// What the system says if no port is free.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    pub async fn start(server: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            server,
            weather: [(); 2].map(|()| watch::Sender::new(Weather::default())),
            refused: watch::Sender::new(false),
            connections: Mutex::default(),
        });
        let accepting = tokio::spawn(accept(listener, state.clone())).abort_handle();
        Ok(Proxy {
            address,
            state,
            accepting,
        })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// From now on bytes arrive so much later, in order.
    pub fn delay(&self, way: Way, delay: Duration) {
        self.change(way, |weather| weather.delay = delay);
    }

    /// Bytes wait until [`heal`](Self::heal), as in a partition that TCP outlives.
    pub fn hold(&self, way: Way) {
        self.change(way, |weather| weather.held = true);
    }

    /// Bytes that are sent from now on never arrive, and nobody is told: a half-open connection.
    pub fn swallow(&self, way: Way) {
        self.change(way, |weather| weather.swallowed = true);
    }

    /// Closes every connection, and those that come are closed at once, until [`heal`](Self::heal).
    pub fn refuse(&self) {
        self.state.refused.send_replace(true);
        self.cut();
    }

    /// Closes every connection there is; new ones are served.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().drain(..) {
            connection.abort();
        }
    }

    /// Fair weather again. What was held arrives; what was swallowed does not.
    pub fn heal(&self) {
        self.state.refused.send_replace(false);
        for way in [Way::ToServer, Way::ToClient] {
            self.change(way, |weather| *weather = Weather::default());
        }
    }

    fn change(&self, way: Way, change: impl FnOnce(&mut Weather)) {
        self.state.weather(way).send_modify(change);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

async fn accept(listener: TcpListener, state: Arc<State>) {
    while let Ok((client, _)) = listener.accept().await {
        if *state.refused.borrow() {
            continue;
        }
        let connection = tokio::spawn(serve(client, state.clone())).abort_handle();
        let mut connections = state.connections.lock();
        connections.retain(|other| !other.is_finished());
        connections.push(connection);
    }
}

/// One connection: ends when either side closes, or when it is cut.
async fn serve(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(state.server).await else {
        return;
    };
    // A small request must not wait for a large one.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = carry(from_client, to_server, state.weather(Way::ToServer)) => {}
        () = carry(from_server, to_client, state.weather(Way::ToClient)) => {}
    }
}

/// Carries bytes one way until the sender closes.
async fn carry(mut from: OwnedReadHalf, to: OwnedWriteHalf, weather: &watch::Sender<Weather>) {
    let (send, arriving) = mpsc::unbounded_channel();
    let read = async {
        let mut bytes = vec![0; 64 << 10];
        while let Ok(count @ 1..) = from.read(&mut bytes).await {
            let Weather { delay, swallowed, .. } = *weather.borrow();
            if !swallowed
                && send
                    .send((Instant::now() + delay, bytes[..count].to_vec()))
                    .is_err()
            {
                return;
            }
        }
    };
    tokio::select! {
        () = read => {}
        () = deliver(arriving, to, weather.subscribe()) => {}
    }
}

async fn deliver(
    mut arriving: mpsc::UnboundedReceiver<(Instant, Vec<u8>)>,
    mut to: OwnedWriteHalf,
    mut weather: watch::Receiver<Weather>,
) {
    while let Some((at, bytes)) = arriving.recv().await {
        sleep_until(at).await;
        if weather.wait_for(|weather| !weather.held).await.is_err() || to.write_all(&bytes).await.is_err() {
            return;
        }
    }
}
