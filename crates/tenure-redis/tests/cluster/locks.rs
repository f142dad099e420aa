//! Locks in a real cluster: masters that die, wake-ups, batches and listings over several nodes, and refusals.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tenure_backend::{
    Effect, Fault, FencingToken, Finding, HolderId, Invalidation, LockKey, Mode, Phase, RenewReply,
    RenewRequest, Severity, TokenRange,
};
use tenure_servers::{Data, SteppedClock};

/// Redisson subscribes to sharded channels, and publishes there, if the cluster has them.
#[tokio::test(flavor = "multi_thread")]
async fn messages_travel_on_redissons_sharded_channel() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let waiting = client.claim(&key, Mode::Exclusive);
    let mut wakes = client.watch(&waiting).await.expect("it wakes");
    wait_for_wake(&mut wakes).await;
    assert_eq!(cluster.ask(&key, &["SPUBLISH", &channel(&key), "0"]), "1");
    wait_for_wake(&mut wakes).await;
    drop(wakes);
    let (_, owner, _) = cluster.place(&key);
    let address = cluster.servers.lock().nodes()[owner].address();
    let java = TcpStream::connect(address).expect("it listens");
    java.set_read_timeout(Some(Duration::from_secs(10)))
        .expect("a limit");
    writeln!(&java, "SSUBSCRIBE {}\r", channel(&key)).expect("it is connected");
    let mut lines = BufReader::new(java)
        .lines()
        .map(|line| line.expect("it is connected"));
    assert!(lines.any(|line| line == "ssubscribe"));
    let held = hold(&client, &key).await;
    client.release(&held).await.freed_it(&held);
    assert!(lines.any(|line| line == "smessage"));
    let said: Vec<_> = lines.take(4).collect();
    assert_eq!((&*said[1], &*said[3]), (&*channel(&key), "0"));
}

#[tokio::test(flavor = "multi_thread")]
async fn waiters_are_woken_without_sharded_channels() {
    let (cluster, store) = Cluster::start().with_clients().await;
    cluster.ask_all(&["ACL", "SETUSER", "tenure", "-pubsub|shardnumsub"]);
    let ([holder, waiter], key) = (store.two().await, store.key());
    let held = hold(&holder, &key).await;
    let waiting = waiter.claim(&key, Mode::Exclusive);
    let mut wakes = waiter.watch(&waiting).await.expect("it wakes");
    wait_for_wake(&mut wakes).await;
    assert!(
        cluster
            .ask(&key, &["PUBSUB", "NUMSUB", &channel(&key)])
            .ends_with('1')
    );
    holder.release(&held).await.freed_it(&held);
    wait_for_wake(&mut wakes).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn batches_are_split_by_slot() {
    let mut cluster = Cluster::start();
    cluster.batches = true;
    let (cluster, store) = cluster.with_clients().await;
    let client = store.client().await;
    let backend = client.backend();
    // Of each three keys in a row, two have the same hash tag, and so the same slot.
    let keys: Vec<_> = (0..300)
        .map(|number| LockKey::new(format!("{{{}}}:{number}", number * 2 / 3)).expect("a key"))
        .collect();
    let claims: Vec<_> = keys
        .iter()
        .map(|key| client.claim(key, Mode::Exclusive))
        .collect();
    for reply in join_all(claims.iter().map(|claim| acquire(backend, claim))).await {
        assert!(is_granted(&reply), "{reply:?}");
    }
    for slot in 0..10 {
        let (slot, _, to) = cluster.place(&keys[slot * 30]);
        cluster.servers.lock().move_slot(slot, to).expect("it moves");
    }
    let renewals = claims.iter().map(|claim| RenewRequest::of(claim)).collect();
    for reply in client.send_renewals(renewals).await {
        assert!(matches!(reply, RenewReply::Alive { .. }), "{reply:?}");
    }
    join_all(
        claims
            .iter()
            .map(async |claim| client.release(claim).await.freed_it(claim)),
    )
    .await;
    let servers = cluster.servers.lock();
    for node in servers.nodes() {
        let left = node.ask(&["KEYS", "*"]).expect("it answers");
        let is_ours = |key: &str| key.starts_with("tenure_tokens:{") || key.starts_with("tenure_client:");
        assert!(left.lines().all(is_ours), "{left}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_takes_over_held_locks() {
    let (cluster, store) = Cluster::replicated().with_clients().await;
    let ([holder, waiter], key) = (store.two().await, store.key());
    let held = hold(&holder, &key).await;
    let queued = enqueue(&waiter, &key).await;
    let first = holder.granted(&held).await;
    let mut invalidations = holder
        .backend()
        .clone()
        .invalidations(held.at.id.client())
        .expect("it tells");
    assert_eq!(
        invalidations.next().await,
        Some(Invalidation::All),
        "it has subscribed"
    );
    let (slot, master, _) = cluster.place(&key);
    {
        let mut servers = cluster.servers.lock();
        // `WAIT` waits for what its own connection has written, and so for all that came before.
        let written = ["SET", &format!("{{{key}}}:written"), "1"];
        let waited = servers.nodes()[master].ask_in_turn(&[&written, &["WAIT", "1", "5000"]]);
        assert_eq!(waited.expect("it answers"), "1");
        servers.node_mut(master).process().kill();
    }
    tokio::time::timeout(Duration::from_secs(30), invalidations.next())
        .await
        .expect("the client notices the failover by itself");
    holder.stays_alive(&held, Phase::Granted).await;
    assert_eq!(cluster.servers.lock().owner(slot).expect("a node"), master + 3);
    holder.release(&held).await.freed_it(&held);
    let second = waiter.granted_soon(&queued).await;
    assert_tokens_rise(&first, &second);
    waiter.release(&queued).await.freed_it(&queued);
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_of_all_nodes_are_listed_and_evicted() {
    let (_cluster, store) = Cluster::start().with_clients().await;
    let [client, other] = store.two().await;
    let mut claims = Vec::new();
    for _ in 0..100 {
        claims.push(hold(&client, &store.key()).await);
    }
    for limit in [7, 1000] {
        let mut listed: Vec<_> = other.list("", limit).await;
        listed.sort_by(|a, b| a.key.cmp(&b.key));
        let mut keys: Vec<_> = claims.iter().map(|claim| claim.at.key.clone()).collect();
        keys.sort();
        assert_eq!(
            listed.iter().map(|status| status.key.clone()).collect::<Vec<_>>(),
            keys
        );
        for status in listed {
            let claim = claims
                .iter()
                .find(|claim| claim.at.key == status.key)
                .expect("ours");
            assert_eq!(status.holders[0].id, HolderId::Claim(claim.at.id));
        }
    }
    other.evict(&claims[0], "ada").await.freed_it(&claims[0]);
    assert_evicted_by(
        &renew(client.backend(), RenewRequest::of(&claims[0])).await,
        "ada",
    );
    assert!(other.status(&claims[0].at.key).await.is_none());
    assert!(other.status(&claims[1].at.key).await.is_some());
}

/// R30: Redisson could lock such names in a cluster, but not unlock them.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_with_stray_braces_is_refused_unsent() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let client = store.client().await;
    cluster.ask_all(&["CONFIG", "RESETSTAT"]);
    for name in ["a{b", "a}b", "a{}b"] {
        let claim = client.claim(&LockKey::new(name).expect("a key"), Mode::Exclusive);
        let refusal = acquire(client.backend(), &claim)
            .await
            .expect_err("it is refused");
        assert_error(&refusal, (Fault::Invalid, Effect::None), "braces");
        let refusal = release_error(client.backend(), unlock_of(&claim)).await;
        assert_error(&refusal, (Fault::Invalid, Effect::None), "braces");
        assert!(matches!(
            renew(client.backend(), RenewRequest::of(&claim)).await,
            RenewReply::Unknown(_)
        ));
        for node in 0..3 {
            assert_eq!(cluster.refusals(node, "ERR"), 0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_url_of_the_wrong_topology_says_which_to_write() {
    let cluster = Cluster::start();
    let node = cluster.servers.lock().nodes()[0].url();
    let store = connect(&node).await.expect("a node answers");
    let (_, fixture) = cluster.with_clients().await;
    let client = fixture.client().await;
    // A store for a single server cannot work on this node, which serves only a third of the keys: the store's scripts
    // declare keys of several slots.
    let claim = client.claim(&fixture.key(), Mode::Exclusive);
    let refusal = acquire(&store, &claim).await.expect_err("it is refused");
    assert_error(&refusal, (Fault::Unsupported, Effect::None), "redis+cluster://");
    let alone = tenure_servers::Redis::start().expect("redis-server starts");
    let url = format!("redis+cluster://{}", alone.address());
    let refusal = tenure_redis::RedisCluster::connect(config(&url).expect("a URL")).await;
    let refusal = refusal.map(drop).expect_err("it is no cluster");
    assert_error(&refusal, (Fault::Unsupported, Effect::None), "write `redis://`");
    let refusal = connect(&url).await.map(drop).expect_err("a store of one server");
    assert_error(&refusal, (Fault::Invalid, Effect::None), "RedisCluster");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_layout_spring_is_refused() {
    // No server listens at this address.
    let config = config("redis+cluster://127.0.0.1:1?layout=spring&registry=r").expect("a URL");
    let refusal = tenure_redis::RedisCluster::connect(config).await.map(drop);
    assert_error(
        &refusal.expect_err("it is refused"),
        (Fault::Unsupported, Effect::None),
        "`spring` is not served on a cluster",
    );
}

/// RFencedLock's counter is in the lock's slot. A renewal names no counter, because each lock has its own.
#[tokio::test(flavor = "multi_thread")]
async fn tokens_of_redissons_counter_are_raised() {
    let mut cluster = Cluster::start();
    cluster.redisson_fencing = true;
    let (cluster, store) = cluster.with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let claim = client.claim(&key, Mode::Exclusive);
    let run = client.granted(&claim).await.tokens.expect("tokens");
    let token = FencingToken::new(run.first().get() + 1000).expect("a token");
    let raised = TokenRange::new(token, NonZeroU32::MIN).expect("one token");
    let mut renewal = RenewRequest::of(&claim);
    renewal.raise = Some(raised);
    let reply = renew(client.backend(), renewal).await;
    assert!(matches!(reply, RenewReply::Alive { .. }), "{reply:?}");
    let counter = cluster.ask(&key, &["GET", &format!("redisson_lock_token:{{{key}}}")]);
    assert_eq!(counter, raised.last().to_string());
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_what_only_a_cluster_has() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let client = store.client().await;
    let found = examine(client.backend()).await;
    assert_finding(&found, "has no replica", Severity::Warning);
    assert_finding(&found, "`cluster-node-timeout` is ", Severity::Warning);
    let shared = found
        .iter()
        .find(|finding| finding.what.contains("has no replica"));
    let addresses = shared.expect("it was found").what.matches("127.0.0.1:").count();
    assert_eq!(addresses, 3, "what all nodes report is shown once: {found:?}");
    let words = [
        "no node serves",
        "node of a cluster",
        "cannot be",
        "wake-up",
        "scripts",
    ];
    for word in words {
        assert!(
            !found.iter().any(|finding| finding.what.contains(word)),
            "{word}: {found:?}"
        );
    }
    let (slot, ..) = cluster.place(&store.key());
    cluster.ask_all(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    let found = examine(client.backend()).await;
    assert_finding(&found, "1 slot is served by no node", Severity::Danger);
    assert_finding(&found, "cluster_state:fail", Severity::Danger);
}

#[tokio::test(flavor = "multi_thread")]
async fn doctor_reports_clocks_that_differ_and_open_slots() {
    let (cluster, store) = Cluster::start().with_clients().await;
    let client = store.client().await;
    let is_about =
        |finding: &&Finding| finding.what.contains("the clock of") || finding.what.contains("slot ");
    let found = examine(client.backend()).await;
    assert!(!found.iter().any(|finding| is_about(&finding)), "{found:?}");
    let (slot, from, to) = cluster.place(&store.key());
    {
        let mut servers = cluster.servers.lock();
        servers.begin_move(slot, to).expect("it begins");
        // This node's clock is no longer that of the others, which was set forward when they started.
        let clock = SteppedClock::new().expect("a clock that steps can be made");
        clock.step_ms(60_000).expect("it steps");
        let node = servers.node_mut(to);
        node.set_clock(clock);
        node.restart(Data::Kept).expect("it starts again");
    }
    let found = examine(client.backend()).await;
    let [from, to] = [from, to].map(|node| cluster.addresses()[node].clone());
    assert_finding(&found, &format!("the clock of {to} is 5"), Severity::Warning);
    for (node, shown) in [(from, "->-"), (to, "-<-")] {
        let moved = format!("{node}: slot {slot} is being moved: the node shows `[{slot}{shown}");
        assert_finding(&found, &moved, Severity::Danger);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_cluster_refuses_calls() {
    let (_cluster, store) = Cluster::start().with_clients().await;
    let (client, key) = (store.client().await, store.key());
    let claim = hold(&client, &key).await;
    client.backend().clone().close().await.expect("it closes");
    let refusal = acquire(client.backend(), &claim).await.expect_err("it is closed");
    assert_eq!(refusal.fault(), Fault::Closed);
    let refusal = client
        .backend()
        .clone()
        .watch(claim)
        .await
        .map(drop)
        .expect_err("it is closed");
    assert_eq!(refusal.fault(), Fault::Closed);
}
