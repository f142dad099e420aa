//! The textbook's plain SQL, and that of ShedLock, on the same table as our clients: each excludes the other.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use crate::postgres_fixture::*;
use parking_lot::Mutex;
use tenure_backend::{
    AcquireReply, HolderId, LockKey, Loss, Mode, Phase, ReleaseReply, ReleaseRequest, ReleaseTarget,
    TokenRange,
};
use tenure_testkit::Subject;
use tenure_testkit::suite::TestClient;
use tokio::task::JoinSet;

/// Longer than each lease of a test.
const DAY: Duration = Duration::from_secs(24 * 3600);

/// A case of this layout, one of our clients, another program's client, and a key.
async fn both(layout: &'static str) -> (Case, TestClient, Textbook, LockKey) {
    let case = Case::new(layout).await;
    let textbook = Textbook::new(&case, "thread-12@web-1").await;
    let (ours, key) = case.one().await;
    (case, ours, textbook, key)
}

fn foreign(name: &str) -> HolderId {
    HolderId::Foreign(name.into())
}

/// A request that evicts the holder with this name.
fn eviction_of_foreign(key: &LockKey, name: &str, cooldown: Duration) -> ReleaseRequest {
    let target = ReleaseTarget::Foreign {
        key: key.clone(),
        id: name.into(),
    };
    eviction_of(target, cooldown)
}

fn freed(reply: ReleaseReply) -> Vec<HolderId> {
    match reply {
        ReleaseReply::Done { freed, .. } => freed.into_iter().collect(),
        ReleaseReply::Unknown(error) => panic!("{error:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_clients_and_others_exclude_each_other() {
    for layout in LAYOUTS {
        let (_case, ours, textbook, key) = both(layout).await;
        for _ in 0..2 {
            assert!(textbook.try_lock(key.as_str()).await, "{layout}");
            let claim = ours.claim(&key, Mode::Exclusive);
            ours.waits(&claim).await;
            let status = ours.status(&key).await.expect("it is held");
            assert_eq!(status.holders[0].id, foreign("thread-12@web-1"));
            assert_eq!(ours.list("case:", 10).await.len(), 1);
            assert!(textbook.unlock(key.as_str()).await, "{layout}");
            assert_eq!(ours.status(&key).await, None);

            ours.granted(&claim).await;
            assert!(!textbook.try_lock(key.as_str()).await, "{layout}");
            ours.stays_alive(&claim, Phase::Granted).await;
            assert!(!textbook.try_lock(key.as_str()).await, "{layout}");
            assert!(!textbook.unlock(key.as_str()).await, "{layout}");
            ours.stays_alive(&claim, Phase::Granted).await;
            ours.release(&claim).await.freed_it(&claim);
        }
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
    }
}

/// The client that holds the key now.
#[derive(Clone, Default)]
struct Holder(Arc<Mutex<Option<String>>>);

impl Holder {
    /// Holds the key for a moment. Panics if another client does.
    async fn hold(&self, name: &str) {
        let before = self.0.lock().replace(name.to_owned());
        assert_eq!(before, None, "{name} holds the key as well");
        tokio::task::yield_now().await;
        *self.0.lock() = None;
    }
}

/// Number of grants to each competing client.
const TURNS: usize = 60;

/// Returns the tokens of the grants, in order.
async fn compete(client: TestClient, holder: Holder, key: LockKey) -> Vec<TokenRange> {
    let (mut grants, mut tokens) = (0, Vec::new());
    while grants < TURNS {
        let claim = client.claim(&key, Mode::Exclusive);
        if let AcquireReply::Granted(grant) = client.acquire(&claim).await {
            holder.hold("our client").await;
            tokens.extend(grant.tokens);
            grants += 1;
        }
        client.release(&claim).await;
    }
    tokens
}

async fn compete_by_the_textbook(textbook: Textbook, holder: Holder, key: LockKey) {
    let mut grants = 0;
    while grants < TURNS {
        if textbook.try_lock(key.as_str()).await {
            holder.hold("the textbook's client").await;
            assert!(textbook.unlock(key.as_str()).await);
            grants += 1;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn competing_clients_of_both_kinds_never_hold_together() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let fixture = case.fixture().await;
        let (holder, key) = (Holder::default(), fixture.key());
        let (mut ours, mut others) = (JoinSet::new(), JoinSet::new());
        for name in ["textbook-1", "textbook-2"] {
            let textbook = Textbook::new(&case, name).await;
            ours.spawn(compete(fixture.client().await, holder.clone(), key.clone()));
            others.spawn(compete_by_the_textbook(textbook, holder.clone(), key.clone()));
        }
        let (tokens, _) = soon(async { tokio::join!(ours.join_all(), others.join_all()) }).await;
        for tokens in tokens {
            let rises = tokens.windows(2).all(|two| two[0].last() < two[1].first());
            assert!(rises, "{layout}: tokens rise");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_textbook_client_takes_over_our_expired_row() {
    for layout in ["unique", "shedlock"] {
        let (case, ours, textbook, key) = both(layout).await;
        let claim = ours.claim(&key, Mode::Exclusive);
        let grant = ours.granted(&claim).await;
        case.pass(grant.lease + Duration::from_millis(100)).await;
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
        assert_eq!(ours.is_gone(&claim, Phase::Granted).await, Loss::Missing);
        // R23: a late unlock does not free the other's lock.
        ours.release(&claim).await.freed_nothing();
        ours.finds_busy(&key, Mode::Exclusive).await;
        assert!(textbook.unlock(key.as_str()).await, "{layout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn we_take_over_a_row_that_has_expired() {
    for layout in ["unique", "shedlock"] {
        let (case, ours, textbook, key) = both(layout).await;
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
        ours.finds_busy(&key, Mode::Exclusive).await;
        // Its lease is 30 s.
        case.pass(Duration::from_secs(31)).await;
        let claim = ours.holds(&key, Mode::Exclusive).await;
        assert!(!textbook.try_lock(key.as_str()).await, "{layout}");
        assert!(!textbook.unlock(key.as_str()).await, "{layout}");
        ours.stays_alive(&claim, Phase::Granted).await;
        ours.release(&claim).await.freed_it(&claim);
    }
}

/// The textbook's client knows no lease, so its lock never ends by itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_textbook_holder_of_a_version_never_expires() {
    let (case, ours, textbook, key) = both("version").await;
    assert!(textbook.try_lock(key.as_str()).await);
    assert_eq!(case.row("expire_time", &key), "");
    case.pass(DAY).await;
    ours.finds_busy(&key, Mode::Exclusive).await;
    let status = ours.status(&key).await.expect("it is held");
    assert_eq!(status.holders[0].remaining, None);
    assert!(textbook.unlock(key.as_str()).await);

    // An end that is left over from an earlier holder is not that of the textbook's.
    let (table, now) = (case.table(), format!("{}.now_()", case.schema));
    case.ask(&format!(
        "UPDATE {table} SET expire_time = {now} - interval '1 hour'"
    ));
    assert!(textbook.try_lock(key.as_str()).await);
    for _ in 0..2 {
        ours.finds_busy(&key, Mode::Exclusive).await;
        assert_eq!(
            ours.status(&key).await.expect("it is held").holders[0].remaining,
            None
        );
        case.pass(DAY).await;
    }
    // So is one that is just the time of the take.
    case.ask(&format!("UPDATE {table} SET expire_time = update_time"));
    ours.finds_busy(&key, Mode::Exclusive).await;
    assert!(textbook.unlock(key.as_str()).await);
    ours.finds_free(&key, Mode::Exclusive).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_version_counts_takes_and_releases() {
    let (case, ours, textbook, key) = both("version").await;
    let version = || {
        let version: u64 = case.row("version", &key).parse().expect("a number");
        version
    };
    assert!(textbook.try_lock(key.as_str()).await);
    assert!(textbook.unlock(key.as_str()).await);
    assert_eq!(version(), 2);
    for tokens in [1, 7, 1024] {
        let before = version();
        let claim = ours.claim_as(&key, Mode::Exclusive, |claim| {
            claim.grants = NonZeroU32::new(tokens).expect("not zero");
        });
        let run = ours.granted(&claim).await.tokens.expect("tokens");
        assert_eq!((run.first().get(), run.count().get()), (before + 1, tokens));
        assert_eq!(version(), before + u64::from(tokens));
        let row = case.row("version, update_time, locked, lock_holder", &key);
        let end = case.row("expire_time", &key);
        case.pass(Duration::from_secs(5)).await;
        ours.stays_alive(&claim, Phase::Granted).await;
        assert_eq!(case.row("version, update_time, locked, lock_holder", &key), row);
        assert_ne!(case.row("expire_time", &key), end);
        ours.release(&claim).await.freed_it(&claim);
        assert_eq!(version(), before + u64::from(tokens) + 1);
        let free = case.row("locked, lock_holder, expire_time", &key);
        assert_eq!(
            free, "f||",
            "a left-over end would make the next holder's lock expire"
        );
        assert!(textbook.try_lock(key.as_str()).await);
        assert!(textbook.unlock(key.as_str()).await);
    }
}

/// A textbook client reads the version before we take and release the row, and then finds another.
#[tokio::test(flavor = "multi_thread")]
async fn a_textbook_client_that_read_an_old_version_gets_nothing() {
    let (case, ours, _textbook, key) = both("version").await;
    let claim = ours.holds(&key, Mode::Exclusive).await;
    ours.release(&claim).await.freed_it(&claim);
    let seen = case.row("version", &key);
    ours.finds_free(&key, Mode::Exclusive).await;
    let late = format!(
        "UPDATE {} SET locked = true WHERE resource_key = '{key}' AND version = {seen} AND locked = false RETURNING 1",
        case.table()
    );
    assert_eq!(case.ask(&late), "");
}

/// The first step takes the row from its holder, and keeps it from being taken. The second step frees it: a textbook client
/// does not know the end of the cooldown.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_from_a_version_has_two_steps() {
    let (case, ours, textbook, key) = both("version").await;
    for is_foreign in [true, false] {
        let held = match is_foreign {
            true => {
                assert!(textbook.try_lock(key.as_str()).await);
                None
            }
            false => Some(ours.holds(&key, Mode::Exclusive).await),
        };
        let before: u64 = case.row("version", &key).parse().expect("a number");
        let cooldown = Duration::from_secs(2);
        let request = match &held {
            None => eviction_of_foreign(&key, "thread-12@web-1", cooldown),
            Some(claim) => eviction_of(ReleaseTarget::Claim(claim.at.clone()), cooldown),
        };
        let store = case.open().await;
        let evicting = tokio::spawn(async move { freed(release(&store, request).await) });
        let first = format!("{}|t|", before + 1);
        wait_until("the holder has lost the row", || {
            case.row("version, locked, lock_holder", &key) == first
        })
        .await;
        ours.finds_busy(&key, Mode::Exclusive).await;
        assert!(!textbook.try_lock(key.as_str()).await);
        assert_eq!(ours.status(&key).await, None, "it has no holder");
        let gone = soon(evicting).await.expect("no panic");
        match &held {
            None => assert_eq!(gone, [foreign("thread-12@web-1")]),
            Some(claim) => assert_eq!(gone, [HolderId::Claim(claim.at.id)]),
        }
        let second = format!("{}|f||", before + 2);
        assert_eq!(
            case.row("version, locked, lock_holder, expire_time", &key),
            second
        );
        assert!(!textbook.unlock(key.as_str()).await, "it is no longer the holder");
        if let Some(claim) = held {
            ours.is_gone(&claim, Phase::Granted).await;
        }
        assert!(textbook.try_lock(key.as_str()).await, "the row is free");
        assert!(textbook.unlock(key.as_str()).await);
    }
}

/// The evicting process dies before the second step. Our clients take the row by its end, and free it for others.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_that_dies_halfway_leaves_the_key_to_us() {
    let (case, ours, textbook, key) = both("version").await;
    assert!(textbook.try_lock(key.as_str()).await);
    let cooldown = Duration::from_secs(60);
    let dying = tokio::runtime::Runtime::new().expect("a runtime");
    let evicting = {
        let (case, request) = (
            case.clone(),
            eviction_of_foreign(&key, "thread-12@web-1", cooldown),
        );
        dying.spawn(async move {
            let store = case.open().await;
            release(&store, request).await
        })
    };
    wait_until("the holder has lost the row", || {
        case.row("locked, lock_holder", &key) == "t|"
    })
    .await;
    dying.shutdown_background();
    assert!(evicting.await.is_err(), "the process has died");
    ours.finds_busy(&key, Mode::Exclusive).await;
    case.pass(cooldown).await;
    assert!(!textbook.try_lock(key.as_str()).await, "it knows no end");
    ours.finds_free(&key, Mode::Exclusive).await;
    assert!(textbook.try_lock(key.as_str()).await);
}

/// The second step frees only the row that the first one left.
#[tokio::test(flavor = "multi_thread")]
async fn an_eviction_frees_no_later_holder() {
    let (case, ours, textbook, key) = both("version").await;
    assert!(textbook.try_lock(key.as_str()).await);
    let cooldown = Duration::from_secs(2);
    let store = case.open().await;
    let request = eviction_of_foreign(&key, "thread-12@web-1", cooldown);
    let evicting = tokio::spawn(async move { release(&store, request).await });
    wait_until("the holder has lost the row", || {
        case.row("locked, lock_holder", &key) == "t|"
    })
    .await;
    // On the server's clock the cooldown has passed before the evicting client looks again.
    case.pass(cooldown).await;
    let next = ours.holds(&key, Mode::Exclusive).await;
    assert_eq!(
        freed(evicting.await.expect("no panic")),
        [foreign("thread-12@web-1")]
    );
    ours.stays_alive(&next, Phase::Granted).await;
    assert!(!textbook.try_lock(key.as_str()).await);
    ours.release(&next).await.freed_it(&next);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_evicted_row_stays_until_the_cooldown_has_passed() {
    for layout in ["unique", "shedlock"] {
        let (case, ours, textbook, key) = both(layout).await;
        let cooldown = Duration::from_secs(60);
        let evict = async |target| {
            let request = eviction_of(target, cooldown);
            freed(release(ours.backend(), request).await)
        };
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
        let gone = freed(
            release(
                ours.backend(),
                eviction_of_foreign(&key, "thread-12@web-1", cooldown),
            )
            .await,
        );
        assert_eq!(gone, [foreign("thread-12@web-1")]);
        assert!(
            !textbook.try_lock(key.as_str()).await,
            "{layout}: it waits for the cooldown as well"
        );
        assert!(
            !textbook.unlock(key.as_str()).await,
            "{layout}: it is no longer the holder"
        );
        ours.finds_busy(&key, Mode::Exclusive).await;
        assert_eq!(ours.status(&key).await, None, "{layout}: it has no holder");
        assert_eq!(evict(ReleaseTarget::All(key.clone())).await, []);
        case.pass(cooldown).await;
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
        assert!(textbook.unlock(key.as_str()).await, "{layout}");

        let held = ours.holds(&key, Mode::Exclusive).await;
        let gone = evict(ReleaseTarget::Claim(held.at.clone())).await;
        assert_eq!(gone, [HolderId::Claim(held.at.id)]);
        let by = Some("alice".into());
        assert_eq!(ours.is_gone(&held, Phase::Granted).await, Loss::Evicted { by });
        assert!(!textbook.try_lock(key.as_str()).await, "{layout}");
        case.pass(cooldown).await;
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
    }
}

/// Rows of holders that have died are removed once they cannot be mistaken for held ones.
#[tokio::test(flavor = "multi_thread")]
async fn rows_that_expired_long_ago_are_swept() {
    let case = Case::new("unique").await.with("sweep_after=10m");
    let fixture = case.fixture().await;
    let client = fixture.client().await;
    let textbook = Textbook::new(&case, "thread-12@web-1").await;
    let [old, evicted, young] = [(); 3].map(|()| fixture.key());
    client.granted(&client.short_lease(&old, Mode::Exclusive)).await;
    assert!(textbook.try_lock(evicted.as_str()).await);
    let request = eviction_of_foreign(&evicted, "thread-12@web-1", Duration::from_millis(10));
    release(client.backend(), request).await;
    case.pass(Duration::from_secs(500)).await;
    client.granted(&client.short_lease(&young, Mode::Exclusive)).await;
    case.pass(Duration::from_secs(200)).await;
    // A grant starts the sweep if the last one is a minute old.
    client.finds_free(&fixture.key(), Mode::Exclusive).await;
    for key in [&old, &evicted] {
        wait_until("the row is swept", || case.row("1", key).is_empty()).await;
    }
    assert_eq!(case.row("1", &young), "1");
}

/// The textbook's tables differ in what is not needed for locking.
#[tokio::test(flavor = "multi_thread")]
async fn tables_as_textbooks_create_them_are_accepted() {
    for (layout, table) in [
        (
            "unique",
            "id SERIAL PRIMARY KEY, lock_key VARCHAR(255) UNIQUE NOT NULL, lock_value VARCHAR(255) NOT NULL,
             expire_time TIMESTAMPTZ NOT NULL, create_time TIMESTAMPTZ DEFAULT CURRENT_TIMESTAMP, note TEXT",
        ),
        (
            "version",
            "id BIGSERIAL PRIMARY KEY, resource_key TEXT NOT NULL UNIQUE, version BIGINT NOT NULL DEFAULT 0,
             locked BOOLEAN NOT NULL DEFAULT FALSE, lock_holder TEXT, update_time TIMESTAMPTZ DEFAULT now(),
             expire_time TIMESTAMPTZ",
        ),
        (
            "shedlock",
            "name VARCHAR(64), lock_until TIMESTAMP(3) NULL, locked_at TIMESTAMP(3) NULL, locked_by VARCHAR(255),
             PRIMARY KEY (name)",
        ),
    ] {
        let (case, _, textbook, key) = both(layout).await;
        let name = case.table();
        case.script(&format!(
            "DROP TABLE {name}; CREATE TABLE {name} ({table}); GRANT ALL ON {name} TO {ROLE};
             GRANT USAGE ON ALL SEQUENCES IN SCHEMA {} TO {ROLE}",
            case.schema
        ))
        .await;
        let (ours, _) = case.one().await;
        let claim = ours.holds(&key, Mode::Exclusive).await;
        ours.stays_alive(&claim, Phase::Granted).await;
        assert!(!textbook.try_lock(key.as_str()).await, "{layout}");
        ours.release(&claim).await.freed_it(&claim);
        // ShedLock's times have milliseconds here.
        case.pass(Duration::from_millis(1)).await;
        assert!(textbook.try_lock(key.as_str()).await, "{layout}");
        ours.finds_busy(&key, Mode::Exclusive).await;
        assert!(textbook.unlock(key.as_str()).await, "{layout}");
    }
}

/// ShedLock reads and writes times without a zone, in UTC, whatever the session's zone is.
#[tokio::test(flavor = "multi_thread")]
async fn shedlocks_rows_have_times_in_utc() {
    for (options, zone) in [
        ("", "'UTC'"),
        ("options=-c%20timezone%3DAmerica/New_York", "'UTC'"),
        ("time_zone=Europe/Berlin", "'Europe/Berlin'"),
        ("time_zone=%2B02:00", "interval '2 hours'"),
        ("time_zone=-03:30", "interval '-3 hours -30 minutes'"),
    ] {
        let case = Case::new("shedlock").await;
        let (ours, key) = match options {
            "" => case.one().await,
            options => case.clone().with(options).one().await,
        };
        let claim = ours.holds(&key, Mode::Exclusive).await;
        let now = format!("timezone({zone}, {}.now_())", case.schema);
        let fits = format!(
            "locked_at BETWEEN {now} - interval '30 s' AND {now},
             lock_until BETWEEN locked_at + interval '59 s' AND locked_at + interval '61 s', locked_by"
        );
        let holder = format!("{} testkit@host:1", claim.at.id);
        assert_eq!(case.row(&fits, &key), format!("t|t|{holder}"), "{zone}");
        let locked_at = case.row("locked_at", &key);
        case.pass(Duration::from_secs(5)).await;
        ours.stays_alive(&claim, Phase::Granted).await;
        let longer =
            "lock_until BETWEEN locked_at + interval '64 s' AND locked_at + interval '99 s', locked_at";
        assert_eq!(case.row(longer, &key), format!("t|{locked_at}"));
        ours.release(&claim).await.freed_it(&claim);
        // The row stays, as ShedLock's own.
        let free = format!("lock_until BETWEEN locked_at AND {now}, locked_at, locked_by");
        assert_eq!(case.row(&free, &key), format!("t|{locked_at}|{holder}"));
    }
}

/// ShedLock keeps a name locked for a time after its task has ended, so that other machines do not run it again.
#[tokio::test(flavor = "multi_thread")]
async fn a_name_that_shedlock_keeps_locked_is_held() {
    let (case, ours, shedlock, key) = both("shedlock").await;
    assert!(shedlock.try_lock(key.as_str()).await);
    case.pass(Duration::from_secs(20)).await;
    assert!(shedlock.extend(key.as_str()).await);
    case.pass(Duration::from_secs(20)).await;
    ours.finds_busy(&key, Mode::Exclusive).await;
    assert!(shedlock.unlock_after(key.as_str(), 60).await);
    ours.finds_busy(&key, Mode::Exclusive).await;
    case.pass(Duration::from_secs(20)).await;
    ours.finds_free(&key, Mode::Exclusive).await;
    assert!(shedlock.try_lock(key.as_str()).await);
    assert!(shedlock.unlock(key.as_str()).await);
    assert!(!shedlock.extend(key.as_str()).await);
    ours.finds_free(&key, Mode::Exclusive).await;
}
