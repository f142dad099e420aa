//! `examine`: everything about the server that weakens its locks, each with what follows from it.
//! It looks and never repairs.

mod info;

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt;
use redis::Value;
use tenure_backend::{BackendError, Claim, ClaimId, ClaimRef, ClientId, Fault, Finding, LockKey};
use tokio::time::timeout;

use crate::acquire::COUNTER;
use crate::answer::{list, text};
use crate::backend::RedisStore;
use crate::names::channel;
use crate::script;
use crate::wire::Wire;
use info::{Info, cluster, eviction, persistence, replicas, version};

/// How far the server's clock may be from ours before it is worth a word.
const SKEW: Duration = Duration::from_secs(1);

/// How long a call, or a wake-up, may take before it is worth a word: a hundredth of the default lease's third.
const SLOW: Duration = Duration::from_millis(100);

/// How far the counter of the tokens may be ahead of the server's clock before it is worth a word. Each lock puts it a few
/// microseconds ahead; a clock that was set back, for as long as it was.
const AHEAD: Duration = Duration::from_secs(60);

/// Where tokens end: scripts count in doubles, which skip numbers from 2^53 on, and one lock may draw 256.
const LAST_TOKEN: f64 = 9_007_199_254_740_992.0 - 256.0;

/// How many calls are timed; the quickest counts.
const TRIES: u32 = 5;

/// What follows where nobody is woken.
const POLLS: &str = "whoever waits polls instead, so a lock changes hands only ten times a second";

/// How many looks for a wake-up there were.
static LOOKS: AtomicU64 = AtomicU64::new(0);

impl RedisStore {
    pub(crate) async fn find(&self) -> Result<Vec<Finding>, BackendError> {
        let wire = self.link.wire().await?;
        let mut findings = Vec::new();
        match wire.ask(redis::cmd("INFO").arg("everything")).await {
            Ok(said) => {
                let info = Info(text(&said).unwrap_or_default());
                findings.extend(version(&info));
                persistence(&info, &mut findings);
                if info.get("aof_enabled") == Some("1") {
                    findings.extend(syncing(setting(&wire, "appendfsync").await.as_deref()));
                }
                replicas(&info, &mut findings);
                findings.extend(missing_replicas(&wire, &info).await);
                cluster(&info, &mut findings);
                let policy = eviction_policy(&wire, &info).await;
                eviction(&info, &policy, &mut findings);
            }
            // Denied to this user, or called by another name.
            Err(error) if error.fault() != Fault::Unavailable => findings.push(Finding::warning(
                "this user may not ask INFO, or the server does not know it, so persistence, replicas and memory could not be \
                 looked at",
                "what a restart, a failover or a full memory would do to locks is not known",
            )),
            Err(error) => return Err(error),
        }
        script_cache(&wire, &mut findings).await?;
        self.clock_and_round_trip(&wire, &mut findings).await?;
        counter(&wire, &mut findings).await?;
        self.wake_up(&wire, &mut findings).await;
        Ok(findings)
    }

    async fn clock_and_round_trip(
        &self,
        wire: &Wire,
        findings: &mut Vec<Finding>,
    ) -> Result<(), BackendError> {
        let mut quickest = Duration::MAX;
        let mut skew = Duration::ZERO;
        for _ in 0..TRIES {
            let asked = self.now();
            let shown = wire.time().await?;
            let took = self.now() - asked;
            if took < quickest {
                let ours = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                (quickest, skew) = (took, ours.abs_diff(Duration::from_micros(shown)));
            }
        }
        if skew > SKEW + quickest {
            findings.push(Finding::warning(
                format!("the server's clock and ours are {} apart", seconds(skew)),
                "leases do not mind, but when a clock is put right in one step, forward on the server, locks end early, and \
                 Java's fair waiters, which are judged by their own clocks, lose their places",
            ));
        }
        if quickest > SLOW {
            findings.push(Finding::note(
                format!("a round trip takes {} at best", seconds(quickest)),
                "every lock and unlock takes as long, and a lease of less than twenty times that is lost easily",
            ));
        }
        Ok(())
    }

    /// Calls a waiter that nobody else knows, by a message of its own.
    async fn wake_up(&self, wire: &Wire, findings: &mut Vec<Finding>) {
        let nobody = nobody();
        let asked = self.now();
        let heard = async {
            let mut wakes = self.ear.watch(&nobody).await.map_err(|_| deaf())?;
            // Whoever arms is woken once by that: the message must come after it.
            wakes.next().await.ok_or_else(deaf)?;
            let (mut publish, called) = (redis::cmd("PUBLISH"), self.now());
            let published = wire.ask(publish.arg(channel(&nobody.at.key)).arg("0")).await;
            published.map_err(|error| mute(&error))?;
            wakes.next().await.ok_or_else(deaf)?;
            Ok(self.now() - called)
        };
        let found = match timeout(self.link.dialer.config.command_timeout, heard).await {
            Ok(Ok(took)) if took <= SLOW => return,
            Ok(Ok(took)) => Finding::note(
                format!("a wake-up takes {}", seconds(took)),
                "whoever waits for a lock gets it that much later after its release",
            ),
            Ok(Err(finding)) => finding,
            Err(_) => Finding::warning(
                format!(
                    "no wake-up came within {}: publish and subscribe do not reach us",
                    seconds(self.now() - asked)
                ),
                POLLS,
            ),
        };
        findings.push(found);
    }
}

/// The server has confirmed no subscription. Why, is told to nobody.
fn deaf() -> Finding {
    Finding::warning(
        "wake-ups cannot be subscribed to: see whether this user may SUBSCRIBE and use the channels (ACL SETUSER … +subscribe \
         &*), and whether the server takes another connection",
        POLLS,
    )
}

fn mute(error: &BackendError) -> Finding {
    let why = error
        .source()
        .map_or_else(|| error.to_string(), ToString::to_string);
    Finding::warning(
        format!("wake-ups cannot be published: {why}"),
        "a release publishes as well, so it fails midway, and whoever waits polls",
    )
}

/// A claim that is never placed, on a key that nobody uses, nor another look at the same time: its message would wake us.
fn nobody() -> Claim {
    let id = ClaimId::new(ClientId::from_random([0; 16]), 0);
    let look = LOOKS.fetch_add(1, Ordering::Relaxed);
    let name = format!("tenure_doctor:{}:{look}", std::process::id());
    let key = LockKey::new(name).expect("a short name without control characters");
    Claim::of(ClaimRef { key, id }, Duration::from_secs(1))
}

/// Whether writes are refused for want of replicas. `INFO` names how many are good only where some are asked for.
async fn missing_replicas(wire: &Wire, info: &Info<'_>) -> Option<Finding> {
    info.get("min_slaves_good_slaves")?;
    let good = info.number("min_slaves_good_slaves");
    let asked_for = setting(wire, "min-replicas-to-write").await;
    let asked_for = asked_for.and_then(|count| count.parse().ok()).unwrap_or(1);
    (good < asked_for).then(|| {
        Finding::danger(
            format!(
                "the server takes no writes: `min-replicas-to-write` asks for {asked_for} replica{}, and {good} keep up",
                plural(asked_for)
            ),
            "held locks end with their leases, and no new ones can be had, until enough replicas are back",
        )
    })
}

/// What the server is set to, if it may be asked.
async fn setting(wire: &Wire, name: &str) -> Option<String> {
    let answer = wire.ask(redis::cmd("CONFIG").arg("GET").arg(name)).await;
    let pair = answer.ok()?;
    list(&pair)?.get(1).and_then(text).map(str::to_owned)
}

/// The server's own word, or what `INFO` says where `CONFIG` may not be asked.
async fn eviction_policy(wire: &Wire, info: &Info<'_>) -> String {
    let said = setting(wire, "maxmemory-policy").await;
    said.unwrap_or_else(|| info.get("maxmemory_policy").unwrap_or("noeviction").to_owned())
}

/// How soon the append-only file is on the disk: what a crash of the machine can take. `None` if it may not be asked.
fn syncing(policy: Option<&str>) -> Option<Finding> {
    let consequence =
        "if the machine crashes, locks taken in that time can be held twice until the older lease has ended";
    match policy {
        None => Some(Finding::warning(
            "how soon the append-only file is on the disk could not be asked: this user may not ask CONFIG GET, or the server \
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

/// Whether tokens can be had, and none could come again: they follow the server's clock, and never go back with it.
async fn counter(wire: &Wire, findings: &mut Vec<Finding>) -> Result<(), BackendError> {
    let stands = match wire.ask(redis::cmd("GET").arg(COUNTER)).await {
        Ok(stands) => stands,
        Err(error) if error.fault() == Fault::Unavailable => return Err(error),
        Err(error) => {
            findings.push(Finding::warning(
                format!("the token counter `{COUNTER}` cannot be read: {error}"),
                "whether tokens can be had is not known",
            ));
            return Ok(());
        }
    };
    // As the scripts read it: what is no number counts as none.
    let Some(stands) = text(&stands).and_then(|stands| stands.parse::<f64>().ok()) else {
        return Ok(());
    };
    let ahead = Duration::try_from_secs_f64(stands / 1e6).unwrap_or(Duration::MAX);
    let ahead = ahead.saturating_sub(Duration::from_micros(wire.time().await?));
    if stands >= LAST_TOKEN {
        findings.push(Finding::danger(
            format!("the token counter `{COUNTER}` has been set to {stands}, beyond any token"),
            "no lock can be had: while nobody holds one, delete that key, and tokens go on from the server's time",
        ));
    } else if ahead > AHEAD {
        findings.push(Finding::warning(
            format!("the token counter `{COUNTER}` is {} ahead of the server's clock", age(ahead)),
            "if the server loses its data before its clock gets there, older tokens come again, and whoever checks tokens \
             refuses the new holders until they have passed the old ones",
        ));
    }
    Ok(())
}

/// Whether the server keeps our scripts: some proxies and services do not.
async fn script_cache(wire: &Wire, findings: &mut Vec<Finding>) -> Result<(), BackendError> {
    let answer = match wire.ask(&script::are_known()).await {
        Ok(answer) => answer,
        Err(error) if error.fault() == Fault::Unavailable => return Err(error),
        // Locks do not need it.
        Err(_) => {
            findings.push(Finding::warning(
                "this user may not ask SCRIPT EXISTS, or the server does not know it: `tenure doctor` needs it, though locks do \
                 not (ACL SETUSER … +script|exists)",
                "whether the server forgets our scripts is not known",
            ));
            return Ok(());
        }
    };
    let known = list(&answer).is_some_and(|known| known.iter().all(|one| *one == Value::Int(1)));
    if !known {
        findings.push(Finding::warning(
            "the server has forgotten our scripts since we connected: somebody flushes its script cache",
            "the next lock or unlock takes two round trips instead of one, and nothing else changes",
        ));
    }
    Ok(())
}

fn plural(count: u64) -> &'static str {
    if count == 1 { "" } else { "s" }
}

fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{:.1} ms", time.as_secs_f64() * 1e3)
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

/// A time that may be long.
fn age(time: Duration) -> String {
    match time.as_secs() {
        days @ 172_800.. => format!("{} days", days / 86_400),
        _ => seconds(time),
    }
}
