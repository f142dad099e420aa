//! A waiter acquires the lock soon after the other side's unlock: it is woken, or polls.

use std::time::{Duration, Instant};

use crate::shared::fixture::{LONG, PROMPT, Setting, assert_waits, within};

/// An odd number of measurements, for their median.
const ROUNDS: usize = 5;

/// Time for which a test observes that a waiter still waits.
const MOMENT: Duration = Duration::from_millis(100);

/// On a machine that runs other tests, a wake-up takes several times as long as usual. Polls that replaced one would take
/// seconds.
const BUSY: u32 = 4;

fn assert_median(mut waits: Vec<Duration>, usual: Duration) {
    let limit = usual * BUSY;
    waits.sort();
    assert!(waits[ROUNDS / 2] < limit, "not within {limit:?}: {waits:?}");
}

pub(crate) async fn tenure_acquires_after_their_unlock(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let theirs = fixture.theirs("anna");
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        theirs.lock().await.unwrap();
        let ours = fixture.ours();
        let mut waiting = tokio::spawn(async move { ours.lock().await });
        assert_waits(MOMENT, "Tenure", &mut waiting).await;
        let unlocked = Instant::now();
        theirs.unlock().await.unwrap();
        let guard = within(PROMPT, "Tenure", waiting).await.unwrap().unwrap();
        waits.push(unlocked.elapsed());
        guard.unlock().await.unwrap();
    }
    assert_median(waits, fixture.subject.we_wake);
}

pub(crate) async fn they_acquire_after_an_unlock_of_tenure(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let theirs = fixture.theirs("anna");
    let mut waits = Vec::new();
    for _ in 0..ROUNDS {
        let guard = fixture.ours().lock().await.unwrap();
        let mut waiting = theirs.lock();
        assert_waits(MOMENT, "the other client", &mut waiting).await;
        let unlocked = Instant::now();
        guard.unlock().await.unwrap();
        within(PROMPT, "the other client", waiting).await.unwrap();
        waits.push(unlocked.elapsed());
        theirs.unlock().await.unwrap();
    }
    assert_median(waits, fixture.subject.they_wake);
}
