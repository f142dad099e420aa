//! A replica takes over while a slot of its master is being moved, and nodes that do not learn of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Claim, Effect, Fault, LockKey, ReleaseReply, RenewReply,
    RenewRequest, Successor,
};
use tenure_redis::RedisCluster;
use tenure_servers::{Proxy, Redis, Way};

/// The node that gives a slot away, its replica, the node to which the slot moves, and a node without a part in it.
const SOURCE: usize = 1;
const PROMOTED: usize = SOURCE + 3;
const TARGET: usize = 2;
const THIRD: usize = 0;

/// Time from the promotion of a replica until clients know of it.
const LEARNS_WITHIN: Duration = Duration::from_secs(2);

/// A cluster of which one slot was being moved when its node failed. The lock `key` had been moved already.
struct FailedMove {
    cluster: Cluster,
    key: LockKey,
    slot: u16,
    /// A client that knew only the target's address, and holds `held` on `key`.
    holder: Arc<RedisCluster>,
    held: Arc<Claim>,
    /// A client that has seen the slot open. It holds `kept`, which is in the same slot, and was not moved.
    waiter: Arc<RedisCluster>,
    kept: Arc<Claim>,
    /// A client that was connected to the node, and made no call in the slot.
    idle: Arc<RedisCluster>,
    /// A replica that has missed the failover.
    cut_off: Redis,
    promoted: Instant,
}

impl FailedMove {
    async fn new() -> Self {
        let cluster = Cluster::replicated();
        let key = cluster.key_at(SOURCE);
        let (slot, _, to) = cluster.place(&key);
        assert_eq!(to, TARGET);
        let waiter = cluster.connect().await;
        let kept = numbered_claim(&format!("{{{key}}}:kept"), 2, 1);
        assert!(is_granted(&acquire(&waiter, &kept).await));
        let target = cluster.addresses().split_off(TARGET).swap_remove(0);
        // The acknowledgement also covers `kept`.
        let config = cluster.config_of(&[target], "&replicas=1&replica_wait=10s");
        let holder = RedisCluster::connect(config).await.expect("the target answers");
        let held = numbered_claim(key.as_str(), 1, 1);
        assert!(is_granted(&acquire(&holder, &held).await));
        let idle = cluster.connect().await;
        let elsewhere = cluster.key_at(SOURCE);
        assert!(is_granted(
            &acquire(&idle, &numbered_claim(elsewhere.as_str(), 3, 1)).await
        ));
        let cut_off = cluster
            .servers
            .lock()
            .start_cut_off(THIRD + 3)
            .expect("it starts");
        cluster
            .servers
            .lock()
            .begin_move(slot, TARGET)
            .expect("it begins");
        let moved = cluster
            .servers
            .lock()
            .move_keys(slot, TARGET, |moved| moved == key.as_str());
        assert_eq!(moved.expect("it moves"), 1);
        let refused = try_acquire(&waiter, &numbered_claim(key.as_str(), 2, 2)).await;
        let refused = refused.expect_err("no node serves the slot");
        assert_error(
            &refused,
            (Fault::Unavailable, Effect::None),
            "does not serve slot",
        );
        cluster.servers.lock().node_mut(SOURCE).process().kill();
        wait_until(|| {
            cluster
                .servers
                .lock()
                .owner(slot)
                .is_ok_and(|owner| owner == PROMOTED)
        });
        FailedMove {
            cluster,
            key,
            slot,
            holder,
            held,
            waiter,
            kept,
            idle,
            cut_off,
            promoted: Instant::now(),
        }
    }

    /// Repeats a call, which fails as long as the client calls the dead node, until its reply is as expected.
    async fn soon<T: std::fmt::Debug, F: Future<Output = T>>(
        &self,
        call: impl Fn() -> F,
        is_expected: impl Fn(&T) -> bool,
    ) {
        loop {
            let reply = call().await;
            if is_expected(&reply) {
                return;
            }
            let elapsed = self.promoted.elapsed();
            assert!(elapsed < LEARNS_WITHIN, "{reply:?} after {elapsed:?}");
            // sleep: no event tells that the client has learned of the failover.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// The only open connection of the holder is to the target, which names the dead node for ever.
    async fn the_holder_learns_of_its_loss(&self) {
        let renewal = || renew(&self.holder, RenewRequest::of(&self.held));
        self.soon(renewal, |reply| matches!(reply, RenewReply::Gone(_)))
            .await;
    }

    /// The new node does not know that `key` is held.
    async fn no_client_places_a_claim(&self) {
        self.places_nothing(&self.waiter, numbered_claim(self.key.as_str(), 2, 3))
            .await;
        self.places_nothing(&self.idle, numbered_claim(self.key.as_str(), 3, 2))
            .await;
    }

    async fn places_nothing(&self, store: &Arc<RedisCluster>, wanted: Arc<Claim>) {
        let is_refused = |reply: &Result<AcquireReply, BackendError>| {
            assert!(!is_granted(reply), "{reply:?}");
            let words = format!("slot {} was being moved when", self.slot);
            reply
                .as_ref()
                .is_err_and(|error| error.is_transient() && error.to_string().contains(&words))
        };
        self.soon(|| try_acquire(store, &wanted), is_refused).await;
    }

    /// Renewals and releases go on, without a successor.
    async fn the_waiter_keeps_what_it_holds(&self) {
        stays_alive(&self.waiter, &self.kept).await;
        let mut handover = unlock_of(&self.kept);
        handover.successor = Some(Successor {
            claim: numbered_claim(self.kept.at.key.as_str(), 2, 4),
            not_after: self.waiter.clock().now() + Duration::from_secs(5),
        });
        let released = release(&self.waiter, handover).await;
        let is_alone = |reply: &ReleaseReply| {
            matches!(
                reply,
                ReleaseReply::Done { freed, successor: Some(AcquireReply::Recovering), .. } if freed.len() == 1
            )
        };
        assert!(is_alone(&released), "{released:?}");
    }

    /// The first call goes to the node that has taken over, not to the one that an old map names.
    async fn an_old_map_is_not_believed(&self) {
        let third = self.cluster.servers.lock().nodes()[THIRD].address();
        let slow = Proxy::start(third).await.expect("a port is free");
        slow.delay(Way::ToClient, Duration::from_millis(15));
        let hosts = [self.cut_off.address(), slow.address()].map(|host| host.to_string());
        let client = RedisCluster::connect(self.cluster.config_of(&hosts, "")).await;
        let client = client.expect("both nodes answer");
        let key = self.cluster.key_at(PROMOTED);
        let granted = acquire(&client, &numbered_claim(key.as_str(), 4, 1)).await;
        assert!(is_granted(&granted), "{granted:?}");
    }

    async fn the_waiter_is_granted_after_a_lease(&self) {
        self.cluster.advance_clients(self.held.lease);
        let granted = acquire(&self.waiter, &numbered_claim(self.key.as_str(), 2, 5)).await;
        assert!(is_granted(&granted), "{granted:?}");
    }
}

/// Acquires a claim, with a `not_after` that is too soon to wait for a slot that moves.
async fn try_acquire(store: &Arc<RedisCluster>, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
    let not_after = store.clock().now() + Duration::from_millis(200);
    store.clone().acquire(claim.clone(), not_after).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failover_during_a_move_lets_no_two_hold() {
    let failed = FailedMove::new().await;
    failed.the_holder_learns_of_its_loss().await;
    failed.no_client_places_a_claim().await;
    failed.the_waiter_keeps_what_it_holds().await;
    failed.an_old_map_is_not_believed().await;
    failed.the_waiter_is_granted_after_a_lease().await;
}
