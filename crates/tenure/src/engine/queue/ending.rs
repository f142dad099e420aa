//! Holds that end without a plain unlock: the claim stays in the store for `at_least`, is lost, or the client closes.

use std::sync::Arc;

use tenure_backend::Instant;
use tokio::sync::oneshot;

use super::effects::ReleaseOrder;
use super::holders::HoldEnded;
use super::shared::SharedQueue;
use super::state::Close;
use crate::engine::hold::Hold;
use crate::engine::releaser::Release;
use crate::engine::timer::sleep_until;
use crate::error::{Error, LostCause};

impl SharedQueue {
    /// Handles an unlock after which the store must keep the claim until `until`. `tell` receives the store's answer.
    pub(crate) fn keep(
        self: &Arc<Self>,
        hold: &Arc<Hold>,
        until: Instant,
        tell: oneshot::Sender<Result<(), Error>>,
    ) {
        // Takes the token, for whose drop a closing client waits, before `depart` ends the hold. In the other order, a
        // client that closes in between would find neither.
        let token = self.services.tasks.token();
        if !hold.depart() {
            return;
        }
        self.services.renewer.forget(hold);
        let (queue, hold) = (self.clone(), hold.clone());
        let deadline = hold.deadline();
        self.services.tasks.spawn(async move {
            let renewer = &queue.services.renewer;
            let releases = renewer.keep(&hold, until, deadline, tell).await;
            queue.apply(HoldEnded(&hold));
            let (context, tasks) = (queue.context(), &queue.services.tasks);
            let is_over = async {
                tokio::select! {
                    biased;
                    () = sleep_until(tasks, &*context.clock, until) => true,
                    // The store ends the claim with its lease.
                    () = tasks.closing().cancelled() => false,
                }
            };
            if releases && is_over.await {
                queue.release_of(&hold, None, token).send_for_good().await;
            }
        });
    }

    /// Asks the store about each claim that this client holds on the key, and informs the guards.
    pub(crate) fn verify_all(self: &Arc<Self>) {
        self.check_kept();
        for hold in self.holds().into_iter().filter(|hold| !hold.has_departed()) {
            let services = self.services.clone();
            self.services
                .tasks
                .spawn(async move { drop(services.renewer.verify(&hold).await) });
        }
    }

    /// Wakes the tasks of `keep` for the unlocked claims that the store keeps: they ask the store.
    pub(crate) fn check_kept(&self) {
        for kept in self.holds().iter().filter(|hold| hold.has_departed()) {
            kept.loss_notifier().notify_waiters();
        }
    }

    /// The claims that this client holds on the key, for the renewer. Also wakes the tasks of `keep`.
    pub(crate) fn watched(&self) -> Vec<Arc<Hold>> {
        self.check_kept();
        let mut held = self.holds();
        held.retain(|hold| !hold.has_departed());
        held
    }

    /// Closes the queue: ends its waiters, marks its holds as lost, and returns the releases to send. Claims whose
    /// `at_least` has not passed get no release: they stay in the store until then.
    pub(crate) fn close(self: &Arc<Self>) -> Vec<Release> {
        let now = self.context().now();
        for hold in self.holds() {
            let kept = hold.kept_until();
            if let Some(until) = kept.filter(|until| *until > now) {
                self.keep(&hold, until, oneshot::channel().0);
                hold.lose(LostCause::Closed);
            }
        }
        let release = |hold| {
            self.release(ReleaseOrder {
                hold,
                successor: None,
                token: self.services.tasks.token(),
            })
        };
        let lost = self.lose_all().into_iter();
        lost.filter(|hold| hold.depart()).map(release).collect()
    }

    /// Closes the queue and marks its holds as lost, except lingering ones, which have no holder. Returns all holds without
    /// releasing them: if the runtime has ended, no release can be sent.
    pub(crate) fn lose_all(self: &Arc<Self>) -> Vec<Arc<Hold>> {
        let holders = self.apply(Close);
        for holder in holders.iter().filter(|holder| !holder.lingers()) {
            holder.hold.lose(LostCause::Closed);
        }
        holders.into_iter().map(|holder| holder.hold).collect()
    }
}
