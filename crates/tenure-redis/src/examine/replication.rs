//! Judges replicas and sentinels: what a failover would do to locks.

use redis::InfoDict;
use tenure_backend::Finding;
use tenure_endpoint::Host;

use super::info::number;
use crate::connection::sentinel::Examined;
use crate::topology::Acknowledgement;

/// `examine` warns about a replica whose last acknowledgement is older than this, in seconds. Replicas send one a
/// second.
const MAX_LAG: u64 = 5;

/// `examine` warns about a replica that is further than this behind its master, in bytes. A lock takes about 200.
const MAX_BEHIND: u64 = 1 << 20;

/// What the server reports about each of its replicas: `ip=…,port=…,state=…` and more.
fn replicas(info: &InfoDict) -> impl Iterator<Item = String> {
    (0..number(info, "connected_slaves")).filter_map(|index| info.get(&format!("slave{index}")))
}

fn field<'a>(replica: &'a str, name: &str) -> Option<&'a str> {
    let mut fields = replica.split(',');
    fields.find_map(|field| field.strip_prefix(name)?.strip_prefix('='))
}

/// The addresses of the replicas.
pub(super) fn hosts(info: &InfoDict) -> Vec<Host> {
    let host = |replica: String| {
        let port = field(&replica, "port")?.parse().ok()?;
        Some(Host::new(field(&replica, "ip")?, port))
    };
    replicas(info).filter_map(host).collect()
}

/// Reports replicas that lag, and whether fewer keep up than a grant needs.
pub(super) fn lag(info: &InfoDict, wanted: Option<Acknowledgement>, findings: &mut Vec<Finding>) {
    let written = number(info, "master_repl_offset");
    let mut good = 0;
    for replica in replicas(info) {
        let field = |name| field(&replica, name);
        let count = |name| field(name).and_then(|value| value.parse::<u64>().ok());
        let (lag, behind) = (
            count("lag").unwrap_or(0),
            written.saturating_sub(count("offset").unwrap_or(0)),
        );
        let state = field("state").unwrap_or_default();
        if state == "online" && lag <= MAX_LAG && behind <= MAX_BEHIND {
            good += 1;
            continue;
        }
        let address = format!("{}:{}", field("ip").unwrap_or("?"), field("port").unwrap_or("?"));
        findings.push(Finding::warning(
            format!("the replica {address} does not keep up: it is `{state}`, was last heard {lag} s ago, and lacks {behind} bytes"),
            "if it takes over, the locks that it lacks can be held twice until the older lease has ended",
        ));
    }
    if let Some(wanted) = wanted.filter(|wanted| good < wanted.replicas) {
        findings.push(Finding::danger(
            format!(
                "`replicas={}` asks for more replicas than the {good} that keep up",
                wanted.replicas
            ),
            "no lock can be had, and held locks end with their leases, until enough replicas are back",
        ));
    }
}

/// Reports a server that refuses writes because too few replicas are in sync. `INFO` has their number only if the
/// server requires some. `setting` is its `min-replicas-to-write`, `None` if it could not be read.
pub(super) fn missing(setting: Option<&str>, info: &InfoDict) -> Option<Finding> {
    let good: u64 = info.get("min_slaves_good_slaves")?;
    let required = setting.and_then(|count| count.parse().ok()).unwrap_or(1);
    let replicas = if required == 1 { "replica" } else { "replicas" };
    (good < required).then(|| {
        Finding::danger(
            format!(
                "the server takes no writes: `min-replicas-to-write` asks for {required} {replicas}, and {good} keep up"
            ),
            "held locks end with their leases, and no new ones can be had, until enough replicas are back",
        )
    })
}

/// Warns if a master that is cut off from its replicas goes on to grant locks. `setting` is as for [`missing`].
pub(super) fn minimum(setting: Option<&str>, info: &InfoDict, findings: &mut Vec<Finding>) {
    if number(info, "connected_slaves") == 0 {
        return;
    }
    match setting {
        Some("0") => findings.push(Finding::warning(
            "a master that is cut off from its replicas still takes writes (`min-replicas-to-write 0`)",
            "while a replica takes over elsewhere, it goes on to grant locks, which can be held twice: set it to 1, and \
             `min-replicas-max-lag` below the lease",
        )),
        Some(_) => {}
        None => findings.push(Finding::note(
            "`min-replicas-to-write` could not be read: this user may not call CONFIG GET, or the server does not know it",
            "unless it is at least 1, a master that is cut off from its replicas goes on to grant locks, which can be held twice",
        )),
    }
}

/// Judges the sentinels by their answers.
pub(super) fn sentinels(master: Option<Host>, examined: &[Examined], findings: &mut Vec<Finding>) {
    let (count, mut quorum, mut answering) = (examined.len() as u64, 0, 0);
    for Examined {
        sentinel,
        answer,
        not_subscribed,
    } in examined
    {
        if let Some(failure) = not_subscribed {
            findings.push(Finding::warning(
                format!(
                    "the client cannot listen to the sentinel {sentinel}, for which it needs `HELLO`, `SUBSCRIBE` and all \
                     channels: {failure}"
                ),
                "it leaves the master up to a second after this sentinel has promoted a replica, and locks of that second can \
                 be held twice",
            ));
        }
        match answer {
            Ok(answer) => {
                (quorum, answering) = (quorum.max(answer.quorum), answering + 1);
                if let Some(master) = master.as_ref().filter(|master| **master != answer.master) {
                    findings.push(Finding::danger(
                        format!("the sentinel {sentinel} names {} as the master, and the client is connected to {master}", answer.master),
                        "clients that ask different sentinels lock on different servers, so a lock can be held twice",
                    ));
                }
            }
            Err(failure) => findings.push(Finding::warning(
                format!("the sentinel {sentinel} does not answer: {failure}"),
                "one sentinel fewer can notice that the master is down, and find it for clients",
            )),
        }
    }
    let majority = count / 2 + 1;
    if answering < majority.max(quorum) {
        findings.push(Finding::danger(
            format!(
                "{answering} of {count} sentinels answer, and a failover needs {}",
                majority.max(quorum)
            ),
            "if the master dies, no replica takes over, and no lock can be had",
        ));
    } else if count < 3 {
        findings.push(Finding::warning(
            format!("there are fewer than three sentinels (the client knows {count})"),
            "no replica takes over if the machine of a sentinel dies with the master",
        ));
    } else if quorum < majority {
        findings.push(Finding::note(
            format!("{quorum} of {count} sentinels suffice to take the master for dead (its `quorum`)"),
            "a few that lose their network can ask for a failover of a master that runs, and locks of that moment can be \
             held twice",
        ));
    }
}
