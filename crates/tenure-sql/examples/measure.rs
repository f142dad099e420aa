//! Measures one client that takes and frees one key, beside the same statements without a store around them, twice:
//! synced as the store syncs (the grant's commit, not the release's, see `docs.md`), and with every commit synced.
//! Run with `cargo run --release --features sqlite-bundled --example measure [DIRECTORY]`; how fast the directory's
//! disk is decides most of it.

use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tenure_backend::{
    Backend, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Fairness, Holder, LockKey, Mode,
    OwnerId, Released, Standing, SystemClock,
};
use tenure_sql::{SqlStore, sqlite};

/// The three take turns, so that a slow moment of the disk hits all of them.
const ROUNDS: usize = 50;
const PAIRS: usize = 100;

/// The statements of one acquisition and one release, as the store runs them.
struct Bare<'c> {
    connection: &'c Connection,
    statements: Vec<rusqlite::Statement<'c>>,
    level: &'static str,
}

const TEXTS: [&str; 7] = [
    "BEGIN IMMEDIATE",
    "SELECT last FROM bucket WHERE number = 7",
    "SELECT client, number, phase, kind, take, size, place, until, reserved, token, run, label, evictor \
     FROM claim WHERE key = 'bare' AND live = 1",
    "SELECT client, number, phase, kind, take, size, place, until, reserved, token, run, label, evictor \
     FROM claim WHERE key = 'bare' AND live = 0 AND client = x'00' AND number = ?1",
    "INSERT INTO claim (key, live, client, number, phase, kind, take, size, place, until, reserved, forget, token, \
     run, label) VALUES ('bare', 1, x'00', ?1, 4, 0, 0, 0, 0, 9, 0, 0, 1, 64, 'measure@host:1')",
    "UPDATE bucket SET last = last + 64 WHERE number = 7",
    "COMMIT",
];
const END: &str = "UPDATE claim SET live = 0, phase = 0, kind = 0, take = 0, size = 0, place = 0, until = 9, \
     reserved = 0, forget = 0, token = 1, run = 64, label = 'measure@host:1', evictor = NULL \
     WHERE key = 'bare' AND live = 1 AND client = x'00' AND number = ?1";

impl<'c> Bare<'c> {
    fn new(connection: &'c Connection) -> Self {
        let texts = TEXTS.iter().chain([&END]);
        let statements = texts
            .map(|text| connection.prepare(text).expect("the statement is sound"))
            .collect();
        Bare {
            connection,
            statements,
            level: "FULL",
        }
    }

    fn run(&mut self, at: usize, number: Option<i64>) {
        let statement = &mut self.statements[at];
        if let Some(number) = number {
            statement
                .raw_bind_parameter(1, number)
                .expect("the statement has a parameter");
        }
        let mut rows = statement.raw_query();
        while rows.next().expect("the statement runs").is_some() {}
    }

    fn pair(&mut self, number: i64, release: &'static str) {
        for at in 0..TEXTS.len() {
            self.run(at, (at == 3 || at == 4).then_some(number));
        }
        self.sync(release);
        for at in [0, 1, 2] {
            self.run(at, None);
        }
        self.run(7, Some(number));
        self.run(6, None);
        self.sync("FULL");
    }

    /// Sets the level only if it is another one, as the store does.
    fn sync(&mut self, level: &'static str) {
        if self.level != level {
            self.connection
                .pragma_update(None, "synchronous", level)
                .expect("the level can be set");
            self.level = level;
        }
    }
}

async fn pair(store: &Arc<SqlStore>, client: ClientId, number: u64) {
    let claim = Arc::new(Claim {
        at: ClaimRef {
            key: LockKey::new("solo").expect("a short text"),
            id: ClaimId::new(client, number),
        },
        owner: OwnerId(0),
        label: "measure@host:1".into(),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: Duration::from_secs(30),
        grants: NonZeroU32::new(64).expect("64 is positive"),
    });
    let place_by = store.clock().now() + Duration::from_secs(5);
    let standing = store
        .clone()
        .acquire(claim.clone(), place_by)
        .await
        .expect("the store answers");
    assert!(matches!(standing, Standing::Granted(_)), "{standing:?}");
    let departure = Departure {
        who: Holder::Claim(claim.at.clone()),
        cause: Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    };
    let released = store.clone().release(Batch::from_iter([departure])).await;
    assert!(matches!(released[0], Released::Done { .. }), "{released:?}");
}

/// What one round of one of the three took for each pair: their median, in microseconds.
fn round(mut pair: impl FnMut()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        pair();
        start.elapsed().as_secs_f64() * 1e6
    };
    median((0..PAIRS).map(time).collect())
}

fn median(mut values: Vec<f64>) -> f64 {
    share(&mut values, 0.5)
}

/// The value that so many of all are below.
fn share(values: &mut [f64], share: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    values[((values.len() - 1) as f64 * share) as usize]
}

/// A line with the median over all rounds, and where nine rounds of ten lie.
fn report(what: &str, mut values: Vec<f64>, unit: &str) {
    let (low, high) = (share(&mut values, 0.05), share(&mut values, 0.95));
    println!("{what:36} {:>8.2}{unit}  ({low:.2} to {high:.2})", median(values));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .expect("a runtime can be made");
    let root = std::env::args()
        .nth(1)
        .map_or_else(std::env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(root).expect("a temporary directory can be made");
    let open = |name: &str| {
        let path = dir.path().join(name);
        runtime
            .block_on(sqlite::open(Some(path), Arc::new(SystemClock)))
            .expect("the lock file opens")
    };
    let store = open("store.db");
    drop(open("bare.db"));
    let connection = open_bare(&dir.path().join("bare.db"));
    let mut bare = Bare::new(&connection);
    let client = ClientId::from_random([7; 16]);
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    let [mut ours, mut same, mut full] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        ours.push(round(|| runtime.block_on(pair(&store, client, next()))));
        same.push(round(|| bare.pair(next() as i64, "NORMAL")));
        full.push(round(|| bare.pair(next() as i64, "FULL")));
    }
    let ratios = |bare: &[f64]| ours.iter().zip(bare).map(|(ours, bare)| ours / bare).collect();
    let (to_same, to_full) = (ratios(&same), ratios(&full));
    println!("medians of {ROUNDS} alternating rounds of {PAIRS} pairs (nine rounds of ten)");
    report("lock + unlock", ours, " us");
    report("bare statements, synced as ours", same, " us");
    report("bare statements, every commit synced", full, " us");
    report("ratio to the same syncs", to_same, "");
    report("ratio to every commit synced", to_full, "");
}

fn open_bare(path: &Path) -> Connection {
    let connection = Connection::open(path).expect("the file opens");
    let journal: String = connection
        .query_row("PRAGMA journal_mode = WAL", [], |row| row.get(0))
        .expect("WAL can be had");
    assert_eq!(journal, "wal");
    connection
        .pragma_update(None, "synchronous", "FULL")
        .expect("the level can be set");
    connection
}
