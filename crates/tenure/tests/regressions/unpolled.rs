//! Futures that are alive and that nobody polls.

use crate::stage::Verb;
use crate::world::{SECOND, World, poll_once, settle};

/// R16: a caller that stops polling its own call strands nobody who comes after it.
#[tokio::test(start_paused = true)]
async fn a_call_that_its_caller_stops_polling_strands_nobody() {
    let world = World::new();
    let (client, stage) = world.staged();
    stage.act(Verb::Acquire).hold_after();
    let mut unpolled = client.mutex("k").lock();
    assert!(poll_once(&mut unpolled).await.is_none());
    let next = tokio::spawn(client.mutex("k").lock());
    settle().await;
    stage.act(Verb::Acquire).go_on();
    let next = tokio::time::timeout(SECOND, next).await.expect("stranded");
    next.unwrap().unwrap().unlock().await.unwrap();
}
