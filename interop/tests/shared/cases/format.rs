//! Both sides write the same data to the store, and leave the same data after an unlock.

use crate::shared::fixture::{LONG, Setting};

pub(crate) async fn both_sides_write_the_same_data(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (ours, theirs) = (fixture.ours(), fixture.theirs("anna"));
    theirs.lock().await.unwrap();
    assert_eq!(
        fixture.data(),
        fixture.subject.held,
        "what the other client writes"
    );
    theirs.unlock().await.unwrap();
    let left = fixture.subject.left;
    fixture.until_data(|data| data == left).await;
    let guard = ours.lock().await.unwrap();
    let held = fixture.subject.held_by_us.unwrap_or(fixture.subject.held);
    assert_eq!(fixture.data(), held, "what Tenure writes");
    guard.unlock().await.unwrap();
    fixture.until_data(|data| data == left).await;
}
