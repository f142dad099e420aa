//! The values of leaders.

use tenure::{Change, Client, Election};

use crate::shared::fixture::{LONG, PROMPT, Setting, within};

/// Both sides read what the leader of the other campaigned with, and Tenure also what Go's leader proclaims later.
pub(crate) async fn each_side_reads_the_value_of_the_others_leader(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let election = |client: &Client| client.election(fixture.subject.key).label("10.0.0.5:8080");
    let ours = election(&fixture.client);
    let theirs = fixture.theirs("anna");
    let observer = tenure::connect(&fixture.url()).await.unwrap();
    let read = async |election: &Election| election.leader().await.unwrap()?.label;
    let leader = ours.campaign().await.unwrap();
    assert_eq!(theirs.observe().await.unwrap(), "10.0.0.5:8080");
    assert_eq!(read(&election(&observer)).await.as_deref(), Some("10.0.0.5:8080"));
    leader.resign().await.unwrap();
    theirs.lock().await.unwrap();
    let mut changes = ours.observe();
    let first = within(PROMPT, "the first look", changes.next()).await.unwrap();
    let Change::Held(status) = first else {
        panic!("{first:?}")
    };
    assert_eq!(status.holders[0].label.as_deref(), Some("candidate"));
    theirs.proclaim("10.0.0.6:8080").await.unwrap();
    let next = within(PROMPT, "the change", changes.next()).await.unwrap();
    let Change::Holders(status) = next else {
        panic!("{next:?}")
    };
    assert_eq!(status.holders[0].label.as_deref(), Some("10.0.0.6:8080"));
    assert_eq!(read(&ours).await.as_deref(), Some("10.0.0.6:8080"));
    theirs.unlock().await.unwrap();
}
