//! Mutual exclusion, counted: both sides raise one number by reading it and then writing it, so that two at a time lose a
//! turn.

use tokio::task::JoinSet;

use crate::scene::{LIMIT, Register, Scene, within};

/// Three threads of Java and two tasks of each of two clients of Tenure, `turns` times each.
async fn count(scene: &Scene, fair: bool, turns: u32) {
    let java = ["anna", "berta", "clara"].map(|name| {
        let lock = if fair {
            scene.java_fair(name)
        } else {
            scene.java_plain(name)
        };
        lock.count("counter", turns)
    });
    let mut tenure = JoinSet::new();
    for client in [scene.another_client().await, scene.another_client().await] {
        for _ in 0..2 {
            let mutex = client.mutex("k");
            let mutex = if fair { mutex.fair() } else { mutex };
            let mut counter = Register::open(scene, "counter").await;
            tenure.spawn(async move {
                for _ in 0..turns {
                    let guard = mutex.lock().await.unwrap();
                    counter.raise().await;
                    guard.unlock().await.unwrap();
                }
            });
        }
    }
    within(LIMIT, "all turns of Tenure", tenure.join_all()).await;
    for turns in java {
        within(LIMIT, "all turns of Java", turns).await.unwrap();
    }
    assert_eq!(scene.ask("GET counter"), (7 * turns).to_string());
    scene.until_nothing_is_left_of("k").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_turn_is_lost_in_a_fair_queue_or_without_one() {
    for scene in Scene::each().await {
        count(&scene, false, 300).await;
        scene.ask("DEL counter");
        count(&scene, true, 60).await;
    }
}
