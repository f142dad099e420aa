//! A long fair queue on Redis: waiters of many processes are served in the order in which they came, also when some of
//! them are killed. Not here: what else befalls a lock (`redis.rs`).

use std::env;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;
use std::time::{Duration, Instant};

use tenure_servers::Redis;
use tenure_testkit::Dice;

/// Tells a process of this test that it is to wait for the lock, and where.
const URL: &str = "TENURE_FAIR_QUEUE";
const KEY: &str = "the long queue";
const PROCESSES: usize = 8;
const WAITERS: usize = 1_000;
const KILLED: usize = 50;
const LEASE: Duration = Duration::from_secs(5);
/// How much later than a dead waiter's lease the next may be served, on a machine that is busy otherwise.
const GRACE: Duration = Duration::from_secs(3);
const PATIENCE: Duration = Duration::from_secs(60);

/// What a process of waiters says: which of them has come to wait, or was served and with which token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    Waits(usize),
    Served(usize, u64),
}

impl Said {
    fn parse(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        match (words.next()?, words.next()?.parse().ok()?, words.next()) {
            ("waits", number, None) => Some(Said::Waits(number)),
            ("served", number, Some(token)) => Some(Said::Served(number, token.parse().ok()?)),
            _ => None,
        }
    }
}

/// A process of waiters: each number that it is told becomes a task that waits, and says so.
struct Crowd {
    process: Child,
    told: ChildStdin,
}

impl Crowd {
    fn start(url: &str, tell: Sender<Said>) -> Self {
        let mut process = Command::new(env::current_exe().expect("this program has a path"))
            .args(["--exact", "a_process_of_waiters", "--nocapture"])
            .env(URL, url)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("this program can be started once more");
        let said = BufReader::new(process.stdout.take().expect("it was asked for"));
        thread::spawn(move || {
            let lines = said.lines().map_while(Result::ok);
            lines.filter_map(|line| Said::parse(&line)).for_each(|said| {
                // Nobody listens any more once the test has ended.
                let _ = tell.send(said);
            });
        });
        let told = process.stdin.take().expect("it was asked for");
        Crowd { process, told }
    }

    fn admit(&mut self, number: usize) {
        writeln!(self.told, "{number}").expect("the process of waiters lives");
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The other processes' half of the test below: without its word there is nothing to do.
#[test]
fn a_process_of_waiters() {
    let Ok(url) = env::var(URL) else { return };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let client = tenure::connect(&url).await.expect("Redis answers");
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        thread::spawn(move || {
            let numbers = std::io::stdin().lines().map_while(Result::ok);
            numbers
                .filter_map(|line| line.parse::<usize>().ok())
                .for_each(|number| {
                    let _ = tell.send(number);
                });
        });
        while let Some(number) = told.recv().await {
            let lock = client.mutex(KEY).fair().lease(LEASE).lock();
            let lock = lock.on_waiting(move |_| println!("waits {number}"));
            tokio::spawn(async move {
                let guard = lock.await.expect("the lock is granted in the end");
                println!("served {number} {}", guard.token().expect("Redis has tokens"));
                guard.unlock().await.expect("it was held");
            });
        }
    });
}

/// Lets so many waiters queue behind a holder, one after the other, each in a process that the dice choose; kills the
/// process that has `doomed` of them; and says who was served, in which order, and the longest pause between two.
fn drain(waiters: usize, doomed: usize) -> (Vec<usize>, Vec<usize>, Duration) {
    tenure_servers::needs("redis-server", "redis-server");
    let redis = Redis::start().expect("Redis starts");
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    let client = runtime
        .block_on(tenure::connect(&redis.url()))
        .expect("Redis answers");
    let first = client.mutex(KEY).fair().lock();
    let guard = runtime.block_on(first).expect("nobody holds");
    let (tell, said): (_, Receiver<Said>) = mpsc::channel();
    let mut crowds: Vec<Crowd> = (0..PROCESSES)
        .map(|_| Crowd::start(&redis.url(), tell.clone()))
        .collect();
    let mut dice = Dice::new(waiters as u64);
    let mut expected = Vec::new();
    let (mut dying, mut others) = (doomed, waiters - doomed);
    for number in 0..waiters {
        // The last process is the doomed one, if any is: its waiters stand anywhere among the others.
        let dies = dice.below((dying + others) as u64) < dying as u64;
        let living = PROCESSES - usize::from(doomed > 0);
        let at = match dies {
            true => PROCESSES - 1,
            false => usize::try_from(dice.below(living as u64)).unwrap_or(0),
        };
        *(if dies { &mut dying } else { &mut others }) -= 1;
        if !dies {
            expected.push(number);
        }
        crowds[at].admit(number);
        let waits = said.recv_timeout(PATIENCE).expect("it comes to wait");
        assert_eq!(waits, Said::Waits(number));
        // The holder's watchdog has its turn.
        runtime.block_on(tokio::task::yield_now());
    }
    if doomed > 0 {
        drop(crowds.pop());
    }
    runtime.block_on(guard.unlock()).expect("it was held throughout");
    let (mut served, mut longest, mut last) = (Vec::new(), Duration::ZERO, Instant::now());
    while served.len() < expected.len() {
        match said
            .recv_timeout(PATIENCE)
            .expect("everybody who lives is served")
        {
            Said::Served(number, token) => {
                served.push((token, number));
                longest = longest.max(last.elapsed());
                last = Instant::now();
            }
            Said::Waits(number) => panic!("{number} came twice"),
        }
    }
    // What two processes say arrives in any order; tokens rise as the lock is granted.
    served.sort_unstable();
    let served = served.into_iter().map(|(_, number)| number).collect();
    (served, expected, longest)
}

#[test]
fn a_thousand_waiters_of_eight_processes_are_served_in_the_order_in_which_they_came() {
    let (served, expected, _) = drain(WAITERS, 0);
    assert_eq!(served, expected);
}

#[test]
fn waiters_that_are_killed_stall_nobody_longer_than_their_lease() {
    let (served, expected, longest) = drain(WAITERS, KILLED);
    assert_eq!(served, expected);
    assert!(longest < LEASE + GRACE, "nobody was served for {longest:?}");
}
