//! What a lock costs beside the bare calls of the same scripts on the same client library: alone, and for many tasks on keys
//! of their own. Needs `redis-server`; run with `--release`.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::{Duration, Instant};

use redis::aio::MultiplexedConnection;
use tenure_backend::{
    Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Holder, LockKey, Mode,
    OwnerId, Standing,
};
use tenure_endpoint::StoreUrl;
use tenure_redis::{Config, RedisStore};
use tenure_servers::Redis;

const TASKS: u64 = 256;

/// One round of a measurement; the whole is their median.
const ROUND: Duration = Duration::from_secs(1);
const ROUNDS: usize = 5;

fn main() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
    runtime.block_on(async {
        let server = Redis::start().expect("redis-server starts");
        let url = StoreUrl::parse(&server.url()).expect("a URL");
        let config = Config::from_url(&url).expect("a server's URL");
        let store = RedisStore::connect(config).await.expect("the server answers");
        let client = redis::Client::open(server.url()).expect("a URL");
        let bare = client
            .get_multiplexed_async_connection()
            .await
            .expect("the server answers");
        for tasks in [1, TASKS] {
            let (mut ours, mut bares) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                bares.push(rate(tasks, |task| bare_lock(bare.clone(), task)).await);
                ours.push(rate(tasks, |task| lock(store.clone(), task)).await);
            }
            let (ours, bares) = (median(ours), median(bares));
            println!(
                "{tasks} tasks: {ours:.0} locks/s, bare {bares:.0}/s, {:.3} of it",
                ours / bares
            );
        }
        println!(
            "{}",
            server.ask(&["INFO", "commandstats"]).expect("the server answers")
        );
    });
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates[rates.len() / 2]
}

async fn rate<F: Future<Output = u64> + Send + 'static>(tasks: u64, work: impl Fn(u64) -> F) -> f64 {
    let began = Instant::now();
    let running: Vec<_> = (0..tasks).map(|task| tokio::spawn(work(task))).collect();
    let mut done = 0;
    for task in running {
        done += task.await.expect("no task fails");
    }
    done as f64 / began.elapsed().as_secs_f64()
}

async fn lock(store: Arc<RedisStore>, task: u64) -> u64 {
    let key = LockKey::new(format!("measure:{task}")).expect("a key");
    let client = ClientId::from_random([u8::try_from(task).expect("few tasks"); 16]);
    let began = Instant::now();
    let mut done = 0;
    let base = u64::try_from(
        std::time::SystemTime::UNIX_EPOCH
            .elapsed()
            .expect("a clock")
            .as_nanos(),
    )
    .expect("this century");
    while began.elapsed() < ROUND {
        let claim = Arc::new(Claim {
            at: ClaimRef {
                key: key.clone(),
                id: ClaimId::new(client, base + done),
            },
            owner: OwnerId(1),
            label: "ada@web-1:4711".into(),
            mode: Mode::Exclusive,
            fairness: Fairness::Unfair,
            lease: Duration::from_secs(30),
            grants: NonZeroU32::new(64).expect("not zero"),
        });
        let place_by = store.clock().now() + Duration::from_secs(5);
        let standing = store.clone().acquire(claim.clone(), place_by).await;
        assert!(matches!(standing, Ok(Standing::Granted(_))), "{standing:?}");
        let departure = Departure {
            who: Holder::Claim(claim.at.clone()),
            cause: Cause::Unlocked,
            heir: None,
            bar: Duration::ZERO,
        };
        store.clone().release(Batch::from_iter([departure])).await;
        done += 1;
    }
    done
}

async fn bare_lock(mut connection: MultiplexedConnection, task: u64) -> u64 {
    let with_place = |text: &str| {
        let place = include_str!("../scripts/redisson_place.lua");
        redis::Script::new(&text.replace("--: include redisson_place\n", place))
    };
    let acquire = with_place(include_str!("../scripts/redisson_acquire.lua"));
    let release = with_place(include_str!("../scripts/redisson_release.lua"));
    let base = std::time::SystemTime::UNIX_EPOCH
        .elapsed()
        .expect("a clock")
        .as_nanos();
    let (name, client) = (format!("bare:{task}"), "07070707-0707-4707-8707-070707070707");
    let began = Instant::now();
    let mut done = 0;
    while began.elapsed() < ROUND {
        let owner = format!("{client}:{task}{}", base + u128::from(done));
        let mut call = acquire.key(&name);
        call.key("tenure_tokens")
            .arg(&owner)
            .arg(30_000)
            .arg(9_000_000_000_000_000_u64)
            .arg(64)
            .arg("ada@web-1:4711")
            .arg("");
        let _: redis::Value = call.invoke_async(&mut connection).await.expect("the script runs");
        let mut call = release.key(&name);
        call.key("tenure_tokens")
            .arg(&owner)
            .arg("E")
            .arg(0)
            .arg(0)
            .arg(client);
        let _: redis::Value = call.invoke_async(&mut connection).await.expect("the script runs");
        done += 1;
    }
    done
}
