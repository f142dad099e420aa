//! The claims that may be left at one member: it granted them although the quorum did not, or it has not confirmed their
//! release. One task for each member releases them, and repeats that until the member confirms it.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tenure_backend::{Backend, Batch, ReleaseReply, ReleaseRequest, ReleaseTarget};
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};
use tokio_util::task::TaskTracker;

/// The most claims to release at one member. The leases of any more end them there.
const MAX_LEFTOVERS: usize = 64;

/// The first pause before an attempt to release. Each further pause is twice as long as the one before, up to
/// `LONGEST_PAUSE`.
const FIRST_PAUSE: Duration = Duration::from_millis(50);

/// The longest pause between two attempts to release.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// The claims to release at one member, and the task that does so.
#[derive(Debug)]
pub(crate) struct Leftovers {
    member: Arc<dyn Backend>,
    runtime: Handle,
    tasks: TaskTracker,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Each request, and the time until which it is repeated.
    requests: Vec<(ReleaseRequest, Instant)>,
    /// Whether the task runs. It ends when no request is left.
    runs: bool,
}

impl Leftovers {
    pub(crate) fn new(member: Arc<dyn Backend>, runtime: Handle, tasks: TaskTracker) -> Arc<Self> {
        Arc::new(Leftovers {
            member,
            runtime,
            tasks,
            state: Mutex::default(),
        })
    }

    /// Repeats a release that failed at the member, without its successor, for at most `longest`. Does nothing for other
    /// targets than a claim, because another holder may have the key by now, and nothing if the member has
    /// [`MAX_LEFTOVERS`] already.
    pub(crate) fn add(self: &Arc<Self>, request: &ReleaseRequest, longest: Duration) {
        if !matches!(request.target, ReleaseTarget::Claim(_)) {
            return;
        }
        let mut state = self.state.lock();
        if state.requests.len() >= MAX_LEFTOVERS {
            tracing::debug!(target = ?request.target, "a server of the quorum keeps a claim until its lease ends");
            return;
        }
        let request = ReleaseRequest {
            successor: None,
            ..request.clone()
        };
        state.requests.push((request, Instant::now() + longest));
        if !std::mem::replace(&mut state.runs, true) {
            self.tasks.spawn_on(self.clone().release_all(), &self.runtime);
        }
    }

    /// Releases in batches until no request is left.
    async fn release_all(self: Arc<Self>) {
        let mut pause = FIRST_PAUSE;
        loop {
            sleep(pause).await;
            let Some(batch) = self.batch() else { return };
            let replies = self.member.clone().release(batch.clone()).await;
            pause = match self.remove_ended(&batch, &replies) {
                true => FIRST_PAUSE,
                false => (pause * 2).min(LONGEST_PAUSE),
            };
        }
    }

    /// The requests to send next. `None` if there are none, and the task ends.
    fn batch(&self) -> Option<Batch<ReleaseRequest>> {
        let mut state = self.state.lock();
        state.requests.retain(|(_, until)| Instant::now() < *until);
        state.runs = !state.requests.is_empty();
        let most = self.member.profile().limits.max_batch.get() as usize;
        let requests = state.requests.iter().take(most);
        state
            .runs
            .then(|| requests.map(|(request, _)| request.clone()).collect())
    }

    /// Removes the requests that need not be repeated. Returns whether that is so for all of the batch.
    fn remove_ended(&self, batch: &Batch<ReleaseRequest>, replies: &Batch<ReleaseReply>) -> bool {
        let ended = |at: usize| !replies.get(at).is_none_or(may_pass);
        let mut state = self.state.lock();
        // The list begins with this batch: others only add requests, at the end.
        let mut at = 0;
        state.requests.retain(|_| {
            at += 1;
            at > batch.len() || !ended(at - 1)
        });
        (0..batch.len()).all(ended)
    }
}

/// Returns whether a release failed by an error that may pass by itself.
pub(crate) fn may_pass(reply: &ReleaseReply) -> bool {
    matches!(reply, ReleaseReply::Unknown(error) if error.is_transient())
}
