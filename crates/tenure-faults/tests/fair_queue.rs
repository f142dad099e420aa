//! A long fair queue on Redis: waiters of many processes are served in the order in which they came, also when some of
//! them are killed. What else befalls a lock is in `redis.rs`.

use std::env;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tenure_servers::Redis;
use tenure_testkit::Dice;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Tells a process of this test that it is to wait for the lock, and where.
const URL: &str = "TENURE_FAIR_QUEUE";
const KEY: &str = "the long queue";
const PROCESSES: usize = 8;
const WAITERS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(5);
/// How much later than a dead waiter's lease the next may be served, on a machine that is busy otherwise.
const GRACE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process of waiters prints, in JSON: the number of a waiter that has come to wait, or was served with that token.
type Said = (usize, Option<u64>);

/// A process of waiters: each number that it is told becomes a task that waits, and says so.
struct Crowd {
    /// Killed when this is dropped.
    _process: Child,
    told: ChildStdin,
}

impl Crowd {
    fn start(url: &str, tell: UnboundedSender<Said>) -> Self {
        let mut process = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--exact", "waiter_process", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started once more");
        let told = process.stdin.take().expect("it was asked for");
        let mut lines = BufReader::new(process.stdout.take().expect("it was asked for")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // The harness of tests prints too. The test may have ended, and listens no more.
                let _ = serde_json::from_str(&line).map(|said| tell.send(said));
            }
        });
        Crowd {
            _process: process,
            told,
        }
    }
}

/// The other processes' half of the test below: without its word there is nothing to do.
#[tokio::test]
async fn waiter_process() {
    let Ok(url) = env::var(URL) else { return };
    let client = tenure::connect(&url).await.expect("Redis answers");
    let mut numbers = BufReader::new(tokio::io::stdin()).lines();
    while let Ok(Some(number)) = numbers.next_line().await {
        let lock = client.mutex(KEY).fair().lease(LEASE).lock();
        let waits = format!("[{number},null]");
        let lock = lock.on_waiting(move |_| println!("{waits}"));
        tokio::spawn(async move {
            let guard = lock.await.expect("the lock is granted in the end");
            println!("[{number},{}]", guard.token().expect("Redis has tokens"));
            guard.unlock().await.expect("it was held");
        });
    }
}

async fn next(said: &mut UnboundedReceiver<Said>) -> Said {
    let next = timeout(PATIENCE, said.recv()).await;
    next.expect("waiters come, and those who live are served")
        .expect("this test itself could tell")
}

/// Lets waiters queue behind a holder, one after the other, each in a process that the dice choose, and may kill one of the
/// processes. All others must be served in their order; answers the longest pause between two.
async fn drain(kills: bool) -> Duration {
    let redis = Redis::start().expect("Redis starts");
    let client = tenure::connect(&redis.url()).await.expect("Redis answers");
    let guard = client.mutex(KEY).fair().lock().await.expect("nobody holds");
    let (tell, mut said) = unbounded_channel();
    let start = |_| Crowd::start(&redis.url(), tell.clone());
    let mut crowds: Vec<Crowd> = (0..PROCESSES).map(start).collect();
    let mut dice = Dice::new(WAITERS as u64);
    let mut expected = Vec::new();
    for number in 0..WAITERS {
        let at = dice.below(PROCESSES as u64) as usize;
        if !kills || at > 0 {
            expected.push(number);
        }
        let line = format!("{number}\n");
        let told = crowds[at].told.write_all(line.as_bytes()).await;
        told.expect("the process of waiters lives");
        assert_eq!(next(&mut said).await, (number, None));
    }
    if kills {
        drop(crowds.remove(0));
    }
    guard.unlock().await.expect("it was held throughout");
    let (mut served, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
    while served.len() < expected.len() {
        let (number, token) = next(&mut said).await;
        served.push((token.expect("each comes to wait once"), number));
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    // What two processes say arrives in any order; tokens rise as the lock is granted.
    served.sort_unstable();
    let served: Vec<usize> = served.into_iter().map(|(_, number)| number).collect();
    assert_eq!(served, expected);
    longest
}

#[tokio::test]
async fn a_thousand_waiters_are_served_in_order() {
    if tenure_servers::needs("redis-server", "redis-server") {
        drain(false).await;
    }
}

#[tokio::test]
async fn killed_waiters_block_the_queue_for_one_lease() {
    if tenure_servers::needs("redis-server", "redis-server") {
        let longest = drain(true).await;
        assert!(longest < LEASE + GRACE, "nobody was served for {longest:?}");
    }
}
