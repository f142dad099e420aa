//! Fairness: waiters of both sides in one queue are served in order, and a waiter of the other client gets its turns
//! next to many tasks of Tenure.

use tenure_interop::{Lock, Reply};
use tokio::task::{JoinHandle, JoinSet};

use crate::shared::fixture::{LIMIT, LONG, PROMPT, Setting, within};
use crate::shared::subject::{Held, Kind};

/// Eight waiters: threads of the other client, and tasks of two Tenure clients. If the locks of Tenure are not fair,
/// each task has a client of its own, because a client queues with one claim for all of its tasks.
pub(crate) async fn waiters_of_both_sides_are_served_in_order(setting: Setting) {
    const QUEUE: &str = "theirs ours ours theirs ours theirs theirs ours";
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let clients = [
        fixture.client.clone(),
        tenure::connect(&fixture.url()).await.unwrap(),
    ];
    let holder = fixture.theirs("holder");
    holder.lock().await.unwrap();
    let mut queue = Vec::new();
    for (place, side) in QUEUE.split(' ').enumerate() {
        queue.push(match side {
            "theirs" => {
                let lock = fixture.theirs(&format!("waiter-{place}"));
                Turn::Theirs(lock.clone(), lock.lock())
            }
            _ => {
                let client = match fixture.subject.ours {
                    Kind::Mutex => tenure::connect(&fixture.url()).await.unwrap(),
                    _ => clients[place % 2].clone(),
                };
                let ours = fixture.subject.ours(&client);
                Turn::Ours(tokio::spawn(async move { ours.lock().await }))
            }
        });
        fixture.until(|store| store.queued() == place + 1).await;
    }
    holder.unlock().await.unwrap();
    for (place, turn) in queue.into_iter().enumerate() {
        // Waits for each waiter in the order of the queue. If another was served first, that one still holds the
        // lock, and this wait fails.
        match turn {
            Turn::Theirs(lock, reply) => {
                within(PROMPT, &format!("number {place}"), reply).await.unwrap();
                lock.unlock().await.unwrap();
            }
            Turn::Ours(task) => {
                let guard = within(PROMPT, &format!("number {place}"), task).await.unwrap();
                guard.unwrap().unlock().await.unwrap();
            }
        }
    }
    fixture.until_data(<[String]>::is_empty).await;
}

enum Turn {
    Theirs(Lock, Reply<()>),
    Ours(JoinHandle<Result<Held, tenure::Error>>),
}

pub(crate) async fn their_waiter_gets_turns_next_to_64_tasks(setting: Setting) {
    const TURNS: u32 = 3;
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let mut tasks = JoinSet::new();
    for _ in 0..64 {
        let ours = fixture.ours();
        tasks.spawn(async move {
            loop {
                ours.lock().await.unwrap().unlock().await.unwrap();
            }
        });
    }
    let turns = fixture.theirs("anna").count(&fixture.store.number(), TURNS);
    within(LIMIT, "its turns", turns).await.unwrap();
    tasks.shutdown().await;
}
