//! The proxy does what a bad network does, and nothing else.

use std::time::Duration;

use tenure_servers::{Proxy, Way};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout};

const SOON: Duration = Duration::from_secs(10);
const MOMENT: Duration = Duration::from_millis(100);

/// A proxy, a client that is connected through it, and the server's end of that with its listener.
async fn pair() -> (Proxy, TcpStream, TcpStream, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let proxy = Proxy::start(listener.local_addr().unwrap()).await.unwrap();
    let client = TcpStream::connect(proxy.address()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    (proxy, client, server, listener)
}

/// A proxy in front of a server that sends back what it gets, and a client of it.
async fn scene() -> (Proxy, TcpStream) {
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

/// Sends over the connection, and expects that to come back; `None` stands for silence.
async fn echo(client: &mut TcpStream, sent: &[u8], back: Option<&[u8]>) {
    client.write_all(sent).await.unwrap();
    let limit = if back.is_some() { SOON } else { MOMENT };
    assert_eq!(heard(client, limit).await.as_deref(), back, "for {sent:?}");
}

/// The same over a new connection.
async fn echo_anew(proxy: &Proxy, sent: &[u8], back: Option<&[u8]>) {
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    echo(&mut client, sent, back).await;
}

/// What comes back within the limit; `None` if nothing does.
async fn heard(client: &mut TcpStream, limit: Duration) -> Option<Vec<u8>> {
    let mut bytes = [0; 64];
    let count = timeout(limit, client.read(&mut bytes)).await.ok()?.unwrap_or(0);
    Some(bytes[..count].to_vec())
}

#[tokio::test]
async fn delayed_bytes_arrive_later_and_do_not_add_their_delays_up() {
    let (proxy, mut client) = scene().await;
    proxy.delay(Way::ToServer, MOMENT);
    let start = Instant::now();
    for _ in 0..20 {
        client.write_all(b"x").await.unwrap();
        // sleep: so that each byte travels by itself.
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
        let (proxy, mut client) = scene().await;
        proxy.hold(way);
        echo(&mut client, b"one", None).await;
        proxy.heal();
        assert_eq!(heard(&mut client, SOON).await.unwrap(), b"one");
    }
}

#[tokio::test]
async fn a_connection_that_lost_bytes_stays_open_and_silent_for_ever() {
    for way in [Way::ToServer, Way::ToClient] {
        let (proxy, mut client) = scene().await;
        proxy.swallow(way);
        echo(&mut client, b"one", None).await;
        proxy.heal();
        // There is a gap in the stream.
        echo(&mut client, b"two", None).await;
        echo_anew(&proxy, b"three", Some(b"three")).await;
    }
}

#[tokio::test]
async fn one_way_can_be_silent_while_the_other_is_not() {
    let (proxy, mut client, mut server, _listener) = pair().await;
    proxy.swallow(Way::ToClient);
    client.write_all(b"asked").await.unwrap();
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"asked");
    server.write_all(b"answered").await.unwrap();
    assert_eq!(heard(&mut client, MOMENT).await, None);
}

#[tokio::test]
async fn nobody_hears_through_silence_that_the_other_side_has_closed() {
    let (proxy, client, mut server, _listener) = pair().await;
    proxy.swallow(Way::ToServer);
    drop(client);
    assert_eq!(heard(&mut server, MOMENT).await, None);
    proxy.heal();
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"");
}

#[tokio::test]
async fn what_was_sent_before_a_close_still_arrives_and_then_the_close() {
    let (proxy, mut client, mut server, _listener) = pair().await;
    proxy.delay(Way::ToServer, MOMENT);
    client.write_all(b"last words").await.unwrap();
    drop(client);
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"last words");
    assert_eq!(heard(&mut server, SOON).await.unwrap(), b"");
}

#[tokio::test]
async fn a_connection_is_cut_behind_the_byte_that_was_named_and_only_once() {
    let (proxy, mut client) = scene().await;
    proxy.cut_after(Way::ToClient, 5);
    echo(&mut client, b"one", Some(b"one")).await;
    echo(&mut client, b"two", Some(b"tw")).await;
    assert_eq!(heard(&mut client, SOON).await.unwrap(), b"");
    echo_anew(&proxy, b"a whole answer", Some(b"a whole answer")).await;
}

#[tokio::test]
async fn a_cut_ends_the_connections_there_are_and_a_refusal_those_that_come() {
    let (proxy, mut client) = scene().await;
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
    echo_anew(&proxy, b"three", Some(b"three")).await;
}
