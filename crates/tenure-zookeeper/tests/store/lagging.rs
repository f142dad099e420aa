//! A server that lags behind the leader.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::case::{Case, key, node_of, shared};
use futures_util::StreamExt as _;
use parking_lot::Mutex;
use tenure_backend::{Mode, RenewReply, RenewRequest};
use tenure_testkit::suite::Fixture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Numbers of requests.
const GET_DATA: i32 = 4;
const SYNC: i32 = 9;
const GET_CHILDREN: i32 = 12;

/// The length of a reply before its content: its number, the transaction, and the error.
const HEADER: usize = 16;

/// Reads a message without its length.
async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut message = vec![0; from.read_i32().await? as usize];
    from.read_exact(&mut message).await?;
    Ok(message)
}

async fn write(to: &mut (impl AsyncWrite + Unpin), message: &[u8]) -> io::Result<()> {
    to.write_i32(message.len() as i32).await?;
    to.write_all(message).await
}

/// The number at this position of a message.
fn number(message: &[u8], at: usize) -> i32 {
    i32::from_be_bytes(message[at..at + 4].try_into().expect("four bytes"))
}

/// How a server lags.
trait Lag: Send + Sync + 'static {
    /// What is remembered of a request until its reply.
    type Asked: Send;

    /// Returns something if the reply may have to be old.
    fn on_request(&self, request: &[u8]) -> Option<Self::Asked>;

    /// Makes the reply of a request that succeeded as old as it has to be.
    fn on_reply(&self, asked: Self::Asked, reply: &mut Vec<u8>);
}

/// Says that each node has the version 0, until the client asks the server to catch up.
#[derive(Default)]
struct OldVersions {
    has_caught_up: Mutex<bool>,
}

impl Lag for OldVersions {
    type Asked = ();

    fn on_request(&self, request: &[u8]) -> Option<()> {
        let mut has_caught_up = self.has_caught_up.lock();
        *has_caught_up |= number(request, 4) == SYNC;
        (number(request, 4) == GET_DATA && !*has_caught_up).then_some(())
    }

    fn on_reply(&self, (): (), reply: &mut Vec<u8>) {
        // The version comes after four numbers of eight bytes.
        let version = HEADER + 4 + number(reply, HEADER) as usize + 4 * 8;
        reply[version..version + 4].fill(0);
    }
}

/// While it `lags`, tells of the children that each node had before.
#[derive(Default)]
struct OldChildren {
    lags: Mutex<bool>,
    known: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
}

impl Lag for OldChildren {
    /// The path of the node.
    type Asked = Vec<u8>;

    fn on_request(&self, request: &[u8]) -> Option<Vec<u8>> {
        let is_for_children = number(request, 4) == GET_CHILDREN;
        is_for_children.then(|| request[12..12 + number(request, 8) as usize].to_vec())
    }

    fn on_reply(&self, path: Vec<u8>, reply: &mut Vec<u8>) {
        let mut known = self.known.lock();
        match known.get(&path) {
            Some(before) if *self.lags.lock() => {
                reply.truncate(HEADER);
                reply.extend(before);
            }
            _ => _ = known.insert(path, reply[HEADER..].to_vec()),
        }
    }
}

/// What is remembered of the requests of one connection, by their numbers.
type Asked<L> = Mutex<HashMap<i32, <L as Lag>::Asked>>;

async fn carry_requests<L: Lag>(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (lag, asked): (&L, &Asked<L>),
) -> io::Result<Infallible> {
    // The first message opens the session.
    write(&mut to, &read(&mut from).await?).await?;
    loop {
        let request = read(&mut from).await?;
        if let Some(about) = lag.on_request(&request) {
            asked.lock().insert(number(&request, 0), about);
        }
        write(&mut to, &request).await?;
    }
}

async fn carry_replies<L: Lag>(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    (lag, asked): (&L, &Asked<L>),
) -> io::Result<Infallible> {
    write(&mut to, &read(&mut from).await?).await?;
    loop {
        let mut reply = read(&mut from).await?;
        let about = asked.lock().remove(&number(&reply, 0));
        if let Some(about) = about.filter(|_| number(&reply, 12) == 0) {
            lag.on_reply(about, &mut reply);
        }
        write(&mut to, &reply).await?;
    }
}

/// A case whose clients connect to a server that lags.
async fn through(case: &Case, lag: Arc<impl Lag>) -> Case {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let via = vec![listener.local_addr().expect("an address")];
    let server = case.server.lock().address();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, server, lag.clone()));
        }
    });
    Case { via, ..case.clone() }
}

/// Carries the messages of a connection.
async fn relay<L: Lag>(client: TcpStream, server: SocketAddr, lag: Arc<L>) -> io::Result<Infallible> {
    let asked = Asked::<L>::default();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
    tokio::select! {
        ended = carry_requests(from_client, to_server, (&*lag, &asked)) => ended,
        ended = carry_replies(from_server, to_client, (&*lag, &asked)) => ended,
    }
}

/// A polite request to revoke changes the version of the node, and the next check is refused.
#[tokio::test]
async fn a_server_that_lags_behind_fails_no_renewal() {
    let case = shared().await;
    let through = through(&case, Arc::new(OldVersions::default())).await;
    let (client, raw) = (Fixture::new(through).await.client().await, case.raw().await);
    let claim = client.claim(&key("k"), Mode::Exclusive);
    let node = node_of(&client, &claim).await.path;
    raw.set_data(&node, b"__REVOKE__", None)
        .await
        .expect("it is written");
    let renewal = [RenewRequest::of(&claim)].into_iter().collect();
    let reply = client.backend().clone().renew(renewal).await.pop();
    assert!(matches!(reply, Some(RenewReply::Alive { .. })), "{reply:?}");
}

/// After a wake-up, the client may connect to a server that does not know of the change yet. Its poll finds the node before the
/// claim once more, and the claim must not wait for another change of that node.
#[tokio::test]
async fn a_poll_of_a_server_that_lags_behind_costs_no_wake_up() {
    let case = shared().await;
    let lag = Arc::new(OldChildren::default());
    let far = Fixture::new(through(&case, lag.clone()).await).await;
    let (holder, waiter) = (Fixture::new(case).await.client().await, far.client().await);
    let held = holder.holds(&key("k"), Mode::Exclusive).await;
    let claim = waiter.fair(&key("k"), Mode::Exclusive);
    waiter.waits(&claim).await;
    let mut wakes = waiter.watch(&claim).await.expect("ZooKeeper wakes waiters");
    holder.release(&held).await.freed_it(&held);
    for poll in 0..3 {
        let woken = tokio::time::timeout(Duration::from_secs(10), wakes.next()).await;
        woken.unwrap_or_else(|_| panic!("not woken after {poll} polls"));
        *lag.lags.lock() = poll < 2;
        match poll {
            0 | 1 => _ = waiter.waits(&claim).await,
            _ => _ = waiter.granted(&claim).await,
        }
    }
}
