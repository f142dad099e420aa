//! A server that lags behind the leader until the client asks it to catch up.

use std::collections::HashSet;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;

use crate::case::{Case, key, node_of, shared};
use parking_lot::Mutex;
use tenure_backend::{Mode, RenewReply, RenewRequest};
use tenure_testkit::suite::Fixture;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// Numbers of the requests `getData` and `sync`.
const GET_DATA: i32 = 4;
const SYNC: i32 = 9;

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

/// Makes the reply to a `getData` say that the node has the version 0.
fn make_old(reply: &mut [u8]) {
    const HEADER: usize = 16;
    // The version comes after four numbers of eight bytes.
    let version = HEADER + 4 + number(reply, HEADER) as usize + 4 * 8;
    reply[version..version + 4].fill(0);
}

/// The numbers of `getData` requests whose replies are to be old.
type Old = Mutex<HashSet<i32>>;

async fn carry_requests(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    old: &Old,
) -> io::Result<Infallible> {
    // The first message opens the session.
    write(&mut to, &read(&mut from).await?).await?;
    let mut lags = true;
    loop {
        let request = read(&mut from).await?;
        match number(&request, 4) {
            SYNC => lags = false,
            GET_DATA if lags => _ = old.lock().insert(number(&request, 0)),
            _ => {}
        }
        write(&mut to, &request).await?;
    }
}

async fn carry_replies(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, old: &Old) -> io::Result<Infallible> {
    write(&mut to, &read(&mut from).await?).await?;
    loop {
        let mut reply = read(&mut from).await?;
        let is_found = number(&reply, 12) == 0;
        if old.lock().remove(&number(&reply, 0)) && is_found {
            make_old(&mut reply);
        }
        write(&mut to, &reply).await?;
    }
}

/// Carries the messages of a connection. Before the first `sync`, the replies to `getData` are old.
async fn relay(client: TcpStream, server: SocketAddr) -> io::Result<Infallible> {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = TcpStream::connect(server).await?.into_split();
    let old = Old::default();
    tokio::select! {
        ended = carry_requests(from_client, to_server, &old) => ended,
        ended = carry_replies(from_server, to_client, &old) => ended,
    }
}

/// A polite request to revoke changes the version of the node, and the next check is refused.
#[tokio::test]
async fn a_server_that_lags_behind_fails_no_renewal() {
    let case = shared().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let server = case.server.lock().address();
    let through = Case {
        via: vec![listener.local_addr().expect("an address")],
        ..case.clone()
    };
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            tokio::spawn(relay(client, server));
        }
    });
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
