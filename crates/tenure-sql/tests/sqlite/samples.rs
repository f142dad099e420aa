//! Files that earlier versions wrote: their locks are listed, exclude others and are released.
//!
//! A sample in `samples/` is the output of `sqlite3 FILE .dump`, with the application ID. The test makes its times those of
//! its own clock.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{
    AcquireReply, Backend, BackendError, Claim, ClaimId, ClaimRef, ClientId, Clock, Fairness, LockKey, Loss,
    Mode, Query, RenewReply, TokenRange,
};
use tenure_sql::sqlite::{self, SqliteStore};
use tenure_testkit::ManualClock;
use tenure_testkit::suite::shown;

use crate::fixture::{TestClient, connect, number, open, temp_lock_file};

/// The clients of the samples.
const ANN: ClientId = ClientId::from_random([0xA1; 16]);
const BOB: ClientId = ClientId::from_random([0xB2; 16]);
const EVE: ClientId = ClientId::from_random([0xE3; 16]);

/// A token in the year 2100, to which the counter of `mutex` was raised. The clock gives no greater one before.
const RAISED: u64 = 4_102_444_800_000_000;

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();
const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();
const TWO_OF_THREE: Mode = Mode::Permits { take: TWO, of: THREE };

/// A claim of a sample, or of a client that competes with those of the sample.
fn claim(client: ClientId, number: u64, key: &str, mode: Mode, fairness: Fairness) -> Arc<Claim> {
    let key = LockKey::new(key).expect("keys of tests are valid");
    let at = ClaimRef {
        key,
        id: ClaimId::new(client, number),
    };
    Arc::new(Claim {
        mode,
        fairness,
        ..Claim::of(at, Duration::from_secs(60))
    })
}

fn unfair(client: ClientId, number: u64, key: &str, mode: Mode) -> Arc<Claim> {
    claim(client, number, key, mode, Fairness::Unfair)
}

fn fair(client: ClientId, number: u64, key: &str, mode: Mode) -> Arc<Claim> {
    claim(client, number, key, mode, Fairness::Fifo)
}

async fn acquire(store: &Arc<SqliteStore>, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
    TestClient::new(store.clone()).poll(claim).await
}

async fn is_granted(store: &Arc<SqliteStore>, claim: &Arc<Claim>) -> bool {
    match acquire(store, claim).await.expect("the store answers") {
        AcquireReply::Granted(_) => true,
        AcquireReply::Waiting { .. } => false,
        other => panic!("{claim:?}: {other:?}"),
    }
}

async fn granted(store: &Arc<SqliteStore>, claim: &Arc<Claim>) -> TokenRange {
    match acquire(store, claim).await.expect("the store answers") {
        AcquireReply::Granted(grant) => grant.tokens.expect("each grant has tokens"),
        other => panic!("{claim:?}: {other:?}"),
    }
}

async fn unlock(store: &Arc<SqliteStore>, claim: &Claim) {
    TestClient::new(store.clone()).unlock(claim).await;
}

async fn renew(store: &Arc<SqliteStore>, claim: &Claim) -> RenewReply {
    TestClient::new(store.clone()).renew(claim).await
}

/// One line for each lock: its key, its holders and its waiters.
async fn listed(store: &Arc<SqliteStore>) -> Vec<String> {
    let limit = NonZeroU32::new(100).expect("it is not 0");
    let prefix = "".into();
    let all = Query::Prefix {
        prefix,
        after: None,
        limit,
    };
    let page = store
        .clone()
        .inspect(all)
        .await
        .expect("the store can be inspected");
    page.items.iter().map(shown).collect()
}

/// Loads a sample, with the machine of this process and this clock: its last row was written just now.
async fn load(sample: &str, path: &Path, clock: &ManualClock) {
    let ours = path.with_extension("ours");
    open(&ours).await.expect("the file is made");
    let origin = "SELECT machine, clock_offset FROM store";
    let (machine, offset): (String, i64) = connect(&ours)
        .query_row(origin, [], |row| Ok((row.get(0)?, row.get(1)?)))
        .expect("a new file has an origin");
    let file = connect(path);
    file.execute_batch(sample).expect("the sample is SQL");
    let written = number(&file, "SELECT max(written_at) FROM claim");
    let now = i64::try_from(clock.now().as_nanos()).expect("the clock was started this century");
    // As if written in another time namespace, so the store adds the difference to all times.
    let changed = file.execute(
        "UPDATE store SET machine = ?1, clock_offset = ?2",
        (machine, offset - (now - written)),
    );
    assert_eq!(changed, Ok(1));
}

/// The text of each sample.
fn samples() -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
    let files = fs::read_dir(folder).expect("the samples are there");
    let text = |file: std::io::Result<fs::DirEntry>| {
        let path = file.expect("the folder can be listed").path();
        fs::read_to_string(path).expect("a sample is text")
    };
    let samples: Vec<String> = files.map(text).collect();
    assert!(!samples.is_empty());
    samples
}

/// Opens each sample and calls `check` with its store and its clock, which stands still: no reservation ends meanwhile.
async fn for_each_sample(check: impl AsyncFn(Arc<SqliteStore>, ManualClock)) {
    for sample in samples() {
        let (_dir, path) = temp_lock_file();
        let clock = ManualClock::new();
        load(&sample, &path, &clock).await;
        let opened = sqlite::open(Some(path), Arc::new(clock.clone())).await;
        check(opened.expect("every version opens it"), clock).await;
    }
}

#[tokio::test]
async fn the_locks_of_samples_are_listed() {
    for_each_sample(async |store, _| {
        let line = |key: &str, holders: &[(ClaimId, &str)], waiters: &[(ClaimId, &str)]| {
            let show = |(id, text): &(ClaimId, &str)| format!("{id} {text}");
            let holders: Vec<String> = holders.iter().map(show).collect();
            let waiters: Vec<String> = waiters.iter().map(show).collect();
            format!("{key}: {} | {}", holders.join(", "), waiters.join(", "))
        };
        let [ann, bob, eve] = [ANN, BOB, EVE].map(|client| move |number| ClaimId::new(client, number));
        let expected = [
            line(
                "mutex",
                &[(ann(1), "exclusive ann@one:11")],
                &[(bob(1), "exclusive bob@two:22")],
            ),
            line(
                "seats",
                &[(ann(3), "2 of 3 permits ann@one:11")],
                &[(bob(3), "2 of 3 permits bob@two:22")],
            ),
            line(
                "table",
                &[(ann(2), "read ann@one:11"), (eve(1), "read eve@two:33")],
                &[(bob(2), "write bob@two:22")],
            ),
            line("watched", &[(ann(5), "exclusive ann@one:11")], &[]),
        ];
        assert_eq!(listed(&store).await, expected);
    })
    .await;
}

#[tokio::test]
async fn the_locks_of_samples_exclude_others_until_they_are_released() {
    for_each_sample(async |store, _| {
        let newcomer = ClientId::from_random([0x47; 16]);
        for (number, key, mode) in [
            (1, "mutex", Mode::Exclusive),
            (2, "table", Mode::Read),
            (3, "seats", TWO_OF_THREE),
            (4, "watched", Mode::Exclusive),
        ] {
            assert!(
                !is_granted(&store, &unfair(newcomer, number, key, mode)).await,
                "{key}"
            );
        }
        let holders = [
            unfair(ANN, 1, "mutex", Mode::Exclusive),
            unfair(ANN, 2, "table", Mode::Read),
            unfair(EVE, 1, "table", Mode::Read),
            unfair(ANN, 3, "seats", TWO_OF_THREE),
            unfair(ANN, 5, "watched", Mode::Exclusive),
        ];
        let waiters = [
            fair(BOB, 1, "mutex", Mode::Exclusive),
            fair(BOB, 2, "table", Mode::Write),
            fair(BOB, 3, "seats", TWO_OF_THREE),
            unfair(EVE, 3, "watched", Mode::Exclusive),
        ];
        for waiter in &waiters[..3] {
            assert!(!is_granted(&store, waiter).await, "{waiter:?}");
        }
        for holder in &holders {
            let renewed = renew(&store, holder).await;
            assert!(
                matches!(renewed, RenewReply::Alive { .. }),
                "{holder:?}: {renewed:?}"
            );
            unlock(&store, holder).await;
        }
        let late = unfair(newcomer, 5, "watched", Mode::Exclusive);
        assert!(!is_granted(&store, &late).await, "it is reserved for the watcher");
        for waiter in &waiters {
            let tokens = granted(&store, waiter).await;
            if waiter.at.key.as_str() == "mutex" {
                assert_eq!(tokens.first().get(), RAISED + 1);
            }
            unlock(&store, waiter).await;
        }
        assert_eq!(listed(&store).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn ended_claims_of_samples_stay_ended() {
    for_each_sample(async |store, clock| {
        let evicted = unfair(ANN, 4, "evicted", Mode::Exclusive);
        let renewed = renew(&store, &evicted).await;
        let by_operator = Some(Arc::from("operator"));
        assert!(
            matches!(&renewed, RenewReply::Gone(Loss::Evicted { by }) if *by == by_operator),
            "{renewed:?}"
        );
        for claim in [evicted, unfair(EVE, 2, "ended", Mode::Exclusive)] {
            let reply = acquire(&store, &claim).await;
            assert!(matches!(reply, Ok(AcquireReply::Ended)), "{reply:?}");
            // The cooldown of the eviction ends.
            clock.advance(Duration::from_secs(1));
            let mut client = TestClient::new(store.clone());
            client.wait(claim.at.key.as_str(), Fairness::Unfair).await;
        }
    })
    .await;
}
