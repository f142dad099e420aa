//! A long fair queue on Redis: waiters of several processes are granted the lock in order, even if one process is
//! killed.

use std::env;
use std::process::Stdio;
use std::time::{Duration, Instant};

use tenure_servers::Redis;
use tenure_testkit::Dice;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::timeout;

/// Environment variable with the URL of the store. If it is set, this test program is a waiter process.
const URL: &str = "TENURE_FAIR_QUEUE";
const KEY: &str = "the long queue";
const PROCESSES: usize = 8;
const WAITERS: usize = 1_000;
const LEASE: Duration = Duration::from_secs(5);
/// Longest time from the end of a dead waiter's lease to the next grant, on a busy machine.
const GRACE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// JSON line that a waiter process prints for a waiter: its number, and its token or, while it waits, `null`.
type WaiterLine = (usize, Option<u64>);

/// Process with many waiters. Each number on its standard input starts a task that waits for the lock.
struct WaiterProcess {
    /// The process is killed when this is dropped.
    _process: Child,
    stdin: ChildStdin,
}

impl WaiterProcess {
    fn start(url: &str, sender: UnboundedSender<WaiterLine>) -> Self {
        let mut process = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--exact", "waiter_process", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("this program can be started once more");
        let stdin = process.stdin.take().expect("the pipe was requested");
        let mut lines = BufReader::new(process.stdout.take().expect("the pipe was requested")).lines();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                // Lines of the test harness are not JSON and are skipped. If the test has ended, sending fails.
                let _ = serde_json::from_str(&line).map(|line| sender.send(line));
            }
        });
        WaiterProcess {
            _process: process,
            stdin,
        }
    }
}

/// Body of a waiter process. In an ordinary test run, `TENURE_FAIR_QUEUE` is not set, and this test does nothing.
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

async fn next(lines: &mut UnboundedReceiver<WaiterLine>) -> WaiterLine {
    let next = timeout(PATIENCE, lines.recv()).await;
    next.expect("a waiter process prints the next line in time")
        .expect("the test keeps a sender")
}

/// Lets waiters in random processes queue behind a holder, and kills one process if `kills`. Asserts that all other
/// waiters are granted the lock in order. Returns the longest pause between two grants.
async fn drain(kills: bool) -> Duration {
    let redis = Redis::start().expect("Redis starts");
    let client = tenure::connect(&redis.url()).await.expect("Redis answers");
    let guard = client.mutex(KEY).fair().lock().await.expect("the lock is free");
    let (sender, mut lines) = unbounded_channel();
    let start = |_| WaiterProcess::start(&redis.url(), sender.clone());
    let mut processes: Vec<WaiterProcess> = (0..PROCESSES).map(start).collect();
    let mut dice = Dice::new(WAITERS as u64);
    let mut expected = Vec::new();
    for number in 0..WAITERS {
        let at = dice.below(PROCESSES as u64) as usize;
        if !kills || at > 0 {
            expected.push(number);
        }
        let line = format!("{number}\n");
        let stdin = processes[at].stdin.write_all(line.as_bytes()).await;
        stdin.expect("the waiter process runs");
        assert_eq!(next(&mut lines).await, (number, None));
    }
    if kills {
        drop(processes.remove(0));
    }
    guard.unlock().await.expect("it was held throughout");
    let (mut served, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
    while served.len() < expected.len() {
        let (number, token) = next(&mut lines).await;
        served.push((token.expect("each waiter queues only once"), number));
        longest = longest.max(last.elapsed());
        last = Instant::now();
    }
    // Lines of different processes arrive in any order, but the tokens rise with each grant.
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
        assert!(
            longest < LEASE + GRACE,
            "no waiter was granted the lock for {longest:?}"
        );
    }
}
