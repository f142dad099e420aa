//! Writing down what is held, for whoever looks at it: locks that come and go within a moment cost nothing for it.

use std::sync::Weak;
use std::time::Duration;

use tenure_backend::{BackendError, ClaimId, ClientId};

use crate::acquire::keep_ms;
use crate::backend::RedisStore;
use crate::known::{AGAIN, Note, REMEMBERED};
use crate::names::{Owner, claims_of};
use crate::refusal::is_for_a_key;
use crate::script::NOTE;

/// What is held for so long is written down.
pub(crate) const AFTER: Duration = Duration::from_millis(50);

/// How often that is looked after.
const PACE: Duration = Duration::from_millis(25);

/// How many claims one call writes down.
const CHUNK: usize = 640;

/// Writes down what is held, for as long as the store is there.
pub(crate) async fn write_down(store: Weak<RedisStore>) {
    while let Some(wait) = turn(&store).await {
        tokio::time::sleep(wait).await;
    }
}

/// Waits until something was granted, and writes down what is due; how long it is until the next is.
async fn turn(store: &Weak<RedisStore>) -> Option<Duration> {
    let store = store.upgrade()?;
    let now = store.now();
    let (clients, next) = store.known.notes(now - AFTER);
    let mut failed = false;
    for (client, notes) in clients {
        let mut chunks: Vec<&[Note]> = notes.chunks(CHUNK).collect();
        if chunks.is_empty() {
            // The client alone is to be kept.
            chunks.push(&[]);
        }
        for notes in chunks {
            failed |= !store.note_each(client, notes).await;
        }
    }
    for stale in store.known.stale() {
        store.strike(stale).await;
    }
    if failed {
        return Some(AGAIN);
    }
    if let Some(next) = next {
        return Some((next + AFTER - now).max(PACE));
    }
    let known = store.known.clone();
    drop(store);
    known.young.notified().await;
    Some(AFTER)
}

impl RedisStore {
    /// Whether all was done that can be. What a right to its key is missing for is not written down, and its neighbours are.
    async fn note_each(&self, client: ClientId, notes: &[Note]) -> bool {
        match self.note(client, notes).await {
            Ok(()) => true,
            Err(error) if is_for_a_key(&error) => {
                let (some, others) = notes.split_at(notes.len() / 2);
                some.is_empty()
                    || Box::pin(self.note_each(client, some)).await
                        & Box::pin(self.note_each(client, others)).await
            }
            Err(error) => {
                tracing::debug!(%error, "what is held could not be written down");
                self.known.note_again(notes, self.now());
                false
            }
        }
    }

    async fn note(&self, client: ClientId, notes: &[Note]) -> Result<(), BackendError> {
        let wire = self.link.wire().await?;
        let mut command = NOTE.on(1 + notes.len(), 2 + 2 * notes.len(), 192 * notes.len());
        command.bytes(&claims_of(client));
        for note in notes {
            command.text(note.claim.at.key.as_str());
        }
        // While nothing is held for long, it lives until it is said anew, and a little.
        let longest = notes.iter().map(|note| note.claim.lease).max();
        command
            .number(keep_ms(longest.unwrap_or(REMEMBERED) + REMEMBERED))
            .text(&self.known.label(client));
        for Note { claim, run } in notes {
            command.bytes(Owner::of(claim.at.id).as_bytes()).text(&format!(
                "{}:{}:{}",
                run.first(),
                run.count(),
                claim.label
            ));
        }
        wire.call(&command).await?;
        Ok(())
    }

    /// What was written down of a claim that is long past, and could not be given back, goes; if not now, with its client.
    async fn strike(&self, claim: ClaimId) {
        let Ok(wire) = self.link.wire().await else { return };
        let mut command = redis::cmd("HDEL");
        command
            .arg(&claims_of(claim.client())[..])
            .arg(Owner::of(claim).as_bytes());
        if let Err(error) = wire.ask(&command).await {
            tracing::debug!(%error, "what was held once is still written down");
        }
    }
}
