//! The map of slots: asks several nodes for it, and says for each slot which answer counts.
//!
//! One answer is not enough. A node to which a slot is being moved goes on to name the slot's old master after a replica
//! has taken over, and a node that the others cannot reach names the masters of earlier days.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use redis::Value;
use tenure_backend::{BackendError, Effect, Fault};
use tenure_endpoint::Host;
use tokio::time::sleep;

use crate::backend::RedisStore;
use crate::claims::reply::{integer, list, text};
use crate::claims::slot::SLOTS;
use crate::connection::connect_error::is_lasting;
use crate::error::unexpected_reply;

/// The number of nodes that are asked at once.
const ASKED: usize = 5;

/// The longest wait for one more answer after another. If none has come, further nodes are asked.
const PATIENCE: Duration = Duration::from_millis(250);

/// What one node says about the cluster.
pub(super) struct Answer {
    pub(super) served: Vec<Served>,
    /// The slots that are being moved from or to this node.
    pub(super) open: Vec<OpenSlot>,
}

/// A range of slots, and the nodes that have them.
pub(super) struct Served {
    pub(super) slots: RangeInclusive<usize>,
    pub(super) master: Host,
    pub(super) replicas: Vec<Host>,
    pub(super) rank: Rank,
}

/// How far a node is to be believed to serve a slot. The greatest rank counts: first that of a master that the cluster
/// does not count as failed, then that with the newest configuration epoch. A replica that takes over gets a new epoch,
/// and so does the node to which a slot has moved.
pub(super) type Rank = (bool, u64);

/// A slot that is being moved, with the node's own words about it, such as `[449->-ID]`.
pub(super) struct OpenSlot {
    pub(super) slot: u16,
    pub(super) shown: String,
}

/// Asks some of these nodes, the first ones first. Returns their answers, of which there is at least one.
pub(super) async fn ask(nodes: Vec<Arc<RedisStore>>) -> Result<Vec<Answer>, BackendError> {
    let mut nodes = nodes.into_iter();
    let mut asked: FuturesUnordered<_> = nodes.by_ref().take(ASKED).map(ask_node).collect();
    let (mut answers, mut failure) = (Vec::new(), None);
    loop {
        tokio::select! {
            answer = asked.next() => match answer {
                Some(Ok(answer)) => answers.push(answer),
                Some(Err(error)) => {
                    // A failure that may pass hides one that lasts: that node may answer the next attempt.
                    if failure.is_none() || !is_lasting(&error) {
                        failure = Some(error);
                    }
                    asked.extend(nodes.next().map(ask_node));
                }
                None => break,
            },
            () = sleep(PATIENCE) => match answers.is_empty() {
                true => asked.extend(nodes.by_ref().take(ASKED).map(ask_node)),
                false => break,
            },
        }
    }
    if answers.is_empty() {
        Err(failure.unwrap_or_else(BackendError::closed))
    } else {
        Ok(answers)
    }
}

/// For each range in these answers, the slots for which it counts: those for which no other range has a greater rank.
pub(super) fn winning(answers: &[Answer]) -> Vec<(&Served, Vec<usize>)> {
    let ranges: Vec<_> = answers.iter().flat_map(|answer| &answer.served).collect();
    let mut winners: Vec<Option<usize>> = vec![None; SLOTS];
    for (number, range) in ranges.iter().enumerate() {
        for winner in &mut winners[range.slots.clone()] {
            if winner.is_none_or(|other| ranges[other].rank < range.rank) {
                *winner = Some(number);
            }
        }
    }
    let won = ranges.iter().enumerate().map(|(number, range)| {
        let slots = range.slots.clone();
        let slots: Vec<_> = slots.filter(|slot| winners[*slot] == Some(number)).collect();
        (*range, slots)
    });
    won.filter(|(_, slots)| !slots.is_empty()).collect()
}

/// Asks one node. `CLUSTER SLOTS` has the names by which clients reach the nodes, and `CLUSTER NODES` the rest.
pub(super) async fn ask_node(node: Arc<RedisStore>) -> Result<Answer, BackendError> {
    let session = node.link.session().await?;
    let [slots, nodes] = ["SLOTS", "NODES"].map(|what| redis::cmd("CLUSTER").arg(what).take());
    let (slots, nodes) = tokio::join!(
        session.wire.query::<Value>(&slots),
        session.wire.query::<String>(&nodes),
    );
    let slots = slots.map_err(|error| match std::error::Error::source(&error) {
        Some(cause) if cause.to_string().contains("cluster support disabled") => BackendError::new(
            Fault::Unsupported,
            Effect::None,
            format!(
                "Redis at {} is no node of a cluster: write `redis://` for a single server",
                node.address()
            ),
        ),
        _ => error,
    })?;
    decode(&slots, &nodes?, &node.address()).ok_or_else(unexpected_reply)
}

/// Decodes the replies of `CLUSTER SLOTS` and `CLUSTER NODES` of the node at the address `said_by`.
fn decode(slots: &Value, nodes: &str, said_by: &str) -> Option<Answer> {
    let nodes: Vec<Vec<&str>> = nodes.lines().map(|line| line.split(' ').collect()).collect();
    let mut ranks = BTreeMap::new();
    let mut open = Vec::new();
    for node in &nodes {
        let [id, _, flags, _, _, _, epoch, _, slots @ ..] = &node[..] else {
            return None;
        };
        let has_failed = flags.split(',').any(|flag| flag == "fail");
        ranks.insert(*id, (!has_failed, epoch.parse().ok()?));
        open.extend(slots.iter().filter_map(|slots| open_slot(slots)));
    }
    let served = list(slots)?.iter().map(|range| served(range, &ranks, said_by));
    Some(Answer {
        served: served.collect::<Option<_>>()?,
        open,
    })
}

/// Decodes a slot that is being moved from (`[SLOT->-ID]`) or to (`[SLOT-<-ID]`) the node. `None` for slots that are
/// served, which have no brackets.
fn open_slot(shown: &str) -> Option<OpenSlot> {
    let (slot, _) = shown.strip_prefix('[')?.split_once('-')?;
    let slot = slot.parse().ok().filter(|slot| usize::from(*slot) < SLOTS)?;
    let shown = shown.to_owned();
    Some(OpenSlot { slot, shown })
}

/// Decodes one range of slots, with its master and the replicas that follow.
fn served(range: &Value, ranks: &BTreeMap<&str, Rank>, said_by: &str) -> Option<Served> {
    let [first, last, master, replicas @ ..] = list(range)? else {
        return None;
    };
    let (first, last) = (integer(first)?.try_into().ok()?, integer(last)?.try_into().ok()?);
    // The master may be missing in the other reply, which the node may have made after it learned of a failover.
    let rank = ranks.get(text(list(master)?.get(2)?)?).copied();
    (first <= last && last < SLOTS).then_some(())?;
    Some(Served {
        slots: first..=last,
        master: node_host(master, said_by)?,
        replicas: replicas
            .iter()
            .filter_map(|node| node_host(node, said_by))
            .collect(),
        rank: rank.unwrap_or_default(),
    })
}

fn node_host(node: &Value, said_by: &str) -> Option<Host> {
    match list(node)? {
        [name, port, ..] => host(text(name).unwrap_or_default(), integer(port)?, said_by),
        _ => None,
    }
}

/// Decodes the address of a node in a reply `MOVED` of the node `said_by`.
pub(super) fn moved_to(address: &str, said_by: &str) -> Option<Host> {
    let (name, port) = address.rsplit_once(':')?;
    host(name, port.parse().ok()?, said_by)
}

/// A node's host. If the answer has no name for it, the host of the node that answered, which may not know its own
/// name.
fn host(name: &str, port: u64, said_by: &str) -> Option<Host> {
    let port = u16::try_from(port).ok()?;
    if !["", "?"].contains(&name) {
        return Some(Host::new(name, port));
    }
    let (asked, _) = said_by.rsplit_once(':')?;
    Some(Host::new(asked.trim_matches(['[', ']']), port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(port: i64, id: &str) -> Value {
        let text = |text: &str| Value::BulkString(text.into());
        Value::Array(vec![text("10.0.0.1"), Value::Int(port), text(id)])
    }

    /// The answer of a node that names these nodes as masters of the slots 0 to 5: port and line in `CLUSTER NODES`.
    fn answer(masters: &[(i64, &str)]) -> Answer {
        let ranges = masters.iter().map(|(port, line)| {
            let id = line.split(' ').next().expect("an ID");
            Value::Array(vec![Value::Int(0), Value::Int(5), node(*port, id)])
        });
        let lines: Vec<_> = masters.iter().map(|(_, line)| *line).collect();
        decode(&Value::Array(ranges.collect()), &lines.join("\n"), "10.0.0.9:1").expect("a valid answer")
    }

    /// The port of the master of the slot 3.
    fn master(answers: &[Answer]) -> u16 {
        let won = winning(answers);
        let (served, _) = won
            .iter()
            .find(|(_, slots)| slots.contains(&3))
            .expect("a master");
        served.master.port_or(0)
    }

    const OLD: (i64, &str) = (1, "a 10.0.0.1:1@11 master - 0 0 7 connected 0-5");
    const NEW: (i64, &str) = (2, "b 10.0.0.1:2@12 master - 0 0 8 connected 0-5");

    #[test]
    fn the_newest_epoch_wins_in_any_order() {
        assert_eq!(master(&[answer(&[OLD]), answer(&[NEW])]), 2);
        assert_eq!(master(&[answer(&[NEW]), answer(&[OLD])]), 2);
        assert_eq!(master(&[answer(&[OLD])]), 1);
    }

    #[test]
    fn a_failed_master_counts_if_no_other_is_named() {
        let failed = (3, "c 10.0.0.1:3@13 master,fail - 0 0 9 connected 0-5");
        assert_eq!(master(&[answer(&[failed]), answer(&[OLD])]), 1);
        assert_eq!(master(&[answer(&[failed])]), 3);
        // Only one node suspects this one.
        let suspected = (4, "d 10.0.0.1:4@14 master,fail? - 0 0 9 connected 0-5");
        assert_eq!(master(&[answer(&[suspected]), answer(&[OLD])]), 4);
    }

    #[test]
    fn slots_that_are_being_moved_are_found() {
        let line =
            "a 10.0.0.1:1@11,name myself,master - 0 0 7 connected 0-2 5 [3->-bb] [4-<-cc] [16384->-dd]";
        let open: Vec<_> = answer(&[(1, line)])
            .open
            .into_iter()
            .map(|open| open.slot)
            .collect();
        assert_eq!(open, [3, 4]);
    }
}
