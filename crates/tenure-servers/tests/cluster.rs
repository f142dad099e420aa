//! The cluster: it forms, moves slots, and survives the loss of a master.

use std::time::{Duration, Instant};

use tenure_servers::{Data, RedisCluster, SteppedClock};

const FAST_FAILOVER: [&str; 4] = ["--save", "", "--cluster-node-timeout", "500"];

#[test]
fn a_slot_moves_with_its_keys() {
    let clock = SteppedClock::new().expect("a clock can be made");
    let cluster = RedisCluster::start(3, false, &["--save", ""], Some(clock)).expect("it starts");
    let slot = cluster.slot("k").expect("a slot");
    let from = cluster.owner(slot).expect("a node serves it");
    cluster.nodes()[from].ask(&["SET", "k", "v"]).expect("it is set");
    let to = (from + 1) % 3;
    cluster.move_slot(slot, to).expect("it moves");
    assert_eq!(cluster.owner(slot).expect("a node serves it"), to);
    assert_eq!(cluster.nodes()[to].ask(&["GET", "k"]).expect("it is there"), "v");
    let moved = cluster.nodes()[from]
        .ask(&["GET", "k"])
        .expect_err("it has moved");
    assert!(moved.to_string().contains("MOVED"), "{moved}");
}

#[test]
fn a_replica_takes_over_from_a_killed_master() {
    let mut cluster = RedisCluster::start(3, true, &FAST_FAILOVER, None).expect("it starts");
    let slot = cluster.slot("k").expect("a slot");
    let master = cluster.owner(slot).expect("a node serves it");
    cluster.node_mut(master).process().kill();
    let end = Instant::now() + Duration::from_secs(60);
    while cluster.owner(slot).is_ok_and(|owner| owner != master + 3) {
        assert!(Instant::now() < end, "no replica took over");
        // sleep: no event announces a failover.
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(cluster.masters().len(), 3);
    assert!(!cluster.is_settled().is_ok_and(|settled| settled));
    cluster
        .node_mut(master)
        .restart(Data::Kept)
        .expect("it starts again");
    while !cluster.is_settled().is_ok_and(|settled| settled) {
        assert!(Instant::now() < end, "the former master is no replica");
        // sleep: no event announces that a replica is in sync.
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(!cluster.masters().contains(&master));
}
