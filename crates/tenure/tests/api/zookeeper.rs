//! What a whole client does on ZooKeeper.

use std::time::Duration;

use tenure_servers::{ZooKeeper, needs};
use tokio::task::JoinSet;

/// The server's unit of time.
const TICK: Duration = Duration::from_millis(500);

/// The number of requests that the server has received.
fn requests(server: &ZooKeeper) -> u64 {
    let state = server.ask("mntr").expect("an answer");
    let mut lines = state.lines();
    let count = lines.find_map(|line| line.strip_prefix("zk_packets_received\t"));
    count.expect("the server counts").parse().expect("a number")
}

/// Without hand-overs in memory each lock and unlock would need at least three requests. On a busy machine some hand-overs
/// come too late, and go over the server.
#[tokio::test(flavor = "multi_thread")]
async fn callers_of_a_client_hand_the_lock_over_in_memory() {
    const TASKS: u64 = 64;
    const TURNS: u64 = 20;
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let server = ZooKeeper::start(TICK).expect("ZooKeeper starts");
    let url = format!("{}?tick_time=500ms", server.url());
    let client = tenure::connect(&url).await.expect("it answers");
    let before = requests(&server);
    let mut tasks = JoinSet::new();
    for _ in 0..TASKS {
        let mutex = client.mutex("k");
        tasks.spawn(async move {
            for _ in 0..TURNS {
                drop(mutex.lock().await.expect("its turn comes"));
            }
        });
    }
    tasks.join_all().await;
    let sent = requests(&server) - before;
    assert!(sent < 2 * TASKS * TURNS, "{sent} requests");
}
