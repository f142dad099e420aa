//! Generates the text of `GUARANTEES.md` from the stores' profiles, and fails if the file differs.
//! To rewrite the file: `TENURE_WRITE=1 cargo test -p tenure --all-features --test guarantees`.
#![cfg(all(feature = "memory", feature = "sqlite", feature = "quorum"))]

use std::fmt::Write;

use tenure::backend::Fencing;
use tenure::backend::{Hazard, LeaseClock, Liveness, Order, Reach, WakeUp};
use tenure::{Guarantee, Profile};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../GUARANTEES.md");

#[tokio::test]
async fn guarantees_md_is_what_the_profiles_say() {
    let folder = tempfile::tempdir().unwrap();
    let sqlite = format!("sqlite:{}", folder.path().join("locks.db").display());
    tenure_servers::needs("redis-server", "redis-server");
    let redis = tenure_servers::Redis::start().unwrap();
    let redlock = redis.url().replace("redis:", "redlock:");
    let mut profiles = Vec::new();
    let plain = format!("{}?layout=plain", redis.url());
    let spring = format!("{}?layout=spring&registry=locks", redis.url());
    for url in ["memory:", &sqlite, &redis.url(), &plain, &spring, &redlock] {
        let client = tenure::connect(url).await.unwrap();
        profiles.push(client.profile().clone());
        client.close(std::time::Duration::from_secs(5)).await.unwrap();
    }
    let text = render(&profiles);
    if std::env::var_os("TENURE_WRITE").is_some() {
        std::fs::write(FILE, &text).unwrap();
    }
    let stands = std::fs::read_to_string(FILE).unwrap_or_default();
    assert!(
        stands == text,
        "GUARANTEES.md is out of date: see the head of this test for how to write it"
    );
}

fn render(profiles: &[Profile]) -> String {
    let mut text = String::from(
        "# What each store guarantees\n\n\
         A test generates this page from the stores' profiles: the same data by which the engine refuses what a store cannot\n\
         do. A program can demand each line of the first table: `client.require(Guarantee::Fencing)?`.\n\n\
         On every store, a process that is paused beyond its lease, or a request that it sent before, may still act after\n\
         another client holds the lock. Only the fencing token, checked by the resource, protects against that.\n\n",
    );
    table(
        &mut text,
        profiles,
        Guarantee::ALL.iter().map(|guarantee| {
            let cells = profiles
                .iter()
                .map(|profile| offer(profile, *guarantee).to_owned());
            (guarantee.to_string(), cells.collect())
        }),
    );
    type Row = (&'static str, fn(&Profile) -> String);
    let facts: [Row; 14] = [
        ("who can share its locks", |p| reach(p.reach).to_owned()),
        ("mutex", |p| order(p.mutex).to_owned()),
        ("read-write lock", |p| order(p.read_write).to_owned()),
        ("semaphore", |p| order(p.semaphore).to_owned()),
        ("a dead holder is noticed by", |p| liveness(p.liveness).to_owned()),
        ("two clients may hold at once after", |p| match p.store {
            "quorum" => format!(
                "on servers that, with those that did not grant the claim, are a majority: {}",
                hazards(p.hazards)
            ),
            _ => hazards(p.hazards),
        }),
        ("tokens rise", |p| fencing(p.fencing).to_owned()),
        ("a waiter learns of its turn by", |p| {
            wake_up(p.wake_up).to_owned()
        }),
        ("a late request cannot re-create an ended claim", |p| {
            yes(p.remembers_ended).to_owned()
        }),
        ("an unlock learns of waiters of other clients", |p| {
            yes(p.reports_waiters).to_owned()
        }),
        ("`ls` lists keys / shows queues", |p| {
            format!("{} / {}", yes(p.inspection.lists), yes(p.inspection.queue))
        }),
        ("a holder's label and token are shown", |p| {
            match p.first_renewal {
                Some(time) => format!("from the first renewal, {time:?} after the grant"),
                None => "at once".to_owned(),
            }
        }),
        ("shortest and longest lease", |p| {
            let longest = match p.limits.max_lease.as_secs() {
                seconds if seconds < 86_400 => format!("{seconds}s"),
                seconds => format!("{} days", seconds / 86_400),
            };
            format!("{:?} to {longest}", p.limits.min_lease)
        }),
        ("most grants handed over in memory per round trip", |p| {
            p.limits.max_grants.to_string()
        }),
    ];
    text.push('\n');
    table(
        &mut text,
        profiles,
        facts
            .iter()
            .map(|(name, fact)| ((*name).to_owned(), profiles.iter().map(fact).collect())),
    );
    text.push_str(
        "\nWith `?replicas=N` on Redis, a grant or a renewal counts only once N replicas have it. If one of them takes over, two\n\
         clients never hold at once because of the failover. If a replica takes over that has not acknowledged the grant, or that\n\
         lost it in a restart, they can: [Redis behind Sentinel](docs/guides/redis-behind-sentinel.md).\n\n\
         Redis behind Sentinel offers what one server offers. When a replica takes over, held locks are renewed on it, and those\n\
         that it lacks are lost. Redis Cluster offers the same for `redis (redisson)` and `redis (plain)`, and refuses the layout\n\
         `spring`: [Redis Cluster](docs/guides/redis-cluster.md). There `replicas` does not cover a slot whose master fails while the\n\
         slot is being moved. Clients that know of the move grant nothing in the slot until the leases of that time have ended. A\n\
         client that connects after the failover can acquire a lock until its holder learns of the loss, usually within two seconds.\n",
    );
    text
}

fn table(text: &mut String, profiles: &[Profile], rows: impl Iterator<Item = (String, Vec<String>)>) {
    let names = profiles
        .iter()
        .map(|profile| format!("{} ({})", profile.store, profile.layout))
        .collect::<Vec<_>>();
    writeln!(text, "| | {} |", names.join(" | ")).unwrap();
    writeln!(text, "|---|{}", "---|".repeat(profiles.len())).unwrap();
    for (name, cells) in rows {
        writeln!(text, "| {name} | {} |", cells.join(" | ")).unwrap();
    }
}

/// The table cell of one guarantee: `yes`, `no`, or that the store has no replicas.
fn offer(profile: &Profile, guarantee: Guarantee) -> &'static str {
    match guarantee {
        Guarantee::SurvivesFailover if profile.reach != Reach::Network => "no replicas",
        _ => yes(profile.offers(guarantee)),
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
        Order::FifoForBoth => "fair, also when unfair is asked for",
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

fn hazards(hazards: &[Hazard]) -> String {
    if hazards.is_empty() {
        return "only a bug of ours".to_owned();
    }
    let words = hazards.iter().map(|hazard| match hazard {
        Hazard::DataLoss => "loss of the data",
        Hazard::Restart => "a restart that lost writes",
        Hazard::ClockSet => "a server clock set forward, or ahead of the last master's",
        Hazard::Failover => "a failover that lost writes",
        Hazard::SessionDeath => "a session that died unnoticed",
        _ => "another hazard",
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
