//! Several processes that share only the file: they exclude and wake each other, and survive each other's end.
//! The file itself is in `files.rs`.
#![cfg(target_os = "linux")]

mod scene;

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use rustix::process::Signal;
use tenure_backend::{Backend, Fairness, Fault, Severity};
use tenure_sql::{Config, SqlStore, sqlite};

use scene::{Client, DEADLINE, Other, child_role, findings, scratch, spawn, until};

async fn open(path: &Path) -> Arc<SqlStore> {
    scene::open(path).await.expect("the file opens")
}

/// The file by other means than a store.
fn connect(path: impl AsRef<Path>) -> Connection {
    let file = Connection::open(path).unwrap();
    file.busy_timeout(DEADLINE).unwrap();
    file
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .expect("a runtime can be made")
}

fn fairness(role: &scene::Role) -> Fairness {
    if role.var("FAIRNESS") == "fifo" {
        Fairness::Fifo
    } else {
        Fairness::Unfair
    }
}

#[test]
fn a_counter_that_processes_raise_under_the_lock_is_exact() {
    for fairness in ["unfair", "fifo"] {
        let (dir, path) = scratch();
        let counter = dir.path().join("counter");
        fs::write(&counter, "0").unwrap();
        let env: [(&str, &OsStr); 3] = [
            ("FILE", path.as_os_str()),
            ("COUNTER", counter.as_os_str()),
            ("FAIRNESS", fairness.as_ref()),
        ];
        let children: Vec<Other> = (0..4).map(|_| spawn("a_child_raises_a_counter", &env)).collect();
        for child in &children {
            assert_eq!(child.line(), "done");
        }
        assert_eq!(fs::read_to_string(&counter).unwrap(), "160", "{fairness}");
    }
}

#[test]
fn a_child_raises_a_counter() {
    let Some(role) = child_role("a_child_raises_a_counter") else {
        return;
    };
    let counter = PathBuf::from(role.var("COUNTER"));
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        for _ in 0..40 {
            let claim = client.wait("counter", fairness(&role)).await;
            let number: u32 = fs::read_to_string(&counter).unwrap().parse().unwrap();
            std::thread::yield_now();
            fs::write(&counter, (number + 1).to_string()).unwrap();
            client.unlock(&claim).await;
        }
    });
    role.say("done");
}

/// Each grant is one turn of its process, so that quickness shows: nothing but the store's turns makes it fair.
#[test]
fn every_process_gets_at_least_half_its_share_of_an_unfair_key() {
    const PROCESSES: usize = 4;
    const GRANTS: usize = 400;
    let (dir, path) = scratch();
    let log = dir.path().join("log");
    fs::write(&log, "").unwrap();
    let grants = GRANTS.to_string();
    let env: [(&str, &OsStr); 3] = [
        ("FILE", path.as_os_str()),
        ("LOG", log.as_os_str()),
        ("GRANTS", grants.as_ref()),
    ];
    let mut children: Vec<Other> = (0..PROCESSES)
        .map(|_| spawn("a_child_takes_what_it_can", &env))
        .collect();
    for child in &children {
        assert_eq!(child.line(), "ready");
    }
    for child in &mut children {
        child.tell("go");
    }
    for child in &children {
        assert_eq!(child.line(), "done");
    }
    let log = fs::read_to_string(&log).unwrap();
    let share = |child: &Other| {
        log.lines()
            .filter(|line| *line == child.pid().to_string())
            .count()
    };
    let shares: Vec<usize> = children.iter().map(share).collect();
    assert!(
        shares.iter().all(|share| *share >= GRANTS / PROCESSES / 2),
        "{shares:?}"
    );
}

#[test]
fn a_child_takes_what_it_can() {
    let Some(role) = child_role("a_child_takes_what_it_can") else {
        return;
    };
    let (log, grants) = (PathBuf::from(role.var("LOG")), role.number("GRANTS") as usize);
    let me = format!("{}\n", std::process::id());
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        role.say("ready");
        role.listen();
        loop {
            let claim = client.wait("k", Fairness::Unfair).await;
            let text = fs::read_to_string(&log).unwrap();
            let full = text.lines().count() >= grants;
            if !full {
                fs::write(&log, text + &me).unwrap();
            }
            client.unlock(&claim).await;
            if full {
                break;
            }
        }
    });
    role.say("done");
}

#[test]
fn a_release_wakes_a_waiter_in_another_process() {
    for fairness in ["unfair", "fifo"] {
        let (_dir, path) = scratch();
        let env: [(&str, &OsStr); 2] = [("FILE", path.as_os_str()), ("FAIRNESS", fairness.as_ref())];
        runtime().block_on(async {
            let mut client = Client::new(open(&path).await);
            let mut waiter = spawn("a_child_waits", &env);
            let (mut times, mut writes) = (Vec::new(), Vec::new());
            for _ in 0..20 {
                let start = Instant::now();
                let held = client.lock("k").await;
                writes.push(start.elapsed());
                waiter.tell("wait");
                assert_eq!(waiter.line(), "waits");
                wait_for_waiter(&path).await;
                let start = Instant::now();
                client.unlock(&held).await;
                assert_eq!(waiter.line(), "has it");
                times.push(start.elapsed());
                waiter.tell("free");
                assert_eq!(waiter.line(), "free");
            }
            times.sort();
            writes.sort();
            // The holder's lease would have lasted a minute, so it was not polling that found out. The bound is
            // ten times what a quiet machine needs at the worst, and what the disk needs on top.
            let bound = Duration::from_millis(100) + 5 * writes[writes.len() / 2];
            assert!(
                times[times.len() / 2] < bound,
                "{fairness}: {times:?}, bound {bound:?}"
            );
        });
    }
}

/// Waits until somebody queues or watches.
async fn wait_for_waiter(path: &Path) {
    let file = connect(path);
    let waits = || {
        file.query_row("SELECT count(*) FROM claim WHERE phase IN (2, 3)", [], |row| {
            row.get::<_, i64>(0)
        })
    };
    until("somebody waits", || waits().unwrap() > 0).await;
}

#[test]
fn a_child_waits() {
    let Some(role) = child_role("a_child_waits") else {
        return;
    };
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        loop {
            assert_eq!(role.listen(), "wait");
            role.say("waits");
            let claim = client.wait("k", fairness(&role)).await;
            role.say("has it");
            assert_eq!(role.listen(), "free");
            client.unlock(&claim).await;
            role.say("free");
        }
    });
}

#[test]
fn a_process_that_is_killed_leaves_a_file_that_others_use() {
    let (_dir, path) = scratch();
    runtime().block_on(async {
        for round in 0..10 {
            let victim = spawn("a_child_writes_all_the_time", &[("FILE", path.as_os_str())]);
            // Each time it is killed while it goes on writing, a little later than the time before.
            for _ in 0..=round {
                assert_eq!(victim.line(), "writes");
            }
            victim.signal(Signal::KILL);
            drop(victim);
            let store = open(&path).await;
            let mut client = Client::new(store.clone());
            client.lock(&format!("round {round}")).await;
            assert_eq!(findings(&store).await, [], "round {round}");
        }
    });
}

#[test]
fn a_child_writes_all_the_time() {
    let Some(role) = child_role("a_child_writes_all_the_time") else {
        return;
    };
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        let key = std::process::id().to_string();
        loop {
            let claim = client.lock(&key).await;
            client.unlock(&claim).await;
            role.say("writes");
        }
    });
}

#[test]
fn a_process_that_stops_within_a_transaction_is_named_and_nobody_else_is_harmed() {
    let (_dir, path) = scratch();
    let config = || Config {
        busy_limit: Duration::from_millis(300),
        ..Config::default()
    };
    runtime().block_on(async {
        let store = sqlite::open_with(Some(path.clone()), config()).await.unwrap();
        let mut client = Client::new(store.clone());
        let held = client.lock("k").await;
        let sleeper = spawn(
            "a_child_stays_within_a_transaction",
            &[("FILE", path.as_os_str())],
        );
        assert_eq!(sleeper.line(), "writes");
        sleeper.signal(Signal::STOP);
        let pid = format!("process {} ", sleeper.pid());
        wait_until_stopped(sleeper.pid()).await;

        let (_, refused) = client.acquire("other", |_| {}).await;
        let error = refused.expect_err("nobody may write");
        assert_eq!(error.fault(), Fault::Unavailable, "{error}");
        let text = error.to_string();
        assert!(
            text.contains(&pid) && text.contains("stopped") && text.contains("-CONT"),
            "{text}"
        );
        let found = findings(&store).await;
        let named = |(_, what): &&(Severity, String)| what.contains(&pid);
        assert_eq!(
            found.iter().find(named).map(|found| found.0),
            Some(Severity::Danger),
            "{found:?}"
        );

        sleeper.signal(Signal::KILL);
        drop(sleeper);
        client.unlock(&held).await;
        client.lock("other").await;
        assert_eq!(findings(&store).await, []);
    });
}

async fn wait_until_stopped(pid: u32) {
    let status = || fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    until("the child stops", || status().contains("State:\tT")).await;
}

/// Begins to write the file, and goes on when the parent says so.
fn within_a_transaction(role: &scene::Role) -> Connection {
    let file = connect(role.var("FILE"));
    file.execute_batch("BEGIN IMMEDIATE; UPDATE bucket SET last = last")
        .unwrap();
    role.say("writes");
    role.listen();
    file
}

#[test]
fn a_child_stays_within_a_transaction() {
    let Some(role) = child_role("a_child_stays_within_a_transaction") else {
        return;
    };
    within_a_transaction(&role);
}

#[test]
fn a_short_stop_is_waited_for_and_no_caller_hears_of_it() {
    let (_dir, path) = scratch();
    runtime().block_on(async {
        let mut client = Client::new(open(&path).await);
        let mut writer = spawn("a_child_writes_for_a_while", &[("FILE", path.as_os_str())]);
        assert_eq!(writer.line(), "writes");
        let start = Instant::now();
        let lock = client.lock("k");
        writer.tell("go on");
        lock.await;
        assert!(
            start.elapsed() >= Duration::from_millis(500),
            "the writer was waited for"
        );
    });
}

#[test]
fn a_child_writes_for_a_while() {
    let Some(role) = child_role("a_child_writes_for_a_while") else {
        return;
    };
    let file = within_a_transaction(&role);
    // sleep: the time for which this process keeps the file to itself is the point.
    std::thread::sleep(Duration::from_millis(600));
    file.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_store_that_was_closed_waits_for_nothing_any_more() {
    let (_dir, path) = scratch();
    runtime().block_on(async {
        let mut holder = Client::new(open(&path).await);
        let held = holder.lock("k").await;
        let mut waiter = Client::new(open(&path).await);
        let (claim, _) = waiter.acquire("k", |_| {}).await;
        let _wakes = waiter.store.clone().watch(claim).await.unwrap();
        wait_for_waiter(&path).await;
        waiter.store.clone().close().await.unwrap();
        holder.unlock(&held).await;
        assert!(
            holder.try_lock("k").await,
            "nobody is left for whom the key would be kept"
        );
    });
}

#[test]
fn processes_that_open_a_file_at_once_all_have_it() {
    let (_dir, path) = scratch();
    let env: [(&str, &OsStr); 1] = [("FILE", path.as_os_str())];
    let children: Vec<Other> = (0..8).map(|_| spawn("a_child_opens_at_once", &env)).collect();
    for child in &children {
        assert_eq!(child.line(), "opened");
    }
    let children = children.len() as i64;
    let file = connect(&path);
    let held: i64 = file
        .query_row("SELECT count(*) FROM claim WHERE phase = 4", [], |row| row.get(0))
        .unwrap();
    assert_eq!(held, children);
}

#[test]
fn a_child_opens_at_once() {
    let Some(role) = child_role("a_child_opens_at_once") else {
        return;
    };
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        client.lock(&format!("of {}", std::process::id())).await;
    });
    role.say("opened");
    role.listen();
}

/// The thread of a file looks for more for a moment after each answer, and then sleeps until somebody asks.
#[test]
fn a_store_that_nobody_asks_sleeps() {
    let (_dir, path) = scratch();
    let child = spawn("a_child_takes_a_few", &[("FILE", path.as_os_str())]);
    assert_eq!(child.line(), "done");
    let threads = fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
    let is_ours = |dir: &PathBuf| fs::read_to_string(dir.join("comm")).unwrap().trim() == "tenure-sqlite";
    let thread = threads.map(|entry| entry.unwrap().path()).find(is_ours);
    let thread = thread.expect("the store has a thread");
    let sleeps = || {
        fs::read_to_string(thread.join("status"))
            .unwrap()
            .contains("State:\tS")
    };
    runtime().block_on(until("the thread sleeps", sleeps));
    let worked = || {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        let nanos = text.split(' ').next().map(str::parse);
        Duration::from_nanos(nanos.unwrap().unwrap())
    };
    let before = worked();
    assert!(before < Duration::from_millis(100), "{before:?} for a few locks");
    // sleep: that nothing happens in this time is the point.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(worked(), before);
}

#[test]
fn a_child_takes_a_few() {
    let Some(role) = child_role("a_child_takes_a_few") else {
        return;
    };
    runtime().block_on(async {
        let mut client = Client::new(open(Path::new(&role.var("FILE"))).await);
        for _ in 0..5 {
            let claim = client.lock("k").await;
            client.unlock(&claim).await;
        }
        role.say("done");
        role.listen();
    });
}
