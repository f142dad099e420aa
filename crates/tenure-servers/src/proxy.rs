//! A proxy between a client and a server that does to their connections what a bad network does.
//! It knows no protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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
    /// How many bytes may still arrive before the connection that carries the last one is cut.
    allowance: Option<usize>,
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
    refused: AtomicBool,
    connections: Mutex<Vec<AbortHandle>>,
}

impl State {
    fn weather(&self, way: Way) -> &watch::Sender<Weather> {
        &self.weather[way as usize]
    }

    /// How many of so many bytes may arrive, and whether the connection is cut behind them.
    fn within_allowance(&self, way: Way, count: usize) -> (usize, bool) {
        let mut within = (count, false);
        self.weather(way).send_modify(|weather| {
            if let Some(left) = weather.allowance {
                within = (count.min(left), left <= count);
                weather.allowance = (left > count).then(|| left - count);
            }
        });
        within
    }
}

impl Proxy {
    /// A proxy for the server at that address, in fair weather.
    ///
    /// # Cancel safety
    /// Dropping the future leaves nothing behind.
    ///
    /// # Errors
    /// What the system says if no port is free.
    pub async fn start(server: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            server,
            weather: [(); 2].map(|()| watch::Sender::new(Weather::default())),
            refused: AtomicBool::new(false),
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

    /// Bytes that are sent from now on never arrive, and nobody is told; both ways, it is a half-open connection.
    ///
    /// A connection that has lost bytes never delivers any that way again, also after [`heal`](Self::heal): TCP leaves
    /// no gaps. Whoever waits at its end must give it up.
    pub fn swallow(&self, way: Way) {
        self.change(way, |weather| weather.swallowed = true);
    }

    /// Closes every connection, and those that come are closed at once, until [`heal`](Self::heal).
    pub fn refuse(&self) {
        self.state.refused.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Closes every connection there is; new ones are served.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().drain(..) {
            connection.abort();
        }
    }

    /// Closes a connection once so many more bytes have arrived, in the midst of what they say; once.
    pub fn cut_after(&self, way: Way, bytes: usize) {
        self.change(way, |weather| weather.allowance = Some(bytes));
    }

    /// Fair weather again. What was held arrives; what was swallowed does not.
    pub fn heal(&self) {
        self.state.refused.store(false, Ordering::Relaxed);
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
        if state.refused.load(Ordering::Relaxed) {
            continue;
        }
        let connection = tokio::spawn(serve(client, state.clone())).abort_handle();
        let mut connections = state.connections.lock();
        connections.retain(|other| !other.is_finished());
        connections.push(connection);
    }
}

/// One connection: ends when both sides have closed and what they sent has arrived, or when it is cut.
async fn serve(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(state.server).await else {
        return;
    };
    // A small request must not wait for a large one.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let _ = tokio::try_join!(
        carry(from_client, to_server, &state, Way::ToServer),
        carry(from_server, to_client, &state, Way::ToClient),
    );
}

/// The connection has ended for both sides.
struct Cut;

/// Carries bytes one way until the sender closes, and then that it has closed.
async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, state: &State, way: Way) -> Result<(), Cut> {
    let (send, arriving) = mpsc::unbounded_channel();
    tokio::try_join!(
        receive(from, send, state.weather(way).subscribe()),
        deliver(arriving, to, state, way),
    )?;
    Ok(())
}

/// Bytes, and when they may arrive.
type Parcel = (Instant, Vec<u8>);

async fn receive(
    mut from: OwnedReadHalf,
    send: mpsc::UnboundedSender<Parcel>,
    mut weather: watch::Receiver<Weather>,
) -> Result<(), Cut> {
    let mut bytes = vec![0; 64 << 10];
    let mut torn = false;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let Weather { delay, swallowed, .. } = *weather.borrow();
        torn |= swallowed;
        if !torn {
            let parcel = (Instant::now() + delay, bytes[..count].to_vec());
            send.send(parcel).map_err(|_| Cut)?;
        }
    }
    if torn || weather.borrow().swallowed {
        // The other side is not told either, until it could be: then that nobody is there any more.
        let _ = weather.wait_for(|weather| !weather.swallowed).await;
        return Err(Cut);
    }
    Ok(())
}

async fn deliver(
    mut arriving: mpsc::UnboundedReceiver<Parcel>,
    mut to: OwnedWriteHalf,
    state: &State,
    way: Way,
) -> Result<(), Cut> {
    let mut weather = state.weather(way).subscribe();
    while let Some((at, bytes)) = arriving.recv().await {
        sleep_until(at).await;
        weather.wait_for(|weather| !weather.held).await.map_err(|_| Cut)?;
        let (count, last) = state.within_allowance(way, bytes.len());
        to.write_all(&bytes[..count]).await.map_err(|_| Cut)?;
        if last {
            return Err(Cut);
        }
    }
    Ok(())
}
