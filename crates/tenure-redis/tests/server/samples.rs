//! Data that earlier versions wrote to Redis: its locks are listed, exclude others and are released.

use std::fs;
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use tenure_backend::{
    AcquireReply, Backend, Claim, ClaimId, ClaimRef, ClientId, Fairness, HolderId, LockKey, Mode, Query,
    ReleaseReply, RenewReply, RenewRequest,
};
use tenure_redis::RedisStore;
use tenure_testkit::suite::shown;

/// The clients of the samples.
const ANN: ClientId = ClientId::from_random([0xA1; 16]);
const BOB: ClientId = ClientId::from_random([0xB2; 16]);
const EVE: ClientId = ClientId::from_random([0xE3; 16]);

/// A client that is not in the samples.
const NEWCOMER: ClientId = ClientId::from_random([0x47; 16]);

const TWO: NonZeroU32 = NonZeroU32::new(2).unwrap();
const THREE: NonZeroU32 = NonZeroU32::new(3).unwrap();
const TWO_OF_THREE: Mode = Mode::Permits { take: TWO, of: THREE };

fn claim(client: ClientId, number: u64, key: &str, mode: Mode, fairness: Fairness) -> Arc<Claim> {
    let key = LockKey::new(key).expect("keys of tests are valid");
    let id = ClaimId::new(client, number);
    Arc::new(Claim {
        mode,
        fairness,
        ..Claim::of(ClaimRef { key, id }, Duration::from_secs(60))
    })
}

fn unfair(client: ClientId, number: u64, key: &str, mode: Mode) -> Arc<Claim> {
    claim(client, number, key, mode, Fairness::Unfair)
}

fn fair(client: ClientId, number: u64, key: &str, mode: Mode) -> Arc<Claim> {
    claim(client, number, key, mode, Fairness::Fifo)
}

/// A server with the data of a sample, and a store of the sample's layout.
struct Sample {
    fixture: Fixture,
    store: Arc<RedisStore>,
}

impl Sample {
    async fn load(file: &Path, layout: &str) -> Self {
        let fixture = Fixture::new().await;
        let text = fs::read_to_string(file).expect("a sample is text");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            fixture.send(&words(line, fixture.now_ms()));
        }
        let url = format!("{}?layout={layout}", fixture.redis.lock().url());
        let store = connect(&url).await.expect("the server answers");
        Sample { fixture, store }
    }

    /// All samples of a layout.
    async fn of_layout(layout: &str) -> Vec<Self> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/samples");
        let mut samples = Vec::new();
        for file in fs::read_dir(folder).expect("the samples are there") {
            let file = file.expect("the folder can be listed");
            if file.file_name().to_string_lossy().starts_with(layout) {
                samples.push(Sample::load(&file.path(), layout).await);
            }
        }
        assert!(!samples.is_empty(), "{layout}");
        samples
    }

    async fn is_granted(&self, claim: &Arc<Claim>) -> bool {
        let reply = acquire(&self.store, claim).await;
        assert!(is_granted(&reply) || is_waiting(&reply), "{claim:?}: {reply:?}");
        is_granted(&reply)
    }

    /// Polls, renews and releases a claim that holds. The poll tells the client which kind of lock it is.
    async fn ends(&self, claim: &Arc<Claim>) {
        assert!(self.is_granted(claim).await, "{claim:?}");
        let renewed = renew(&self.store, RenewRequest::of(claim)).await;
        assert!(
            matches!(renewed, RenewReply::Alive { .. }),
            "{claim:?}: {renewed:?}"
        );
        let released = release(&self.store, unlock_of(claim)).await;
        let ReleaseReply::Done { freed, .. } = &released else {
            panic!("{claim:?}: {released:?}")
        };
        assert_eq!(freed[..], [HolderId::Claim(claim.at.id)]);
    }

    /// Grants the claim, whose token must be the first one after those of the sample.
    async fn is_granted_the_next_token(&self, claim: &Arc<Claim>) {
        let before: u64 = self
            .fixture
            .text(&["GET", "tenure_tokens"])
            .parse()
            .expect("a number");
        let reply = acquire(&self.store, claim).await;
        let Ok(AcquireReply::Granted(grant)) = reply else {
            panic!("{claim:?}: {reply:?}")
        };
        let tokens = grant.tokens.expect("each grant has tokens");
        assert_eq!(tokens.first().get(), before + 1);
    }

    /// One line for each lock of the samples: its key, its holders and its waiters.
    async fn listed(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for key in ["evicted", "mutex", "seats", "table"] {
            let query = Query::Key(LockKey::new(key).expect("keys of tests are valid"));
            let page = self.store.clone().inspect(query).await;
            let page = page.expect("the store can be inspected");
            lines.extend(page.items.iter().map(shown));
        }
        lines
    }

    /// The claim of the sample that was evicted has ended, and its key is free.
    async fn has_an_evicted_claim(&self) {
        let evicted = unfair(ANN, 4, "evicted", Mode::Exclusive);
        assert_evicted_by(&renew(&self.store, RenewRequest::of(&evicted)).await, "operator");
        let reply = acquire(&self.store, &evicted).await;
        assert!(matches!(reply, Ok(AcquireReply::Ended)), "{reply:?}");
        let newcomer = unfair(NEWCOMER, 100, "evicted", Mode::Exclusive);
        let free = async {
            while !self.is_granted(&newcomer).await {
                // sleep: until the cooldown of 10 ms has ended.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(free).await;
        self.ends(&newcomer).await;
    }
}

/// The words of a line of a sample at this time of the server.
fn words(line: &str, now_ms: i64) -> Vec<Vec<u8>> {
    let word = |word: &str| match word.strip_prefix('@') {
        Some(ms) => (now_ms + ms.parse::<i64>().expect("a number"))
            .to_string()
            .into_bytes(),
        None => unescape(word),
    };
    line.split(' ').map(word).collect()
}

/// Decodes bytes such as `\xA1`.
fn unescape(word: &str) -> Vec<u8> {
    let mut parts = word.split("\\x");
    let mut bytes = parts.next().unwrap_or_default().as_bytes().to_vec();
    for part in parts {
        let (digits, rest) = part.split_at(2);
        bytes.push(u8::from_str_radix(digits, 16).expect("two hexadecimal digits"));
        bytes.extend_from_slice(rest.as_bytes());
    }
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_redisson_are_listed_and_released() {
    for sample in Sample::of_layout("redisson").await {
        let [ann, bob, eve] = [ANN, BOB, EVE].map(|client| move |number| ClaimId::new(client, number));
        let expected = [
            format!(
                "mutex: {} exclusive ann@one:11 | {} exclusive bob@two:22, {} exclusive eve@two:33",
                ann(1),
                bob(1),
                eve(2)
            ),
            format!(
                "seats: {} 2 of 3 permits ann@one:11 | {} 2 of 3 permits bob@two:22",
                ann(3),
                bob(3)
            ),
            format!(
                "table: {} read ann@one:11, {} read eve@two:33 | {} write bob@two:22",
                ann(2),
                eve(1),
                bob(2)
            ),
        ];
        assert_eq!(sample.listed().await, expected);
        for (number, key, mode) in [
            (1, "mutex", Mode::Exclusive),
            (2, "table", Mode::Read),
            (3, "seats", TWO_OF_THREE),
        ] {
            assert!(
                !sample.is_granted(&unfair(NEWCOMER, number, key, mode)).await,
                "{key}"
            );
        }
        let waiters = [
            fair(BOB, 1, "mutex", Mode::Exclusive),
            fair(EVE, 2, "mutex", Mode::Exclusive),
            fair(BOB, 2, "table", Mode::Write),
            fair(BOB, 3, "seats", TWO_OF_THREE),
        ];
        for waiter in &waiters {
            assert!(!sample.is_granted(waiter).await, "{waiter:?}");
        }
        for holder in [
            unfair(ANN, 1, "mutex", Mode::Exclusive),
            unfair(ANN, 2, "table", Mode::Read),
            unfair(EVE, 1, "table", Mode::Read),
            unfair(ANN, 3, "seats", TWO_OF_THREE),
        ] {
            sample.ends(&holder).await;
        }
        assert!(
            !sample.is_granted(&waiters[1]).await,
            "it is the second in the queue"
        );
        for waiter in &waiters {
            sample.is_granted_the_next_token(waiter).await;
            sample.ends(waiter).await;
        }
        sample.has_an_evicted_claim().await;
        assert_eq!(sample.listed().await, Vec::<String>::new());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn samples_of_plain_are_listed_and_released() {
    for sample in Sample::of_layout("plain").await {
        let holder = unfair(ANN, 1, "mutex", Mode::Exclusive);
        let expected = format!("mutex: {} exclusive ann@one:11 | ", holder.at.id);
        assert_eq!(sample.listed().await, [expected]);
        let newcomer = unfair(NEWCOMER, 1, "mutex", Mode::Exclusive);
        assert!(!sample.is_granted(&newcomer).await);
        sample.ends(&holder).await;
        sample.is_granted_the_next_token(&newcomer).await;
        sample.ends(&newcomer).await;
        sample.has_an_evicted_claim().await;
        assert_eq!(sample.listed().await, Vec::<String>::new());
    }
}
