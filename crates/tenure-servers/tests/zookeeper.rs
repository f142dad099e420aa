//! Tries ZooKeeper: restarts with and without data, a pause, and a change of the leader.

use std::time::{Duration, Instant};

use tenure_servers::{Data, ZooKeeper, ZooKeeperEnsemble, needs};

const TICK: Duration = Duration::from_millis(500);

#[test]
fn a_server_keeps_its_port_over_restarts() {
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let mut server = ZooKeeper::start(TICK).unwrap();
    let address = server.address();
    assert_eq!(server.mode().as_deref(), Some("standalone"));
    assert!(server.ask("conf").unwrap().contains("tickTime=500\n"));
    for data in [Data::Kept, Data::Lost] {
        server.restart(data).unwrap();
        assert_eq!((server.address(), server.mode().is_some()), (address, true));
    }
    server.process().pause();
    assert_eq!(server.mode(), None);
    server.process().resume();
    assert!(server.mode().is_some());
}

/// The addresses at which a process listens, as the system writes them.
fn listens_at(process: u32) -> Vec<String> {
    let sockets = std::fs::read_dir(format!("/proc/{process}/fd")).unwrap();
    let target = |entry: std::io::Result<std::fs::DirEntry>| std::fs::read_link(entry.unwrap().path()).ok();
    let sockets: Vec<_> = sockets.filter_map(target).collect();
    let mut addresses = Vec::new();
    for table in ["tcp", "tcp6"] {
        let table = std::fs::read_to_string(format!("/proc/{process}/net/{table}")).unwrap();
        for line in table.lines() {
            let fields: Vec<&str> = line.split_whitespace().collect();
            let socket = format!("socket:[{}]", fields[9]);
            if fields[3] == "0A" && sockets.iter().any(|own| own.as_os_str() == &*socket) {
                addresses.push(fields[1].to_owned());
            }
        }
    }
    addresses
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ensemble_listens_on_the_loopback_only() {
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let mut ensemble = ZooKeeperEnsemble::start(TICK).await.unwrap();
    let mut count = 0;
    for number in 0..3 {
        for address in listens_at(ensemble.server_mut(number).process().pid()) {
            let is_loopback = address
                .split(':')
                .next()
                .is_some_and(|host| host.ends_with("0100007F"));
            assert!(is_loopback, "{address}");
            count += 1;
        }
    }
    // Each has a port for clients and one for elections, and the leader one for followers.
    assert_eq!(count, 7);
}

#[tokio::test(flavor = "multi_thread")]
async fn another_server_leads_after_a_death_and_a_cut() {
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let mut ensemble = ZooKeeperEnsemble::start(TICK).await.unwrap();
    let first = ensemble.leader().unwrap();
    let others = |number: usize| (0..3).filter(move |other| *other != number);
    ensemble.server_mut(first).process().kill();
    let second = ensemble.leader_among(others(first)).unwrap();
    ensemble.restart(first, Data::Lost).unwrap();
    ensemble.cut_off(second);
    let third = ensemble.leader_among(others(second)).unwrap();
    assert_ne!(second, third);
    let end = Instant::now() + Duration::from_secs(30);
    while ensemble.servers()[second].mode().is_some() {
        assert!(
            Instant::now() < end,
            "a server without a majority serves requests"
        );
        // sleep: a server sends no event when it stops to serve.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    ensemble.heal();
    while ensemble.servers()[second].mode().as_deref() != Some("follower") {
        assert!(
            Instant::now() < end + Duration::from_secs(30),
            "it follows nobody"
        );
        // sleep: a server sends no event when it follows.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ensemble.leader().unwrap(), third);
}
