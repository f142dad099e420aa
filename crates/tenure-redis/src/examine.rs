//! Examining, for `tenure doctor`: finds settings and states of the server that weaken locks, with the consequence of
//! each. Changes no data.

pub(crate) mod clocks;
mod info;
mod replication;

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::join_all;
use redis::{InfoDict, Value};
use tenure_backend::{BackendError, Claim, ClaimId, ClaimRef, ClientId, Fault, Finding, LockKey};
use tenure_endpoint::Host;
use tokio::time::timeout;

use crate::backend::RedisStore;
use crate::claims::names::{CLIENT_CHANNEL, COUNTER, MUTEX_CHANNEL, client_channel};
use crate::claims::reply::text;
use crate::claims::script::Layout;
use crate::connection::dial::Dialer;
use crate::connection::recovery::Member;
use crate::connection::wire::Wire;
use clocks::{Reading, SLOW, seconds};
use info::{cluster, eviction, forgetful, replicas, unwritable, version};

/// `examine` warns if the token counter is further than this ahead of the server's clock. The counter follows
/// the clock: grants alone put it slightly ahead, and setting the clock back by an hour puts it an hour ahead.
const MAX_AHEAD: Duration = Duration::from_secs(60);

/// From this value on, the counter may not serve every claim: scripts count in doubles, which skip integers from 2^53 on,
/// and one call draws at most 65,536 tokens (64 claims of 1,024).
const LAST_TOKEN: f64 = 9_007_199_254_740_992.0 - 65_536.0;

/// Consequence that is reported if wake-ups do not work.
const WAITERS_POLL: &str = "waiters poll instead, so a lock changes hands at most ten times a second";

/// Number of the next wake-up test: part of its key, so that concurrent tests use different keys.
static NEXT_PROBE: AtomicU64 = AtomicU64::new(0);

impl RedisStore {
    /// Examines this server. In a cluster, `scope` ends the names of keys in one of the server's slots; otherwise it is
    /// empty.
    pub(crate) async fn examine_server(&self, scope: &str) -> Result<Vec<Finding>, BackendError> {
        let session = self.link.session().await?;
        let wire = &session.wire;
        let mut findings = Vec::new();
        if let Some(rest) = session.recovers_for(self.now()) {
            findings.push(Finding::warning(
                format!("the server has started lately, so it keeps out for another {}", seconds(rest)),
                "it may have forgotten locks that are still held, so it grants none until then: no lock can be had unless a majority of the others grants it",
            ));
        }
        match answered(wire.info("everything").await)? {
            Ok(info) => {
                findings.extend(version(&info));
                let member = self.link.dialer.config.member;
                persistence_and_eviction(wire, member, &info, &mut findings).await;
                replicas(&info, &mut findings);
                let minimum = wire.setting("min-replicas-to-write").await;
                findings.extend(replication::missing(minimum.as_deref(), &info));
                replication::lag(&info, self.link.dialer.config.acknowledgement, &mut findings);
                replication::minimum(minimum.as_deref(), &info, &mut findings);
                findings.extend(cluster(&info, !scope.is_empty()));
                if scope.is_empty() {
                    let hosts = replication::hosts(&info);
                    let take_over = self.link.dialer.sentinels().is_some();
                    self.examine_replicas(hosts, take_over, &mut findings).await?;
                }
            }
            // The ACL user may not call `INFO`, or the command has been renamed.
            Err(_) => findings.push(Finding::warning(
                "this user may not call INFO, or the server does not know it, so persistence, replicas and memory could not be \
                 looked at",
                "what a restart, a failover or a full memory would do to locks is not known",
            )),
        }
        if let Some(sentinels) = self.link.dialer.sentinels() {
            replication::sentinels(sentinels.master(), &sentinels.ask_all().await, &mut findings);
        }
        findings.extend(script_cache(wire, self.layout).await?);
        clocks::server(&self.read_clock().await?, &mut findings);
        findings.extend(counter(wire, scope).await?);
        self.wake_up(wire, scope, &mut findings).await;
        Ok(findings)
    }

    /// Examines the server's replicas: only their clocks, unless clients use them when they `take_over`. Adds each
    /// finding about a replica, unless `findings` already has the same about the server.
    pub(crate) async fn examine_replicas(
        &self,
        hosts: Vec<Host>,
        take_over: bool,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        let master = self.read_clock().await?;
        let examined = hosts.into_iter().map(async |host| {
            let found = examine_replica(&self.link.dialer.to(host.clone()), &master, take_over).await;
            let found = found.unwrap_or_else(|error| {
                let what = format!("it cannot be examined: {error}");
                vec![if take_over {
                    let consequence =
                        "if clients cannot use it after it has taken over, no lock can be had from it";
                    Finding::warning(what, consequence)
                } else {
                    Finding::note(what, "whether its clock agrees with the master's is not known")
                }]
            });
            (host, found)
        });
        for (host, found) in join_all(examined).await {
            for mut finding in found {
                if !findings.contains(&finding) {
                    finding.what = format!("the replica {host}: {}", finding.what);
                    findings.push(finding);
                }
            }
        }
        Ok(())
    }

    /// Reads the server's clock.
    pub(crate) async fn read_clock(&self) -> Result<Reading, BackendError> {
        let session = self.link.session().await?;
        Reading::take(&session.wire, &*self.link.dialer.config.clock).await
    }

    /// Tests wake-ups: watches an unused key, publishes a message, and reports a wake-up that fails or is slow.
    async fn wake_up(&self, wire: &Wire, scope: &str, findings: &mut Vec<Finding>) {
        let probe = probe_claim(scope);
        let begun = self.now();
        let heard = async {
            let wakes = self.subscriptions.watch(&probe).await;
            let mut wakes = wakes.map_err(|_| cannot_subscribe())?;
            // The first wake-up only confirms the subscription. Then the message is sent.
            wakes.next().await.ok_or_else(cannot_subscribe)?;
            let channel = self.format().channel(MUTEX_CHANNEL, &probe.at.key);
            let called = self.now();
            let published = wire.publish(&channel, "0").await;
            published.map_err(|error| cannot_publish(&error))?;
            wakes.next().await.ok_or_else(cannot_subscribe)?;
            let took = self.now() - called;
            self.hears_of_evictions(wire, probe.at.id.client()).await?;
            Ok(took)
        };
        let found = match timeout(self.link.dialer.config.command_timeout, heard).await {
            Ok(Ok(took)) if took <= SLOW => return,
            Ok(Ok(took)) => Finding::note(
                format!("a wake-up takes {}", seconds(took)),
                "waiters get a lock that much later after its release",
            ),
            Ok(Err(finding)) => finding,
            Err(_) => Finding::warning(
                format!(
                    "no wake-up came within {}: publish and subscribe do not reach us",
                    seconds(self.now() - begun)
                ),
                WAITERS_POLL,
            ),
        };
        findings.push(found);
    }
}

impl RedisStore {
    /// Fails if this user may not subscribe to the channel of a client, or not publish on it.
    async fn hears_of_evictions(&self, wire: &Wire, client: ClientId) -> Result<(), Finding> {
        let evictions = self.subscriptions.invalidations(client);
        let mut evictions = evictions.map_err(|_| cannot_subscribe())?;
        let limit = self.link.dialer.config.command_timeout / 2;
        let confirmed = timeout(limit, evictions.next()).await.is_ok();
        let mut publish = redis::cmd("PUBLISH");
        publish.arg(client_channel(client)).arg("");
        if confirmed && wire.query::<Value>(&publish).await.is_ok() {
            return Ok(());
        }
        Err(Finding::warning(
            format!(
                "this user may not use the channels `{CLIENT_CHANNEL}*`, by which holders learn of evictions (ACL SETUSER … \
                 &{CLIENT_CHANNEL}*)"
            ),
            "a holder learns of its eviction only from its next renewal, a third of the lease later",
        ))
    }
}

/// Finding for a subscription that the server did not confirm. Names likely reasons, because `watch` does not return
/// the server's.
fn cannot_subscribe() -> Finding {
    Finding::warning(
        "wake-ups cannot be subscribed to: see whether this user may SUBSCRIBE and use the channels (ACL SETUSER … +subscribe \
         &*), and whether the server takes another connection",
        WAITERS_POLL,
    )
}

fn cannot_publish(error: &BackendError) -> Finding {
    let why = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    Finding::warning(
        format!("wake-ups cannot be published: {why}"),
        "a release publishes as well, so it fails midway, and waiters poll",
    )
}

/// A claim for a wake-up test. It is never placed. Its key is unique, so that concurrent tests do not wake each
/// other.
fn probe_claim(scope: &str) -> Claim {
    let id = ClaimId::new(ClientId::from_random([0; 16]), 0);
    let number = NEXT_PROBE.fetch_add(1, Ordering::Relaxed);
    let name = format!("tenure_doctor:{}:{number}{scope}", std::process::id());
    let key = LockKey::new(name).expect("a short name without control characters");
    Claim::of(ClaimRef { key, id }, Duration::from_secs(1))
}

/// Separates two errors: the outer one if the server cannot be reached, the inner one if it refuses to answer.
fn answered<T>(reply: Result<T, BackendError>) -> Result<Result<T, BackendError>, BackendError> {
    match reply {
        Err(error) if error.fault() == Fault::Unavailable => Err(error),
        reply => Ok(reply),
    }
}

/// Logs in to a replica as a client would after a failover, and reports a clock that is not its master's. If clients use the
/// replica when it takes over, also reports its settings that weaken locks.
async fn examine_replica(
    replica: &Dialer,
    master: &Reading,
    takes_over: bool,
) -> Result<Vec<Finding>, BackendError> {
    let wire = Wire::open(replica).await?;
    let mut findings = Vec::new();
    let clock = Reading::take(&wire, &*replica.config.clock).await?;
    findings.extend(clocks::replica(&clock, master));
    if !takes_over {
        return Ok(findings);
    }
    let info = wire.info("everything").await?;
    persistence_and_eviction(&wire, replica.config.member, &info, &mut findings).await;
    Ok(findings)
}

/// Reports what a restart and a full memory would do to locks.
async fn persistence_and_eviction(
    wire: &Wire,
    member: Option<Member>,
    info: &InfoDict,
    findings: &mut Vec<Finding>,
) {
    let writes_each = info.get("aof_enabled") == Some(1);
    match member {
        None if writes_each => findings.extend(fsync_policy(wire.setting("appendfsync").await.as_deref())),
        None => findings.push(forgetful()),
        Some(member) if member.durable => findings.extend(not_durable(wire, writes_each).await),
        // A restart does no harm: the member keeps out after it.
        Some(_) => {}
    }
    unwritable(info, findings);
    // A user that may not call `CONFIG GET` can still read the policy in `INFO`.
    let policy = wire.setting("maxmemory-policy").await;
    let policy = policy.or_else(|| info.get("maxmemory_policy"));
    eviction(info, policy.as_deref().unwrap_or("noeviction"), findings);
}

/// Reports a member of a quorum for which the operator vouches (`durable=true`) although its settings let a crash take
/// writes that it has answered.
async fn not_durable(wire: &Wire, writes_each: bool) -> Option<Finding> {
    let setting = async |name| wire.setting(name).await.unwrap_or_else(|| "unknown".to_owned());
    let found = match (
        &*setting("appendfsync").await,
        &*setting("no-appendfsync-on-rewrite").await,
    ) {
        _ if !writes_each => "the append-only file is off (`appendonly no`)".to_owned(),
        ("always", "no") => return None,
        ("always", rewrite) => {
            format!("writes may not be on the disk during a rewrite (`no-appendfsync-on-rewrite {rewrite}`)")
        }
        (policy, _) => format!("the append-only file may be on the disk later (`appendfsync {policy}`)"),
    };
    Some(Finding::danger(
        format!("`durable=true` vouches that a restart of this server loses no write, but {found}"),
        "after a crash two clients can hold a lock at once until the older lease has ended: set `appendonly yes`, `appendfsync \
         always` and `no-appendfsync-on-rewrite no`, or leave `durable` out",
    ))
}

/// Judges the setting `appendfsync`, which says how soon a write is on the disk. `policy` is `None` if it could not
/// be read.
fn fsync_policy(policy: Option<&str>) -> Option<Finding> {
    let consequence =
        "if the machine crashes, locks taken in that time can be held twice until the older lease has ended";
    match policy {
        None => Some(Finding::warning(
            "how soon the append-only file is on the disk could not be read: this user may not call CONFIG GET, or the server \
             does not know it",
            "unless every write is (`appendfsync always`), a crash of the machine takes the latest, and locks taken then can be \
             held twice until the older lease has ended",
        )),
        Some("everysec") => Some(Finding::note(
            "the append-only file is on the disk a second after the fact (`appendfsync everysec`)",
            consequence,
        )),
        Some("no") => Some(Finding::warning(
            "the append-only file is on the disk when the system sees fit (`appendfsync no`), often half a minute later",
            consequence,
        )),
        Some(_) => None,
    }
}

/// Reports a token counter that is too high for further tokens, or far ahead of the clock: after a loss of data,
/// tokens start from the clock again, and could repeat.
async fn counter(wire: &Wire, scope: &str) -> Result<Option<Finding>, BackendError> {
    let name = format!("{COUNTER}{scope}");
    let value = match answered(wire.query::<Value>(redis::cmd("GET").arg(&name)).await)? {
        Ok(value) => value,
        Err(error) => {
            return Ok(Some(Finding::warning(
                format!("the token counter `{name}` cannot be read: {error}"),
                "whether tokens can be had is not known",
            )));
        }
    };
    // A counter that is not a number counts as missing, as in the scripts.
    let Some(value) = text(&value).and_then(|value| value.parse::<f64>().ok()) else {
        return Ok(None);
    };
    let ahead = Duration::try_from_secs_f64(value / 1e6).unwrap_or(Duration::MAX);
    let ahead = ahead.saturating_sub(Duration::from_micros(wire.time().await?));
    if value >= LAST_TOKEN {
        return Ok(Some(Finding::danger(
            format!("the token counter `{name}` has been set to {value}, beyond any token"),
            "no lock can be had: while no lock is held, delete that key, and tokens go on from the server's time",
        )));
    }
    Ok((ahead > MAX_AHEAD).then(|| {
        Finding::warning(
            format!("the token counter `{name}` is {} ahead of the server's clock", age(ahead)),
            "if the server loses its data before its clock gets there, older tokens come again, and a resource that \
             checks them refuses the new holders until they have passed the old ones",
        )
    }))
}

/// Warns if the server has forgotten the scripts that this client loaded when it connected, as some proxies and hosted
/// services do.
async fn script_cache(wire: &Wire, scripts: &Layout) -> Result<Option<Finding>, BackendError> {
    let mut question = redis::cmd("SCRIPT");
    question.arg("EXISTS");
    for script in scripts.first() {
        question.arg(script.hash(wire.dialect));
    }
    let Ok(known) = answered(wire.query::<Vec<u64>>(&question).await)? else {
        // Locks work without `SCRIPT EXISTS`, so this is only a warning.
        return Ok(Some(Finding::warning(
            "this user may not call SCRIPT EXISTS, or the server does not know it: `tenure doctor` needs it, though locks do \
             not (ACL SETUSER … +script|exists)",
            "whether the server forgets our scripts is not known",
        )));
    };
    Ok(known.contains(&0).then(|| {
        Finding::warning(
            "the server has forgotten our scripts since we connected: another client flushes its script cache",
            "the next lock or unlock takes two round trips instead of one, and nothing else changes",
        )
    }))
}

/// Formats a duration; from two days on, in days.
fn age(time: Duration) -> String {
    match time.as_secs() {
        days @ 172_800.. => format!("{} days", days / 86_400),
        _ => seconds(time),
    }
}
