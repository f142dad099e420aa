//! `watch` and `invalidations`: wake-ups and hints of the members, merged.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::{SelectAll, StreamExt, select_all};
use tenure_backend::{BackendError, Claim, ClientId, Effect, Invalidations, WakeSignal, Wakes};
use tokio::time::timeout;

use crate::backend::Quorum;
use crate::votes::too_few;

/// Longest wait for the wake-ups of a majority of members after the first one. A client that polled before the
/// release has reached a majority would be refused.
const GATHER: Duration = Duration::from_millis(2);

impl Quorum {
    /// Subscribes to the wake-ups of all members, and leaves out those that fail or do not reply in time. Fails if no
    /// member accepts.
    pub(crate) async fn watch_all(self: &Arc<Self>, claim: Arc<Claim>) -> Result<Wakes, BackendError> {
        let calls = self.members.list.iter().map(|member| {
            let call = member.store.clone().watch(claim.clone());
            timeout(self.members.time_limit, call)
        });
        let mut streams = Vec::new();
        let mut errors = Vec::new();
        for reply in join_all(calls).await.into_iter().flatten() {
            match reply {
                Ok(wakes) => streams.push(wakes),
                Err(error) => errors.push(error),
            }
        }
        if streams.is_empty() {
            let (members, majority) = (self.members.list.len(), self.members.majority());
            return Err(too_few(members, majority, errors, Effect::None));
        }
        Ok(self.gather(select_all(streams)))
    }

    /// Merges the members' wake-ups into one stream. Wake-ups that arrive within [`GATHER`], up to a majority, count as
    /// one. A task reads the members' wake-ups until the stream is dropped.
    fn gather(&self, mut streams: SelectAll<Wakes>) -> Wakes {
        let signal = WakeSignal::default();
        let majority = self.members.majority();
        let notify = signal.clone();
        let task = self.members.runtime.spawn(async move {
            while streams.next().await.is_some() {
                let more = streams.by_ref().take(majority - 1);
                let _ = timeout(GATHER, more.for_each(|()| std::future::ready(()))).await;
                notify.notify();
            }
        });
        signal.wakes(move || task.abort())
    }

    /// Merges the members' invalidations. `None` if no member gives any. Whether a claim is gone, a majority decides at its
    /// renewal.
    pub(crate) fn all_invalidations(&self, client: ClientId) -> Option<Invalidations> {
        let members = self.members.list.iter();
        let streams: Vec<Invalidations> = members
            .filter_map(|member| member.store.clone().invalidations(client))
            .collect();
        (!streams.is_empty()).then(|| Invalidations::new(select_all(streams)))
    }
}
