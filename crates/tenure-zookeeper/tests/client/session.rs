//! Sessions: reconnects, the end, hosts that do not answer, and the effects of lost replies.

use std::time::{Duration, Instant};

use crate::fixture::{SESSION, SOON, assert_error, client, config, node, reach, soon, start, start_ensemble};
use tenure_backend::{Effect, Fault};
use tenure_servers::{Port, Proxy, Way};
use tenure_zookeeper::client::{Acl, Client, Event, Mode, State, is_session_end};

#[tokio::test]
async fn the_server_limits_the_session_timeout() {
    let Some(server) = start() else { return };
    for (asked, granted) in [(100, 1000), (3000, 3000), (60_000, 10_000)] {
        let asked = Duration::from_millis(asked);
        let client = Client::connect(config(&server.url()), asked)
            .await
            .expect("a session");
        assert_eq!(client.info().borrow().timeout, Duration::from_millis(granted));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_moves_to_another_server() {
    let Some(mut ensemble) = start_ensemble().await else {
        return;
    };
    let client = client(&ensemble.url()).await;
    let own = client
        .create("/own", b"", Mode::Ephemeral, Acl::Open)
        .await
        .expect("a node");
    let first = client.info().borrow().clone();
    let addresses: Vec<_> = ensemble
        .servers()
        .iter()
        .map(|server| server.address().to_string())
        .collect();
    let number = addresses
        .iter()
        .position(|address| *address == first.server)
        .expect("a server");
    let (_, _, mut watch) = client.get_children_watched("/own").await.expect("children");
    ensemble.server_mut(number).process().kill();
    assert_eq!(soon(watch.fired()).await, Event::Reconnected);
    let second = client.info().borrow().clone();
    assert_eq!(second.id, first.id);
    assert_ne!(second.server, first.server);
    let kept = client
        .exists("/own")
        .await
        .expect("a reply")
        .expect("the node is kept");
    assert_eq!((kept.czxid, kept.ephemeral_owner), (own.czxid, first.id));
}

#[tokio::test]
async fn an_expired_session_is_an_event() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let url = format!("zookeeper://{}", proxy.address());
    let client = Client::connect(config(&url), Duration::from_secs(4))
        .await
        .expect("a session");
    client
        .create("/own", b"", Mode::Ephemeral, Acl::Open)
        .await
        .expect("a node");
    let (_, _, mut watch) = client.get_children_watched("/").await.expect("children");
    let other = crate::fixture::client(&server.url()).await;
    let (_, mut deleted) = other.exists_watched("/own").await.expect("a reply");
    proxy.refuse();
    reach(&client, State::Disconnected).await;
    assert_eq!(soon(deleted.fired()).await, Event::Deleted);
    proxy.heal();
    reach(&client, State::Ended).await;
    assert_eq!(soon(watch.fired()).await, Event::SessionEnded);
    let ended = client.exists("/").await.expect_err("it has ended");
    assert!(is_session_end(&ended), "{ended:?}");
}

#[tokio::test]
async fn an_idle_session_is_kept_alive() {
    let Some(server) = start() else { return };
    let client = Client::connect(config(&server.url()), Duration::from_secs(4))
        .await
        .expect("a session");
    client
        .create("/own", b"", Mode::Ephemeral, Acl::Open)
        .await
        .expect("a node");
    // sleep: the test is about a time without any request.
    tokio::time::sleep(Duration::from_secs(8)).await;
    let info = client.info().borrow().clone();
    assert_eq!(info.state, State::Connected);
    let kept = client
        .exists("/own")
        .await
        .expect("a reply")
        .expect("the node is kept");
    assert_eq!(kept.ephemeral_owner, info.id);
}

#[tokio::test]
async fn a_silent_server_is_left() {
    let Some(server) = start() else { return };
    let [silent, other] = [
        Proxy::start(server.address()).await.expect("a proxy"),
        Proxy::start(server.address()).await.expect("a proxy"),
    ];
    let hosts = format!("{},{}", silent.address(), other.address());
    let client = client(&format!("zookeeper://{hosts}?connect_timeout=10s")).await;
    let before = client.info().borrow().clone();
    silent.swallow(Way::ToClient);
    silent.swallow(Way::ToServer);
    let (mut info, started) = (client.info(), Instant::now());
    let moves = soon(info.wait_for(|info| info.server != before.server));
    // Without the request, the client notices the silence at its next ping.
    let (_, moved) = tokio::join!(client.exists("/"), moves);
    let moved = moved.expect("a state").clone();
    assert_eq!((moved.id, moved.state), (before.id, State::Connected));
    // Another attempt at the silent server would take its share of the time limit, 5 s.
    assert!(started.elapsed() < SESSION / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn hosts_that_do_not_serve_are_passed_over() {
    let Some(mut server) = start() else { return };
    let closed = Port::reserve().expect("a port");
    // It accepts connections and never answers.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = listener.local_addr().expect("an address");
    let hosts = format!("{},{silent},{}", closed.address(), server.address());
    let started = Instant::now();
    let client = client(&format!("zookeeper://{hosts}?connect_timeout=9s")).await;
    assert!(
        started.elapsed() >= Duration::from_millis(400),
        "{:?}",
        started.elapsed()
    );
    let used = client.info().borrow().server.clone();
    assert_eq!(used, server.address().to_string());
    server.process().pause();
    let url = format!("zookeeper://{}?connect_timeout=300ms", server.address());
    let unanswered = Client::connect(config(&url), SESSION).await.map(drop);
    assert_error(
        &unanswered.expect_err("it is paused"),
        (Fault::Unavailable, Effect::None),
        "300ms",
    );
    server.process().resume();
}

#[tokio::test]
async fn a_lost_reply_leaves_the_effect_of_changes_open() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let client = client(&format!("zookeeper://{}?command_timeout=5s", proxy.address())).await;
    node(&client, "/a").await;
    // The replies are kept back, and then lost with the connection.
    proxy.hold(Way::ToClient);
    let [writer, reader] = [client.clone(), client.clone()];
    let write = tokio::spawn(async move { writer.set_data("/a", b"x", None).await });
    let read = tokio::spawn(async move { reader.get_data("/a").await });
    let other = crate::fixture::client(&server.url()).await;
    let end = Instant::now() + SOON;
    while other.get_data("/a").await.expect("data").1.version == 0 {
        assert!(Instant::now() < end, "the write does not arrive");
    }
    proxy.heal();
    proxy.cut();
    // The reply may have overtaken the cut.
    if let Err(lost) = write.await.expect("no panic") {
        assert_eq!(
            (lost.fault(), lost.effect()),
            (Fault::Unavailable, Effect::Unknown),
            "{lost:?}"
        );
    }
    if let Err(lost) = read.await.expect("no panic") {
        assert_eq!(
            (lost.fault(), lost.effect()),
            (Fault::Unavailable, Effect::None),
            "{lost:?}"
        );
    }
}

#[tokio::test]
async fn requests_wait_for_a_connection() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let client = client(&format!("zookeeper://{}?command_timeout=4s", proxy.address())).await;
    proxy.refuse();
    reach(&client, State::Disconnected).await;
    let unsent = client.create("/a", b"", Mode::Persistent, Acl::Open).await;
    assert_error(
        &unsent.expect_err("no server"),
        (Fault::Unavailable, Effect::None),
        "could be reached",
    );
    let waiting = tokio::spawn({
        let client = client.clone();
        async move { client.create("/b", b"", Mode::Persistent, Acl::Open).await }
    });
    proxy.heal();
    waiting
        .await
        .expect("no panic")
        .expect("it is sent after the reconnect");
    assert_eq!(client.exists("/a").await.expect("a reply"), None);
}

#[tokio::test]
async fn an_unanswered_request_has_an_open_effect() {
    let Some(mut server) = start() else { return };
    let client = client(&format!("{}?command_timeout=300ms", server.url())).await;
    server.process().pause();
    let change = client.create("/a", b"", Mode::Persistent, Acl::Open).await;
    assert_error(
        &change.expect_err("paused"),
        (Fault::Unavailable, Effect::Unknown),
        "within 300ms",
    );
    let read = client.exists("/a").await;
    assert_error(
        &read.expect_err("paused"),
        (Fault::Unavailable, Effect::None),
        "within 300ms",
    );
    server.process().resume();
}

#[tokio::test]
async fn closing_ends_a_session_without_a_server() {
    let Some(mut server) = start() else { return };
    let client = client(&format!("{}?command_timeout=300ms", server.url())).await;
    server.process().kill();
    reach(&client, State::Disconnected).await;
    let unsent = client.close().await;
    assert_error(
        &unsent.expect_err("no server"),
        (Fault::Unavailable, Effect::None),
        "could be reached",
    );
    reach(&client, State::Ended).await;
}
