//! Generates the text of `GUARANTEES.md` from the stores' profiles, and fails if the file differs.
//! To rewrite the file: `TENURE_WRITE=1 cargo test -p tenure --all-features --test api guarantees`.
#![cfg(all(
    feature = "memory",
    feature = "sqlite",
    feature = "quorum",
    feature = "postgres",
    feature = "mysql",
    feature = "etcd",
    feature = "zookeeper"
))]

use std::fmt::Write;

use tenure::backend::Fencing;
use tenure::backend::{Hazard, LeaseClock, Liveness, Order, Reach, ServerDeath, WakeUp};
use tenure::{Guarantee, Profile};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");

const BEGIN: &str = "# What each store guarantees

A test generates this page from the stores' profiles: the same data by which the engine refuses what a store cannot
do. A program can demand each line of the first table: `client.require(Guarantee::Fencing)?`.

On every store, a process that is paused beyond its lease, or a request that it sent before, may still act after
another client holds the lock. Only the fencing token, checked by the resource, protects against that.

A column is named by the scheme of its URL and, in brackets, by its layout: the format in which it keeps locks.

- `claims` is Tenure's own format.
- `redisson` is the format of the Java library Redisson, which shares the locks. It is the default on Redis.
- `plain` is one string for each lock, as in redis-py, redsync and node-redlock: `?layout=plain`.
- `spring` is the format of Spring's `RedisLockRegistry`: `?layout=spring&registry=NAME`.
- `version`, `unique` and `shedlock` are tables of a database, which other programs share:
  [Only a database](docs/guides/only-a-database.md).

";

const NOTE: &str = "
¹ Clients of Tenure wake each other. In the layouts `plain` and `spring`, most clients of other kinds publish nothing when they
release a lock. So while one of them holds it, waiters of Tenure poll every 100 ms.

`redlock` needs at least three servers to survive the death of one. It is the reason to use it: [RedLock](docs/redlock.md). Its
servers must have no replicas, because a replica that takes over counts as a server that lost writes. Behind Sentinel and in
Cluster, a dead server that has no replica is an outage until it is back.

";

const END: &str = "
With `?replicas=N` on Redis, a grant or a renewal counts only once N replicas have it. If one of them takes over, two
clients never hold at once because of the failover. If a replica takes over that has not acknowledged the grant, or that
lost it in a restart, they can: [Redis behind Sentinel](docs/guides/redis-behind-sentinel.md). While fewer than N replicas
answer, no lock can be acquired or renewed.

When a replica takes over, behind Sentinel or in Cluster, held locks are renewed on it, and those that it lacks are lost.

[Redis Cluster](docs/guides/redis-cluster.md) refuses the layout `spring`. There `replicas` does not cover a slot whose master
fails while the slot is being moved. Clients that know of the move grant nothing in the slot until the leases of that time have
ended. A client that connects after the failover can acquire a lock until its holder learns of the loss, usually within two seconds.

On ZooKeeper these promises need a `?tick_time=` in the URL that is at least half of the servers' `tickTime`. Both are 2 s by default, and
`tenure doctor` compares them if the servers allow it: [what to know](crates/tenure-zookeeper/src/docs.md#what-to-know).
";

/// The columns of the tables: the name, which is the scheme of the URL and the layout, and the profile.
type Column = (&'static str, Profile);

/// A profile without a column of its own: its name, its profile, and the column that it resembles.
type Left<'a> = (&'static str, Profile, &'a Column);

#[tokio::test(flavor = "multi_thread")]
async fn guarantees_md_is_what_the_profiles_say() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    tenure_servers::needs("redis-server", "redis-server");
    let servers: [_; 3] = std::array::from_fn(|_| tenure_servers::Redis::start().unwrap());
    let redis = &servers[0];
    let quorum = servers.iter().map(|server| server.address().to_string());
    let quorum = format!("redlock://{}", quorum.collect::<Vec<_>>().join(","));
    let sentinel = tenure_servers::start_sentinel(redis.address(), 1, "").unwrap();
    let sentinel = format!(
        "redis+sentinel://{}/{}",
        sentinel.address(),
        tenure_servers::MASTER
    );
    let nodes = tenure_servers::RedisCluster::start(1, false, &[], None).unwrap();
    let with = |url: &str, options: &str| format!("{url}?{options}");
    tenure_servers::needs("postgres", "postgresql");
    tenure_servers::needs("mariadbd", "mariadb-server");
    let postgres = tenure_servers::Postgres::start().unwrap();
    let mysql = tenure_servers::MariaDb::start().unwrap();
    mysql.ask("CREATE DATABASE locks").unwrap();
    let rows = async |server: &str, layout: &str| {
        let url = with(server, &format!("layout={layout}"));
        tenure::create_schema(&url).await.unwrap();
        profile(&url).await
    };
    let (postgres, mysql) = (postgres.url(), mysql.url() + "locks");
    tenure_servers::needs("etcd", "etcd-server");
    let cluster = tenure_servers::EtcdCluster::start(&[]).unwrap();
    let (etcd, alone) = (cluster.url(), cluster.members()[0].url());
    tenure_servers::needs("zookeeper", "zookeeper");
    let tick = std::time::Duration::from_millis(500);
    let ensemble = tokio::spawn(tenure_servers::ZooKeeperEnsemble::start(tick));
    let ensemble = ensemble.await.unwrap().unwrap();
    let (zookeeper, lone) = (ensemble.url(), ensemble.servers()[0].url());
    let columns = [
        ("memory (claims)", profile("memory:").await),
        ("sqlite (claims)", profile(&sqlite).await),
        ("redis (redisson)", profile(&redis.url()).await),
        (
            "redis (plain)",
            profile(&with(&redis.url(), "layout=plain")).await,
        ),
        ("redis+sentinel (redisson)", profile(&sentinel).await),
        (
            "redis+sentinel (redisson), `?replicas=N`",
            profile(&with(&sentinel, "replicas=1")).await,
        ),
        ("redis+cluster (redisson)", profile(&nodes.url()).await),
        ("redlock (plain)", profile(&quorum).await),
        ("postgres (version)", rows(&postgres, "version").await),
        ("postgres (unique)", rows(&postgres, "unique").await),
        ("etcd (concurrency)", profile(&etcd).await),
        ("zookeeper (curator)", profile(&zookeeper).await),
    ];
    let [
        _,
        _,
        one,
        plain,
        _,
        acknowledged,
        cluster,
        redlock,
        version,
        unique,
        etcd,
        curator,
    ] = &columns;
    let left = [
        (
            "redis (spring)",
            profile(&with(&redis.url(), "layout=spring&registry=locks")).await,
            plain,
        ),
        (
            "redis (redisson), `?replicas=N`",
            profile(&with(&redis.url(), "replicas=1")).await,
            acknowledged,
        ),
        (
            "redis+sentinel (plain)",
            profile(&with(&sentinel, "layout=plain")).await,
            plain,
        ),
        (
            "redis+cluster (plain)",
            profile(&with(&nodes.url(), "layout=plain")).await,
            plain,
        ),
        (
            "redis+cluster (redisson), `?replicas=N`",
            profile(&with(&nodes.url(), "replicas=1")).await,
            cluster,
        ),
        (
            "redlock (redisson)",
            profile(&with(&quorum, "layout=redisson")).await,
            redlock,
        ),
        (
            "redlock (plain) of two servers",
            profile(quorum.rsplit_once(',').unwrap().0).await,
            redlock,
        ),
        ("postgres (shedlock)", rows(&postgres, "shedlock").await, unique),
        ("mysql (version)", rows(&mysql, "version").await, version),
        ("mysql (unique)", rows(&mysql, "unique").await, unique),
        ("mysql (shedlock)", rows(&mysql, "shedlock").await, unique),
        ("etcd (concurrency) on one member", profile(&alone).await, etcd),
        (
            "zookeeper (kazoo)",
            profile(&with(&zookeeper, "layout=kazoo")).await,
            curator,
        ),
        (
            "zookeeper (ephemeral)",
            profile(&with(&zookeeper, "layout=ephemeral")).await,
            curator,
        ),
        ("zookeeper (curator) on one server", profile(&lone).await, curator),
    ];
    let text = render(&columns, one, &left);
    if std::env::var_os("TENURE_WRITE").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let stands = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        stands == text,
        "GUARANTEES.md is out of date: see the head of this test for how to write it"
    );
}

async fn profile(url: &str) -> Profile {
    let client = tenure::connect(url).await.unwrap();
    let profile = client.profile().clone();
    client.close(std::time::Duration::from_secs(5)).await.unwrap();
    profile
}

/// Writes the page. `one` is the column of one Redis server.
fn render(columns: &[Column], one: &Column, left: &[Left<'_>]) -> String {
    let mut text = String::from(BEGIN);
    let demanded = Guarantee::ALL.len();
    let all: Vec<_> = columns.iter().collect();
    table(&mut text, &all, |row| row < demanded);
    text.push_str(NOTE);
    let is_topology =
        |column: &Column| column.1.replicas > 0 || column.1.server_death == ServerDeath::OutageUntilFailover;
    let (topologies, stores): (Vec<_>, Vec<_>) = columns.iter().partition(|column| is_topology(column));
    table(&mut text, &stores, |row| row >= demanded);
    text.push_str("\nThe columns of Redis that are not in this table equal `redis (redisson)`, except for these rows:\n\n");
    let topologies: Vec<_> = std::iter::once(one).chain(topologies).collect();
    let cells: Vec<_> = topologies.iter().map(|column| rows(&column.1)).collect();
    table(&mut text, &topologies, |row| {
        row >= demanded && cells.iter().any(|other| other[row] != cells[0][row])
    });
    text.push_str("\nThese have no column, because they equal another one except for some rows:\n\n");
    for (name, profile, (like, of)) in left {
        let both = rows(profile).into_iter().zip(rows(of));
        let differ: Vec<_> = both.filter(|(row, other)| row != other).collect();
        let except = if differ.is_empty() { "" } else { ", except:" };
        writeln!(text, "- {name} is as {like}{except}").unwrap();
        for ((row, cell), _) in differ {
            writeln!(text, "  - {row}: {cell}").unwrap();
        }
    }
    text.push_str(END);
    text
}

/// All rows of one profile, as names and cells: first the guarantees that a program can demand, then further facts.
fn rows(profile: &Profile) -> Vec<(String, String)> {
    let guarantee = |guarantee: &Guarantee| (guarantee.to_string(), offer(profile, *guarantee).to_owned());
    let facts = facts(profile).into_iter();
    let facts = facts.map(|(name, cell)| (name.to_owned(), cell));
    Guarantee::ALL.iter().map(guarantee).chain(facts).collect()
}

fn facts(p: &Profile) -> [(&'static str, String); 16] {
    let hazards = hazards(p);
    let shown = match p.first_renewal {
        Some(time) => format!("from the first renewal, {time:?} after the grant"),
        None => "at once".to_owned(),
    };
    let longest = match p.limits.max_lease.as_secs() {
        seconds if seconds < 86_400 => format!("{seconds}s"),
        seconds => format!("{} days", seconds / 86_400),
    };
    let replicas = if p.replicas == 0 { "none" } else { "N" };
    [
        ("who can share its locks", reach(p.reach).to_owned()),
        ("mutex", order(p.mutex).to_owned()),
        ("read-write lock", order(p.read_write).to_owned()),
        ("semaphore", order(p.semaphore).to_owned()),
        ("a dead holder is noticed by", liveness(p.liveness).to_owned()),
        (
            "two clients may hold at once after",
            match p.store {
                "quorum" => format!(
                    "on servers that, with those that did not grant the claim, are a majority: {hazards}"
                ),
                _ => hazards,
            },
        ),
        (
            "replicas that must have a grant before it counts",
            replicas.to_owned(),
        ),
        ("tokens rise", fencing(p.fencing).to_owned()),
        ("a waiter learns of its turn by", wake_up(p.wake_up).to_owned()),
        (
            "a late request cannot re-create an ended claim",
            yes(p.remembers_ended).to_owned(),
        ),
        (
            "an unlock learns of waiters of other clients",
            yes(p.reports_waiters).to_owned(),
        ),
        (
            "a freed key is kept for the client that has waited longest",
            yes(p.reserves_turns).to_owned(),
        ),
        (
            "`ls` lists keys / shows queues",
            format!("{} / {}", yes(p.inspection.lists), yes(p.inspection.queue)),
        ),
        ("a holder's label and token are shown", shown),
        (
            "shortest and longest lease",
            format!("{:?} to {longest}", p.limits.min_lease),
        ),
        (
            "most grants handed over in memory per round trip",
            p.limits.max_grants.to_string(),
        ),
    ]
}

/// Writes the rows whose number is wanted.
fn table(text: &mut String, columns: &[&Column], is_wanted: impl Fn(usize) -> bool) {
    let names: Vec<_> = columns.iter().map(|column| column.0).collect();
    writeln!(text, "| | {} |", names.join(" | ")).unwrap();
    writeln!(text, "|---|{}", "---|".repeat(columns.len())).unwrap();
    let columns: Vec<_> = columns.iter().map(|column| rows(&column.1)).collect();
    for row in (0..columns[0].len()).filter(|row| is_wanted(*row)) {
        let cells: Vec<_> = columns.iter().map(|column| &*column[row].1).collect();
        writeln!(text, "| {} | {} |", columns[0][row].0, cells.join(" | ")).unwrap();
    }
}

/// The table cell of one guarantee: `yes`, `no`, or why it is neither.
fn offer(profile: &Profile, guarantee: Guarantee) -> &'static str {
    let is_string = matches!(profile.layout, "plain" | "spring");
    match guarantee {
        Guarantee::SurvivesFailover if profile.reach != Reach::Network => "no replicas",
        Guarantee::SurvivesFailover if profile.store == "quorum" => "must have no replicas",
        Guarantee::SurvivesServerDeath if profile.reach != Reach::Network => "no server",
        Guarantee::SurvivesServerDeath => server_death(profile),
        Guarantee::PromptWakeUp if is_string => "yes ¹",
        _ => yes(profile.offers(guarantee)),
    }
}

fn server_death(profile: &Profile) -> &'static str {
    match (profile.server_death, profile.replicas) {
        (ServerDeath::Tolerated, _) => "yes",
        (ServerDeath::OutageUntilFailover, 0) => "no, until a replica has taken over",
        (ServerDeath::OutageUntilFailover, _) => {
            "no, until a replica has taken over and N others acknowledge"
        }
        _ => "no",
    }
}

fn yes(yes: bool) -> &'static str {
    if yes { "yes" } else { "no" }
}

fn reach(reach: Reach) -> &'static str {
    match reach {
        Reach::Process => "tasks of one process",
        Reach::Machine => "processes of one machine",
        Reach::Network => "all clients that reach the server",
        _ => panic!("describe it here"),
    }
}

fn order(order: Order) -> &'static str {
    match order {
        Order::None => "no",
        Order::Unfair => "unfair",
        Order::Fifo => "fair",
        Order::Both => "unfair and fair",
        Order::FifoForBoth => "fair, also for other callers",
        _ => panic!("describe it here"),
    }
}

fn liveness(liveness: Liveness) -> &'static str {
    match liveness {
        Liveness::Lease(LeaseClock::Shared) => "its lease, on the clock that the client reads too",
        Liveness::Lease(LeaseClock::ServerWall) => "its lease, on the server's wall clock",
        Liveness::Lease(LeaseClock::ServerMonotonic) => "its lease, on the server's monotonic clock",
        Liveness::Session => "the end of its session",
        _ => panic!("describe it here"),
    }
}

fn hazards(profile: &Profile) -> String {
    if profile.hazards.is_empty() {
        return "only a bug of ours".to_owned();
    }
    let words = profile.hazards.iter().map(|hazard| match hazard {
        Hazard::DataLoss => "loss of the data",
        Hazard::Restart => "a restart that lost writes",
        Hazard::ClockSet => "a server clock set forward or ahead of the last master's",
        Hazard::Failover if profile.replicas > 0 => {
            "a failover to a replica that has not acknowledged the grant, or has lost it"
        }
        Hazard::Failover => "a failover that lost writes",
        Hazard::InterruptedMove => "a server that fails while a slot is being moved from it",
        Hazard::SessionDeath => "a session that died unnoticed",
        _ => panic!("describe it here"),
    });
    words.collect::<Vec<_>>().join(", ")
}

fn fencing(fencing: Fencing) -> &'static str {
    match fencing {
        Fencing::None => "there are none",
        Fencing::Process => "until the process ends",
        Fencing::UntilDataLossAndBackwardClock => "until writes are lost and the clock runs backward",
        Fencing::Durable => "through every crash, until the data is lost and the clock runs backward",
        _ => panic!("describe it here"),
    }
}

fn wake_up(wake_up: WakeUp) -> &'static str {
    match wake_up {
        WakeUp::Poll => "polling",
        WakeUp::Lossy => "a message that may be lost, and polling",
        WakeUp::Reliable => "a message, and polling",
        _ => panic!("describe it here"),
    }
}
