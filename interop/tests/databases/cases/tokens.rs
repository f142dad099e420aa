//! Fencing tokens: the version of a row.

use crate::shared::fixture::{LONG, Setting};

pub(crate) async fn tokens_rise_across_both_sides(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let (ours, theirs) = (fixture.client.mutex(fixture.subject.key), fixture.theirs("anna"));
    let mut tokens = Vec::new();
    for _ in 0..5 {
        theirs.lock().await.unwrap();
        tokens.push(theirs.token().await.unwrap());
        theirs.unlock().await.unwrap();
        let guard = ours.lock().await.unwrap();
        tokens.push(guard.token().expect("the layout has tokens").get());
        guard.unlock().await.unwrap();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}
