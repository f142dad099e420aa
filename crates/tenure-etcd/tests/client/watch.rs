//! Watches, and the stream that they share.

use std::time::Duration;

use crate::fixture::{assert_error, client, created, put, soon, start, watch};
use tenure_backend::{Effect, Fault};
use tenure_etcd::client::{
    DELETE_RANGE, DeleteRangeRequest, Empty, Event, NO_PUT, PUT, STATUS, Watch, WatchCreateRequest,
    WatchResponse, range_of_prefix,
};
use tenure_servers::{Data, Etcd, Proxy, Way};

/// The metrics that count the streams and watches of all clients.
const STREAMS: &str = "etcd_debugging_mvcc_watch_stream_total";
const WATCHES: &str = "etcd_debugging_mvcc_watcher_total";

/// Waits until one of the member's metrics has a value.
async fn wait_for_metric(etcd: &Etcd, name: &str, value: f64) {
    let reached = async {
        while etcd.metric(name).expect("a metric") != value {
            // sleep: metrics send no event.
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    soon(reached).await;
}

/// The events of the next update.
async fn events(watch: &mut Watch) -> Vec<Event> {
    let update = soon(watch.next()).await.expect("an update");
    assert!(!update.created, "{update:?}");
    update.events
}

/// The key of an event, and whether it was written.
fn event(event: &Event) -> (&[u8], bool) {
    let key = &event.kv.as_ref().expect("a key").key;
    (key, !event.is_deletion)
}

#[tokio::test]
async fn a_watch_reports_its_creation_then_each_change() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let before = client
        .call(PUT, put("k", "1"))
        .await
        .expect("it is written")
        .header;
    let mut watch = watch(&client, "k");
    let first = soon(watch.next()).await.expect("an update");
    assert!(first.created, "{first:?}");
    assert_eq!(first.header.revision, before.revision);
    let write = client
        .call(PUT, put("k", "2"))
        .await
        .expect("it is written")
        .header;
    client.call(PUT, put("other", "3")).await.expect("it is written");
    let first = events(&mut watch).await;
    assert_eq!(first.len(), 1);
    let kv = first[0].kv.as_ref().expect("a key");
    assert_eq!((&*kv.value, kv.mod_revision), (&b"2"[..], write.revision));
    let delete = DeleteRangeRequest { key: "k".into() };
    client.call(DELETE_RANGE, delete).await.expect("it is deleted");
    assert_eq!(event(&events(&mut watch).await[0]), (&b"k"[..], false));
}

#[tokio::test]
async fn a_filtered_watch_reports_deletions_alone() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let (key, range_end) = range_of_prefix("k/");
    let mut watch = client.watch(WatchCreateRequest {
        key,
        range_end,
        filters: vec![NO_PUT],
        ..WatchCreateRequest::default()
    });
    assert!(matches!(
        soon(watch.next()).await,
        Ok(WatchResponse { created: true, .. })
    ));
    for key in ["k/1", "k/2"] {
        client.call(PUT, put(key, "")).await.expect("it is written");
    }
    let delete = DeleteRangeRequest { key: "k/2".into() };
    client.call(DELETE_RANGE, delete).await.expect("it is deleted");
    assert_eq!(event(&events(&mut watch).await[0]), (&b"k/2"[..], false));
}

#[tokio::test]
async fn many_watches_share_a_stream_until_they_are_dropped() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let mut watches: Vec<Watch> = (0..50)
        .map(|number| watch(&client, &format!("k{number}")))
        .collect();
    for watch in &mut watches {
        assert!(matches!(
            soon(watch.next()).await,
            Ok(WatchResponse { created: true, .. })
        ));
    }
    client.call(PUT, put("k7", "")).await.expect("it is written");
    assert_eq!(event(&events(&mut watches[7]).await[0]), (&b"k7"[..], true));
    wait_for_metric(&etcd, STREAMS, 1.0).await;
    wait_for_metric(&etcd, WATCHES, 50.0).await;
    watches.truncate(1);
    wait_for_metric(&etcd, WATCHES, 1.0).await;
    // The stream ends with the client and its last watch.
    drop(client);
    drop(watches);
    wait_for_metric(&etcd, STREAMS, 0.0).await;
}

/// More requests wait than fit into the buffers of the connection.
#[tokio::test]
async fn ten_thousand_watches_outlast_a_slow_connection() {
    let Some(etcd) = start(&[]) else { return };
    let proxy = Proxy::start(etcd.address()).await.expect("a port is free");
    let client = client(&format!("etcd://{}/", proxy.address()));
    let mut first = created(&client, "k").await;
    proxy.hold(Way::ToServer);
    let mut watches: Vec<Watch> = (0..10_000).map(|_| watch(&client, "k")).collect();
    // Lets the client queue all requests.
    let silent = tokio::time::timeout(Duration::from_millis(300), first.next()).await;
    assert!(silent.is_err(), "{silent:?}");
    proxy.heal();
    for watch in &mut watches {
        assert!(matches!(
            soon(watch.next()).await,
            Ok(WatchResponse { created: true, .. })
        ));
    }
}

#[tokio::test]
async fn a_slow_reader_loses_its_own_watch_alone() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let mut slow = created(&client, "k").await;
    let mut quick = created(&client, "k").await;
    for _ in 0..100 {
        client.call(PUT, put("k", "")).await.expect("it is written");
        assert_eq!(events(&mut quick).await.len(), 1);
    }
    for _ in 0..64 {
        assert_eq!(events(&mut slow).await.len(), 1);
    }
    let ended = soon(slow.next()).await.expect_err("it was too slow");
    assert_error(&ended, (Fault::Unavailable, Effect::None), "open it again");
    wait_for_metric(&etcd, WATCHES, 1.0).await;
}

#[tokio::test]
async fn a_killed_member_ends_all_watches() {
    let Some(mut etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let mut watches = [created(&client, "j").await, created(&client, "k").await];
    etcd.process().kill();
    for watch in &mut watches {
        let ended = soon(watch.next()).await.expect_err("it is killed");
        assert_error(
            &ended,
            (Fault::Unavailable, Effect::Unknown),
            "the connection broke",
        );
    }
    let refused = soon(watch(&client, "k").next()).await.expect_err("it is down");
    assert_error(&refused, (Fault::Unavailable, Effect::None), "cannot be reached");
    etcd.restart(Data::Kept).expect("it starts again");
    created(&client, "k").await;
}

#[tokio::test]
async fn a_closed_client_refuses_calls_and_watches() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&etcd.url());
    let mut before = created(&client, "k").await;
    client.close();
    let refused = client.call(STATUS, Empty {}).await.expect_err("it is closed");
    assert_error(&refused, (Fault::Closed, Effect::None), "was closed");
    let refused = soon(watch(&client, "k").next()).await.expect_err("it is closed");
    assert_error(&refused, (Fault::Closed, Effect::None), "was closed");
    etcd.ask(&["put", "k", "v"]).expect("it is written");
    assert_eq!(events(&mut before).await.len(), 1);
}
