//! Wake-ups that never come.

use std::sync::Arc;

use tenure::{Client, Settings};
use tenure_testkit::{Chaos, Weather};

use crate::world::{SECOND, World, settle};

/// R15: where every wake-up is lost, a waiter asks again when the lease that it waits for could have ended.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_wake_ups_are_all_lost_asks_when_the_holders_lease_could_have_ended() {
    let world = World::new();
    let deaf = Weather {
        loses_wake: 100,
        ..Weather::CALM
    };
    for fair in [false, true] {
        let holder = world.client().mutex("k").lease(6 * SECOND).lock().await.unwrap();
        let client = Client::new(
            Arc::new(Chaos::new(world.backend(), 1, deaf)),
            Settings::default(),
        );
        let mutex = client.mutex("k");
        let waiting = tokio::spawn(if fair { mutex.fair().lock() } else { mutex.lock() });
        settle().await;
        holder.unlock().await.unwrap();
        let guard = tokio::time::timeout(7 * SECOND, waiting)
            .await
            .expect("it sleeps beside a free lock")
            .unwrap()
            .unwrap();
        guard.unlock().await.unwrap();
    }
}
