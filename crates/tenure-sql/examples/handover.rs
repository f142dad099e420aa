//! Measures waiting between processes: how fast a lock changes hands, and what a waiter costs while nothing
//! happens, while others take keys for which nobody waits, and while other keys change hands all the time.
//! Run with `cargo run --release --features sqlite-bundled --example handover [DIRECTORY]`.

use std::future::poll_fn;
use std::io::{BufRead, Write};
use std::num::NonZeroU32;
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_core::Stream;
use tenure_backend::{
    Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Holder, LockKey, Mode,
    OwnerId, Standing, SystemClock,
};
use tenure_sql::{SqlStore, sqlite};

const HANDOVERS: usize = 300;
const IDLE: Duration = Duration::from_secs(5);

struct Client {
    store: Arc<SqlStore>,
    id: ClientId,
    made: u64,
}

impl Client {
    async fn open(path: &Path) -> Self {
        let store = sqlite::open(Some(path.to_owned()), Arc::new(SystemClock))
            .await
            .expect("the lock file opens");
        let mut name = [0; 16];
        name[..4].copy_from_slice(&std::process::id().to_le_bytes());
        Client {
            store,
            id: ClientId::from_random(name),
            made: 0,
        }
    }

    async fn lock(&mut self, key: &str) -> Arc<Claim> {
        self.made += 1;
        let claim = Arc::new(Claim {
            at: ClaimRef {
                key: LockKey::new(key).expect("a short text"),
                id: ClaimId::new(self.id, self.made),
            },
            owner: OwnerId(0),
            label: "handover@host:1".into(),
            mode: Mode::Exclusive,
            fairness: Fairness::Unfair,
            lease: Duration::from_secs(60),
            grants: NonZeroU32::MIN,
        });
        let mut wakes = None;
        loop {
            let place_by = self.store.clock().now() + Duration::from_secs(5);
            match self
                .store
                .clone()
                .acquire(claim.clone(), place_by)
                .await
                .expect("the store answers")
            {
                Standing::Granted(_) => return claim,
                Standing::Waiting { poll_after, .. } => match &mut wakes {
                    None => {
                        wakes = Some(
                            self.store
                                .clone()
                                .watch(claim.clone())
                                .await
                                .expect("the store watches"),
                        )
                    }
                    Some(wakes) => {
                        let hint = poll_fn(|cx| Pin::new(&mut *wakes).poll_next(cx));
                        let _ = tokio::time::timeout(poll_after, hint).await;
                    }
                },
                other => panic!("{other:?}"),
            }
        }
    }

    async fn unlock(&self, claim: &Claim) {
        let departure = Departure {
            who: Holder::Claim(claim.at.clone()),
            cause: Cause::Unlocked,
            heir: None,
            bar: Duration::ZERO,
        };
        self.store.clone().release(Batch::from_iter([departure])).await;
    }
}

/// The nanoseconds that all threads of this process have run.
fn worked() -> u64 {
    let threads = std::fs::read_dir("/proc/self/task").expect("this is Linux");
    let run = |thread: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(thread.ok()?.path().join("schedstat")).ok()?;
        text.split(' ').next()?.parse::<u64>().ok()
    };
    threads.filter_map(run).sum()
}

fn now() -> u64 {
    tenure_backend::Clock::now(&SystemClock).as_nanos()
}

/// Frees the key when told to, and says when.
async fn holder(path: &Path) {
    let mut client = Client::open(path).await;
    loop {
        let held = client.lock("hand").await;
        println!("held");
        for line in std::io::stdin().lock().lines().take(1) {
            line.expect("the parent speaks");
        }
        let freed = now();
        client.unlock(&held).await;
        println!("{freed}");
        let mut line = String::new();
        if std::io::stdin().lock().read_line(&mut line).unwrap_or(0) == 0 {
            return;
        }
    }
}

async fn busy(path: &Path, key: &str) {
    let mut client = Client::open(path).await;
    loop {
        let held = client.lock(key).await;
        client.unlock(&held).await;
    }
}

struct Other(Child);

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn spawn(role: &str, path: &Path) -> Other {
    let program = std::env::current_exe().expect("a program knows its path");
    let mut command = Command::new(program);
    command
        .args([role.as_ref(), path.as_os_str()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    Other(command.spawn().expect("this program can be run again"))
}

fn report(what: &str, times: &mut [Duration]) {
    times.sort();
    let at = |share: f64| times[(times.len() as f64 * share) as usize];
    println!("{what:46} p50 {:>8.1?}  p99 {:>8.1?}", at(0.5), at(0.99));
}

async fn hand_over(client: &mut Client, path: &Path, what: &str) {
    let mut other = spawn("holder", path);
    let mut input = other.0.stdin.take().expect("its input is piped");
    let mut lines = std::io::BufReader::new(other.0.stdout.take().expect("its output is piped")).lines();
    let mut say = || lines.next().expect("the child speaks").expect("in text");
    let mut times = Vec::new();
    for _ in 0..HANDOVERS {
        assert_eq!(say(), "held");
        let waits = async {
            let held = client.lock("hand").await;
            (held, now())
        };
        let told = async {
            tokio::time::sleep(Duration::from_millis(5)).await;
            writeln!(input, "free").expect("the child listens");
        };
        let ((held, got), ()) = tokio::join!(waits, told);
        let freed: u64 = say().parse().expect("the child says when");
        times.push(Duration::from_nanos(got.saturating_sub(freed)));
        client.unlock(&held).await;
        writeln!(input, "again").expect("the child listens");
    }
    report(what, &mut times);
}

async fn idle(client: &mut Client, what: &str) {
    let (start, before) = (Instant::now(), worked());
    let never = tokio::time::timeout(IDLE, client.lock("held by another"));
    assert!(never.await.is_err(), "the key is never free");
    let share = (worked() - before) as f64 / start.elapsed().as_nanos() as f64;
    println!("{what:46} {:.2} % of a core", share * 100.0);
}

async fn compare(path: &Path) {
    let mut client = Client::open(path).await;
    let mut other = Client {
        store: client.store.clone(),
        id: ClientId::from_random([9; 16]),
        made: 0,
    };
    other.lock("held by another").await;
    hand_over(&mut client, path, "a hand-over, quiet").await;
    idle(&mut client, "a waiter, quiet").await;
    let solo = spawn("solo", path);
    hand_over(&mut client, path, "a hand-over, others take a key alone").await;
    idle(&mut client, "a waiter, others take a key alone").await;
    drop(solo);
    let _pair = [spawn("contended", path), spawn("contended", path)];
    hand_over(&mut client, path, "a hand-over, others pass a key").await;
    idle(&mut client, "a waiter, others pass a key").await;
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made");
    let mut args = std::env::args().skip(1);
    let (first, second) = (args.next(), args.next());
    match (first.as_deref(), second.as_deref().map(Path::new)) {
        (Some("holder"), Some(path)) => runtime.block_on(holder(path)),
        (Some("solo"), Some(path)) => runtime.block_on(busy(path, "solo")),
        (Some("contended"), Some(path)) => runtime.block_on(busy(path, "contended")),
        (directory, _) => {
            let root = directory.map_or_else(std::env::temp_dir, Into::into);
            let dir = tempfile::tempdir_in(root).expect("a temporary directory can be made");
            runtime.block_on(compare(&dir.path().join("locks.db")));
        }
    }
}
