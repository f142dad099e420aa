//! The proxy simulates each fault, and nothing else.

use std::time::Duration;

use tenure_servers::{Proxy, Way};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(100);

/// A proxy, a client connected through it, the server's end of this connection, and the server's listener.
async fn pair() -> (Proxy, TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (proxy, client, server, listener)
}

/// A proxy in front of an echo server, and a client of the proxy.
async fn echo_server() -> (Proxy, TcpStream) {
    let (proxy, client, mut server, listener) = pair().await;
    tokio::spawn(async move {
        loop {
            tokio::spawn(async move {
                let (mut from, mut to) = server.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
            });
            server = listener.accept().await.unwrap().0;
        }
    });
    (proxy, client)
}

/// Sends bytes and expects `back` within 10 s; for `None` expects silence for 100 ms.
async fn echo(client: &mut TcpStream, sent: &[u8], back: Option<&[u8]>) {
    client.write_all(sent).await.unwrap();
    let limit = if back.is_some() { SOON } else { MOMENT };
    assert_eq!(heard(client, limit).await.as_deref(), back, "for {sent:?}");
}

async fn echo_over_new_connection(proxy: &Proxy, sent: &[u8], back: Option<&[u8]>) {
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    echo(&mut client, sent, back).await;
}

/// The bytes that arrive within `limit`; `None` if none arrive.
async fn heard(client: &mut TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    let count = timeout(limit, client.read(&mut bytes)).await.ok()?.unwrap_or(0);
    Some(bytes[..count].to_vec())
}

#[tokio::test]
async fn delays_of_several_bytes_do_not_add_up() {
    let (proxy, mut client) = echo_server().await;
    proxy.delay(Way::ToServer, MOMENT);
    let start = Instant::now();
    for _ in 0..20 {
        client.write_all(b"x").await.unwrap();
        // sleep: separates the bytes, so that each travels in a packet of its own.
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let mut back = [0; 20];
    timeout(SOON, client.read_exact(&mut back))
        .await
        .unwrap()
        .unwrap();
    assert!(
        start.elapsed() >= MOMENT && start.elapsed() < 10 * MOMENT,
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn held_bytes_arrive_when_the_network_heals() {
    for way in [Way::ToServer, Way::ToClient] {
        let (proxy, mut client) = echo_server().await;
        proxy.hold(way);
        echo(&mut client, b"one", None).await;
        proxy.heal();
        assert_eq!(heard(&mut client, SOON).await.unwrap(), b"one");
    }
}

#[tokio::test]
async fn a_connection_that_lost_bytes_stays_open_and_silent_for_ever() {
    for way in [Way::ToServer, Way::ToClient] {
        let (proxy, mut client) = echo_server().await;
        proxy.swallow(way);
        echo(&mut client, b"one", None).await;
        proxy.heal();
        // `one` was lost, so nothing after it can be delivered on this connection.
        echo(&mut client, b"two", None).await;
        echo_over_new_connection(&proxy, b"three", Some(b"three")).await;
    }
}

#[tokio::test]
async fn one_direction_can_be_silent_alone() {
    let (proxy, mut client, mut server, _listener) = pair().await;
    proxy.swallow(Way::ToClient);
    client.write_all(b"asked").await.unwrap();
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"asked");
    server.write_all(b"answered").await.unwrap();
    assert_eq!(heard(&mut client, MOMENT).await, None);
}

#[tokio::test]
async fn a_close_is_not_delivered_while_bytes_are_lost() {
    let (proxy, client, mut server, _listener) = pair().await;
    proxy.swallow(Way::ToServer);
    drop(client);
    assert_eq!(heard(&mut server, MOMENT).await, None);
    proxy.heal();
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"");
}

#[tokio::test]
async fn bytes_sent_before_a_close_arrive_before_it() {
    let (proxy, mut client, mut server, _listener) = pair().await;
    proxy.delay(Way::ToServer, MOMENT);
    client.write_all(b"last words").await.unwrap();
    drop(client);
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"last words");
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"");
}

#[tokio::test]
async fn a_connection_is_cut_once_after_the_given_byte() {
    let (proxy, mut client) = echo_server().await;
    proxy.cut_after(Way::ToClient, 5);
    echo(&mut client, b"one", Some(b"one")).await;
    echo(&mut client, b"two", Some(b"tw")).await;
    assert_eq!(heard(&mut client, SOON).await.unwrap(), b"");
    echo_over_new_connection(&proxy, b"a whole answer", Some(b"a whole answer")).await;
}

#[tokio::test]
async fn cut_ends_present_connections_and_refuse_new_ones() {
    let (proxy, mut client) = echo_server().await;
    echo(&mut client, b"one", Some(b"one")).await;
    proxy.cut();
    assert_eq!(heard(&mut client, SOON).await.unwrap(), b"");
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    echo(&mut client, b"two", Some(b"two")).await;
    proxy.refuse();
    assert_eq!(heard(&mut client, SOON).await.unwrap(), b"");
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    assert_eq!(heard(&mut client, SOON).await.unwrap(), b"");
    proxy.heal();
    echo_over_new_connection(&proxy, b"three", Some(b"three")).await;
}
