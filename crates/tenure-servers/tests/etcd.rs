//! An etcd can be started, paused, killed and emptied, and a cluster replaces a leader and a member without data.

use std::time::{Duration, Instant};

use tenure_servers::{Data, Etcd, EtcdCluster, needs};

#[test]
fn a_restart_keeps_or_loses_the_data_as_requested() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let mut etcd = Etcd::start().unwrap();
    etcd.ask(&["put", "k", "v"]).unwrap();
    assert!(etcd.ask(&["nonsense"]).is_err());
    etcd.restart(Data::Kept).unwrap();
    assert_eq!(etcd.ask(&["get", "k"]).unwrap(), "k\nv");
    etcd.restart(Data::Lost).unwrap();
    assert_eq!(etcd.ask(&["get", "k"]).unwrap(), "");
}

#[test]
fn a_paused_member_is_silent_until_it_is_resumed() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let mut etcd = Etcd::start().unwrap();
    etcd.process().pause();
    assert!(etcd.metric("etcd_server_is_leader").is_err());
    etcd.process().resume();
    assert_eq!(etcd.ask(&["get", "k"]).unwrap(), "");
    assert!(etcd.metric("etcd_server_has_leader").unwrap() > 0.0);
}

#[test]
fn another_member_leads_when_the_leader_is_killed() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let mut cluster = EtcdCluster::start(&[]).unwrap();
    let first = cluster.leader().unwrap();
    cluster.members()[first].ask(&["put", "k", "v"]).unwrap();
    cluster.member_mut(first).process().kill();
    let second = cluster.leader().unwrap();
    assert_ne!(first, second);
    // A member that has lost its data copies it from the others.
    cluster.restart(first, Data::Lost).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while cluster.members()[first].ask(&["get", "k"]).ok().as_deref() != Some("k\nv") {
        assert!(Instant::now() < end, "the member does not copy the data");
        // sleep: a member sends no event when it has the data.
        std::thread::sleep(Duration::from_millis(50));
    }
    cluster.restart(second, Data::Kept).unwrap();
    cluster.leader().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_is_cut_off_loses_its_leader() {
    if !needs("etcd", "etcd-server") {
        return;
    }
    let cluster = EtcdCluster::start_divisible(&[]).await.unwrap();
    let cut = cluster.leader().unwrap();
    let leads = |number: usize| cluster.members()[number].metric("etcd_server_is_leader").unwrap() > 0.0;
    cluster.cut_off(cut);
    let end = Instant::now() + Duration::from_secs(30);
    while leads(cut) || !(leads((cut + 1) % 3) || leads((cut + 2) % 3)) {
        assert!(Instant::now() < end, "no other member leads");
        // sleep: a member sends no event when it becomes the leader.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    cluster.heal();
    cluster.members()[cut].ask(&["put", "k", "v"]).unwrap();
}
