//! Watches on a real server.

use crate::fixture::{client, node, reach, soon, start};
use tenure_servers::{Proxy, ZooKeeper};
use tenure_zookeeper::client::{Acl, Client, Code, Event, Mode, State, code};

/// The number of watches on nodes that the server has, as it says itself. It does not count those on children.
fn watches(server: &ZooKeeper) -> String {
    let answer = server.ask("wchs").expect("an answer");
    answer.lines().last().expect("a line").to_owned()
}

#[tokio::test]
async fn a_change_fires_the_watches_that_it_concerns() {
    let Some(server) = start() else { return };
    let [client, other] = [client(&server.url()).await, client(&server.url()).await];
    let (absent, mut created) = client.exists_watched("/a").await.expect("a reply");
    assert_eq!(absent, None);
    node(&other, "/a").await;
    assert_eq!(soon(created.fired()).await, Event::Created);
    let (_, _, mut set) = client.get_data_watched("/a").await.expect("data");
    other.set_data("/a", b"x", None).await.expect("it is set");
    assert_eq!(soon(set.fired()).await, Event::DataChanged);
    let (children, _, mut grown) = client.get_children_watched("/a").await.expect("children");
    assert!(children.is_empty());
    node(&other, "/a/b").await;
    assert_eq!(soon(grown.fired()).await, Event::ChildrenChanged);
    let (_, mut deleted) = client.exists_watched("/a/b").await.expect("a reply");
    let (_, _, mut emptied) = client.get_data_watched("/a/b").await.expect("data");
    other.delete("/a/b", None).await.expect("it is deleted");
    assert_eq!(soon(deleted.fired()).await, Event::Deleted);
    assert_eq!(soon(emptied.fired()).await, Event::Deleted);
}

#[tokio::test]
async fn a_watch_on_children_fires_on_delete_only() {
    let Some(server) = start() else { return };
    let [client, other] = [client(&server.url()).await, client(&server.url()).await];
    node(&other, "/leaf").await;
    let (_, _, mut leaf) = client.get_children_watched("/leaf").await.expect("children");
    other.set_data("/leaf", b"mark", None).await.expect("it is set");
    let (data, _) = client.get_data("/leaf").await.expect("data");
    // An event of the mark would have arrived before these data, and a watch fires once.
    assert_eq!(data, b"mark");
    other.delete("/leaf", None).await.expect("it is deleted");
    assert_eq!(soon(leaf.fired()).await, Event::Deleted);
}

#[tokio::test]
async fn reading_a_missing_node_leaves_no_watch() {
    let Some(server) = start() else { return };
    let client = client(&server.url()).await;
    let children = client.get_children_watched("/none").await.expect_err("no node");
    let data = client.get_data_watched("/none").await.expect_err("no node");
    assert_eq!([code(&children), code(&data)], [Some(Code::NO_NODE); 2]);
    assert_eq!(watches(&server), "Total watches:0");
}

#[tokio::test]
async fn all_waiters_of_a_node_are_woken() {
    let Some(server) = start() else { return };
    let [client, other] = [client(&server.url()).await, client(&server.url()).await];
    node(&other, "/a").await;
    let mut waiting = Vec::new();
    for _ in 0..100 {
        waiting.push(client.get_children_watched("/a").await.expect("children").2);
    }
    waiting.truncate(50);
    other.delete("/a", None).await.expect("it is deleted");
    for watch in &mut waiting {
        assert_eq!(soon(watch.fired()).await, Event::Deleted);
    }
}

#[tokio::test]
async fn a_reconnect_and_the_end_of_the_session_fire_all_watches() {
    let Some(server) = start() else { return };
    let proxy = Proxy::start(server.address()).await.expect("a proxy");
    let client = client(&format!("zookeeper://{}", proxy.address())).await;
    node(&client, "/a").await;
    let watch = async |client: &Client| {
        let (_, _, node) = client.get_data_watched("/a").await.expect("data");
        let (_, _, children) = client.get_children_watched("/a").await.expect("children");
        [
            node,
            children,
            client.exists_watched("/none").await.expect("a reply").1,
        ]
    };
    let mut watches = watch(&client).await;
    proxy.cut();
    for watch in &mut watches {
        assert_eq!(soon(watch.fired()).await, Event::Reconnected);
    }
    // The session has gone on, with its nodes.
    let own = client.create("/own", b"", Mode::Ephemeral, Acl::Open).await;
    own.expect("the session lives");
    let mut watches = watch(&client).await;
    client.close().await.expect("it is closed");
    for watch in &mut watches {
        assert_eq!(soon(watch.fired()).await, Event::SessionEnded);
    }
    reach(&client, State::Ended).await;
}
