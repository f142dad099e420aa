//! What a release meets on its way.

use crate::stage::Verb;
use crate::world::{SECOND, World, pass, settle};

/// R4: a renewal that was under way when the lock was released does not bring it back.
#[tokio::test(start_paused = true)]
async fn a_renewal_under_way_does_not_bring_a_released_lock_back() {
    let world = World::new();
    let (client, stage) = world.staged();
    let guard = client.mutex("k").lock().await.unwrap();
    stage.act(Verb::Renew).hold_before();
    pass(11 * SECOND).await;
    assert_eq!(stage.act(Verb::Renew).count(), 1, "its renewal is on the way");
    guard.unlock().await.unwrap();
    stage.act(Verb::Renew).go_on();
    settle().await;
    assert!(world.is_free("k").await);
    let before = stage.act(Verb::Renew).count();
    pass(60 * SECOND).await;
    assert_eq!(
        stage.act(Verb::Renew).count(),
        before,
        "nobody renews what is released"
    );
    let other = world.client().mutex("k").try_lock().await.unwrap();
    assert!(other.is_some());
}
