//! Examining a cluster, for `tenure doctor`: the findings of each node, and problems that only a cluster can have.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use redis::InfoDict;
use tenure_backend::{BackendError, Fault, Finding};

use crate::backend::RedisStore;
use crate::claims::slot::{SLOTS, scope};
use crate::cluster::map::{OpenSlot, ask_node};
use crate::cluster::nodes::RedisCluster;
use crate::cluster::open::USUAL_LEASE;
use crate::connection::wire::Wire;
use crate::examine::clocks::{self, Reading};

/// A replica takes over after about twice the node timeout: one until the master counts as failed, and one for the
/// vote.
const TIMEOUTS_PER_FAILOVER: u32 = 2;

impl RedisCluster {
    pub(super) async fn examine_nodes(&self) -> Result<Vec<Finding>, BackendError> {
        self.dialer.check_process()?;
        self.look().await?;
        let nodes: Vec<_> = {
            let nodes = self.nodes()?;
            let all = nodes.by_address.iter();
            all.map(|(address, node)| (address.clone(), nodes.slot_of(node), node.clone()))
                .collect()
        };
        let examined = nodes.iter().map(|(_, slot, node)| examine_node(node, *slot));
        let examined = join_all(examined).await;
        // A finding of several nodes is shown once, with the addresses of all of them.
        let mut shared: BTreeMap<(String, String), (Finding, Vec<&str>)> = BTreeMap::new();
        let mut readings = Vec::new();
        for ((address, ..), found) in nodes.iter().zip(examined) {
            let found = match found {
                Ok((found, reading)) => {
                    readings.push((&**address, reading));
                    found
                }
                Err(error) if error.fault() == Fault::Unavailable => vec![Finding::danger(
                    format!("a node cannot be reached: {error}"),
                    "locks of its slots cannot be had, and held ones end with their leases",
                )],
                Err(error) => return Err(error),
            };
            for finding in found {
                let same = (finding.what.clone(), finding.consequence.clone());
                let entry = shared.entry(same).or_insert_with(|| (finding, Vec::new()));
                entry.1.push(address);
            }
        }
        let findings = shared.into_values().map(|(mut finding, addresses)| {
            finding.what = format!("{}: {}", addresses.join(", "), finding.what);
            finding
        });
        Ok(findings.chain(clocks::nodes(&readings)).collect())
    }
}

/// The findings of one node and its replicas, and its clock. `slot` is one of the slots that it serves.
async fn examine_node(
    node: &Arc<RedisStore>,
    slot: Option<u16>,
) -> Result<(Vec<Finding>, Reading), BackendError> {
    let scope = slot.map(scope).unwrap_or_default();
    let mut found = node.examine_server(&scope).await?;
    let session = node.link.session().await?;
    cluster_state(&session.wire, &mut found).await;
    found.extend(slow_failover(&session.wire).await);
    let answer = ask_node(node.clone()).await?;
    found.extend(answer.open.iter().map(open_slot));
    for served in answer.served {
        if slot.is_some_and(|slot| served.slots.contains(&slot.into())) {
            node.examine_replicas(served.replicas, true, &mut found).await?;
        }
    }
    Ok((found, node.read_clock().await?))
}

/// Reports slots without a node, and a node that counts the cluster as down.
async fn cluster_state(wire: &Wire, findings: &mut Vec<Finding>) {
    let reply = wire.query(redis::cmd("CLUSTER").arg("INFO")).await;
    let Ok(info): Result<InfoDict, _> = reply else {
        return;
    };
    let covered = info.get("cluster_slots_ok").unwrap_or(0);
    let uncovered = SLOTS.saturating_sub(covered);
    if uncovered > 0 {
        let slots = if uncovered == 1 { "slot is" } else { "slots are" };
        findings.push(Finding::danger(
            format!("{uncovered} {slots} served by no node that can be reached"),
            "locks of these slots cannot be had, and with `cluster-require-full-coverage yes` no lock of any slot",
        ));
    }
    if info.get::<String>("cluster_state").as_deref() == Some("fail") {
        findings.push(Finding::danger(
            "the node counts the cluster as down (`cluster_state:fail`)",
            "it serves no lock until enough masters can be reached and all slots are covered",
        ));
    }
}

/// Reports a slot that is being moved.
fn open_slot(open: &OpenSlot) -> Finding {
    Finding::danger(
        format!(
            "slot {} is being moved: the node shows `{}`",
            open.slot, open.shown
        ),
        "no lock of this slot can be had or renewed until the move ends, and if a replica takes over meanwhile, two clients can \
         hold a lock at once: end the move, or repair the slot with `redis-cli --cluster fix`",
    )
}

/// Warns if the node timeout is so long that a failover would outlast a lease of the usual length.
async fn slow_failover(wire: &Wire) -> Option<Finding> {
    let limit = wire.setting("cluster-node-timeout").await?.parse().ok()?;
    let limit = Duration::from_millis(limit);
    (USUAL_LEASE <= limit * TIMEOUTS_PER_FAILOVER).then(|| {
        Finding::warning(
            format!("`cluster-node-timeout` is {} s", limit.as_secs_f64()),
            "a replica takes over after about twice that time, so the usual lease of 30 s ends before it can be renewed: take \
             longer leases, or a shorter timeout",
        )
    })
}
