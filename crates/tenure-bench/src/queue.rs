//! Measures the server time of a hand-over in a fair queue on Redis, with few waiters and with many.
//!
//! A hand-over has three steps: a claim joins the queue at its tail, the holder is released, and the new head of the
//! queue is polled and granted. Each waiter needs these steps once. The engine's repeated polls are left out, because
//! their frequency depends on the number of waiters.

use std::collections::VecDeque;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use tenure::StoreUrl;
use tenure::backend::{
    AcquireReply, Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness, LockKey, Mode,
    ReleaseReply, ReleaseRequest,
};
use tenure::redis::{Config, RedisStore};

use crate::Fallible;
use crate::cli::Queueing;
use crate::plan::{Client, Distance, Store};
use crate::report::{table, thousands};
use crate::site::{Site, Sites, check};
use crate::stats::{median, verdict};

/// Number of hand-overs of a round.
const HAND_OVERS: usize = 100;

/// The lease of each claim, longer than the measurement.
const LEASE: Duration = Duration::from_secs(3600);

/// Time limit of a call to the store.
const LIMIT: Duration = Duration::from_secs(5);

const HEAD: [&str; 5] = [
    "lock",
    "waiters",
    "rounds",
    "µs of the server",
    "beside the first",
];

/// A fair queue with its server, which nothing else uses.
struct Queue {
    store: Arc<RedisStore>,
    server: MultiplexedConnection,
    mode: Mode,
    key: LockKey,
    client: ClientId,
    /// Number of claims so far.
    claims: u64,
    /// The holder, then the waiters.
    queued: VecDeque<Arc<Claim>>,
    /// Time that the server spent on one hand-over, in µs, in each round.
    rounds: Vec<f64>,
    _site: Site,
}

/// Prints the server time of a hand-over for each number of waiters, on a mutex and on a read-write lock.
pub(crate) fn run(args: &Queueing) -> Fallible<()> {
    check(Store::Redis)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    let rows = runtime.block_on(measure(args))?;
    print!("{}", table(&HEAD, &rows));
    Ok(())
}

async fn measure(args: &Queueing) -> Fallible<Vec<Vec<String>>> {
    let sites = Sites::prepare(std::env::temp_dir(), Distance::Near)?;
    let mut rows = Vec::new();
    for (name, mode) in [("mutex", Mode::Exclusive), ("write lock", Mode::Write)] {
        let mut queues = Vec::new();
        for &waiters in &args.waiters {
            let mut queue = Queue::make(mode, &sites).await?;
            for _ in 0..=waiters {
                queue.enter().await?;
            }
            queues.push(queue);
        }
        for _ in 0..args.rounds {
            for queue in &mut queues {
                queue.round().await?;
            }
        }
        let first = queues
            .first()
            .map(|queue| queue.rounds.clone())
            .unwrap_or_default();
        rows.extend(args.waiters.iter().zip(&queues).map(|(waiters, queue)| {
            vec![
                name.to_owned(),
                thousands(*waiters as f64),
                format!("{} of {HAND_OVERS} hand-overs", args.rounds),
                format!("{:.1}", median(&queue.rounds)),
                verdict(&queue.rounds, &first),
            ]
        }));
    }
    Ok(rows)
}

impl Queue {
    async fn make(mode: Mode, sites: &Sites) -> Fallible<Self> {
        let site = Site::make(Store::Redis, Client::Tenure, sites).await?;
        let url = &site.location.url;
        let config = Config::from_url(&StoreUrl::parse(url)?)?;
        Ok(Queue {
            store: RedisStore::connect(config).await?,
            server: redis::Client::open(&**url)?
                .get_multiplexed_async_connection()
                .await?,
            mode,
            key: LockKey::new("one")?,
            client: ClientId::from_random([7; 16]),
            claims: 0,
            queued: VecDeque::new(),
            rounds: Vec::new(),
            _site: site,
        })
    }

    /// Queues a new claim at the tail.
    async fn enter(&mut self) -> Fallible<()> {
        self.claims += 1;
        let at = ClaimRef {
            key: self.key.clone(),
            id: ClaimId::new(self.client, self.claims),
        };
        let claim = Arc::new(Claim {
            mode: self.mode,
            fairness: Fairness::Fifo,
            grants: NonZeroU32::MIN,
            ..Claim::of(at, LEASE)
        });
        self.ask(&claim).await?;
        self.queued.push_back(claim);
        Ok(())
    }

    async fn ask(&self, claim: &Arc<Claim>) -> Fallible<AcquireReply> {
        let not_after = self.store.clock().now() + LIMIT;
        Ok(self.store.clone().acquire(claim.clone(), not_after).await?)
    }

    async fn round(&mut self) -> Fallible<()> {
        let before = self.server_time().await?;
        for _ in 0..HAND_OVERS {
            self.enter().await?;
            let holder = self.queued.pop_front().ok_or("the queue has no holder")?;
            let release = Batch::from_iter([ReleaseRequest::of(&holder, Cause::Unlocked)]);
            match &self.store.clone().release(release).await[..] {
                [ReleaseReply::Done { freed, .. }] if freed.len() == 1 => {}
                other => return Err(format!("the holder was not released: {other:?}").into()),
            }
            let head = self.queued.front().ok_or("the queue has no head")?;
            let AcquireReply::Granted(_) = self.ask(head).await? else {
                return Err("the head of the queue was not granted".into());
            };
        }
        let time = self.server_time().await? - before;
        self.rounds.push(time / HAND_OVERS as f64);
        Ok(())
    }

    /// Time that the server has spent in scripts so far, in µs.
    async fn server_time(&mut self) -> Fallible<f64> {
        let stats: String = redis::cmd("INFO")
            .arg("commandstats")
            .query_async(&mut self.server)
            .await?;
        let scripts = stats
            .lines()
            .find_map(|line| line.strip_prefix("cmdstat_evalsha:"));
        let time = scripts.and_then(|stats| stats.split(',').find_map(|stat| stat.strip_prefix("usec=")));
        Ok(time.ok_or("the server reports no time of scripts")?.parse()?)
    }
}
