//! A proxy between a client and a server that simulates a bad network. It forwards bytes of any protocol.

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

/// The direction in which bytes travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// From the client to the server.
    ToServer,
    /// From the server to the client.
    ToClient,
}

/// The faults that the test has set for one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct LinkFaults {
    delay: Duration,
    /// True if bytes are kept back until the network heals, and then delivered in order.
    held: bool,
    /// True if bytes are thrown away.
    swallowed: bool,
    /// Number of bytes until the next cut. The proxy cuts the connection that carries the last byte. `None`: no cut.
    allowance: Option<usize>,
}

/// A proxy on a free port of the loopback. Dropping it closes its connections.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    state: Arc<State>,
    accepting: AbortHandle,
}

#[derive(Debug)]
struct State {
    server: SocketAddr,
    faults: [watch::Sender<LinkFaults>; 2],
    /// Whether the proxy closes new connections at once.
    refused: AtomicBool,
    connections: Mutex<Vec<AbortHandle>>,
}

impl State {
    fn faults(&self, direction: Way) -> &watch::Sender<LinkFaults> {
        &self.faults[direction as usize]
    }

    /// Returns how many of the next `count` bytes may be delivered, and whether the connection is cut after them.
    fn within_allowance(&self, direction: Way, count: usize) -> (usize, bool) {
        let mut within = (count, false);
        self.faults(direction).send_modify(|faults| {
            if let Some(left) = faults.allowance {
                within = (count.min(left), left <= count);
                faults.allowance = (left > count).then(|| left - count);
            }
        });
        within
    }
}

impl Proxy {
    /// Starts a proxy for the server at this address, without faults.
    ///
    /// # Cancel safety
    /// Dropping the future starts no proxy.
    ///
    /// # Errors
    /// The system's error if no port is free.
    pub async fn start(server: SocketAddr) -> io::Result<Proxy> {
        let listener = TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let state = Arc::new(State {
            server,
            faults: [(); 2].map(|()| watch::Sender::new(LinkFaults::default())),
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

    /// The address to which clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Delays all later bytes by this time, in order.
    pub fn delay(&self, direction: Way, delay: Duration) {
        self.change(direction, |faults| faults.delay = delay);
    }

    /// Keeps all bytes back until [`heal`](Self::heal), like a partition that ends before TCP gives up.
    pub fn hold(&self, direction: Way) {
        self.change(direction, |faults| faults.held = true);
    }

    /// Loses all later bytes without a sign to client or server. In both directions this is a half-open connection.
    ///
    /// A connection that has lost bytes delivers no more in that direction, even after [`heal`](Self::heal), because
    /// TCP leaves no gaps. The receiver must give the connection up.
    pub fn swallow(&self, direction: Way) {
        self.change(direction, |faults| faults.swallowed = true);
    }

    /// Closes every connection. Also closes each new one at once, until [`heal`](Self::heal).
    pub fn refuse(&self) {
        self.state.refused.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Closes every connection. Later connections work.
    pub fn cut(&self) {
        for connection in self.state.connections.lock().drain(..) {
            connection.abort();
        }
    }

    /// Cuts a connection once: after the next `bytes` bytes, perhaps within a message.
    pub fn cut_after(&self, direction: Way, bytes: usize) {
        self.change(direction, |faults| faults.allowance = Some(bytes));
    }

    /// Ends all faults. Bytes that were kept back are delivered; lost bytes are not.
    pub fn heal(&self) {
        self.state.refused.store(false, Ordering::Relaxed);
        for direction in [Way::ToServer, Way::ToClient] {
            self.change(direction, |faults| *faults = LinkFaults::default());
        }
    }

    fn change(&self, direction: Way, change: impl FnOnce(&mut LinkFaults)) {
        self.state.faults(direction).send_modify(change);
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

/// Serves one connection, until both sides have closed it and all bytes are delivered, or until it is cut.
async fn serve(client: TcpStream, state: Arc<State>) {
    let Ok(server) = TcpStream::connect(state.server).await else {
        return;
    };
    // Without `nodelay` a small request would wait until an earlier one is acknowledged.
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let _ = tokio::try_join!(
        carry(from_client, to_server, &state, Way::ToServer),
        carry(from_server, to_client, &state, Way::ToClient),
    );
}

/// Error that ends both directions of a connection that is cut.
struct Cut;

/// Carries bytes in one direction until the sender closes, and then closes this direction to the receiver. The other
/// direction stays open.
async fn carry(from: OwnedReadHalf, to: OwnedWriteHalf, state: &State, direction: Way) -> Result<(), Cut> {
    let (send, arriving) = mpsc::unbounded_channel();
    tokio::try_join!(
        receive(from, send, state.faults(direction).subscribe()),
        deliver(arriving, to, state, direction),
    )?;
    Ok(())
}

/// The earliest time of delivery, and the bytes to deliver.
type DelayedBytes = (Instant, Vec<u8>);

async fn receive(
    mut from: OwnedReadHalf,
    send: mpsc::UnboundedSender<DelayedBytes>,
    mut faults: watch::Receiver<LinkFaults>,
) -> Result<(), Cut> {
    let mut bytes = vec![0; 64 << 10];
    let mut torn = false;
    while let Ok(count @ 1..) = from.read(&mut bytes).await {
        let LinkFaults { delay, swallowed, .. } = *faults.borrow();
        torn |= swallowed;
        if !torn {
            let parcel = (Instant::now() + delay, bytes[..count].to_vec());
            send.send(parcel).map_err(|_| Cut)?;
        }
    }
    if torn || faults.borrow().swallowed {
        // The receiver does not see the close while bytes are lost. Once the network heals it sees a cut connection.
        let _ = faults.wait_for(|faults| !faults.swallowed).await;
        return Err(Cut);
    }
    Ok(())
}

async fn deliver(
    mut arriving: mpsc::UnboundedReceiver<DelayedBytes>,
    mut to: OwnedWriteHalf,
    state: &State,
    direction: Way,
) -> Result<(), Cut> {
    let mut faults = state.faults(direction).subscribe();
    while let Some((at, bytes)) = arriving.recv().await {
        sleep_until(at).await;
        faults.wait_for(|faults| !faults.held).await.map_err(|_| Cut)?;
        let (count, last) = state.within_allowance(direction, bytes.len());
        to.write_all(&bytes[..count]).await.map_err(|_| Cut)?;
        if last {
            return Err(Cut);
        }
    }
    Ok(())
}
