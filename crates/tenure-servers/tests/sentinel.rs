//! A replica takes over on request and when the master is killed, and a former master becomes a replica.

use std::time::{Duration, Instant};

use tenure_servers::{Data, Replicated};

#[test]
fn a_replica_takes_over_when_the_master_is_killed() {
    let mut group = Replicated::start(&[]).expect("all start");
    assert_eq!(group.master().expect("the sentinels agree"), 0);
    let orderly = group.fail_over().expect("a replica takes over");
    assert_ne!(orderly, 0);
    let role = group.servers()[orderly].ask(&["ROLE"]).expect("it answers");
    assert!(role.starts_with("master"), "{role}");
    group.servers()[orderly].process().kill();
    let next = group.wait_for_failover(orderly).expect("another takes over");
    assert_ne!(next, orderly);
    group.servers()[orderly]
        .restart(Data::Kept)
        .expect("it starts again");
    let end = Instant::now() + Duration::from_secs(60);
    while !group.settle().is_ok_and(|settled| settled) {
        assert!(Instant::now() < end, "the former master is no replica");
        // sleep: no event announces that a replica is in sync.
        std::thread::sleep(Duration::from_millis(50));
    }
}
