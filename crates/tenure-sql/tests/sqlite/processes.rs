//! Processes that share a lock file exclude and wake each other, and continue after one of them is killed or stopped.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_backend::{Backend, Fairness, Fault, Severity};
use tenure_sql::sqlite::{self, Config, SqliteStore};

use crate::fixture::{
    ChildProcess, ChildRole, TestClient, child, connect, findings, number, spawn, spawn_on, temp_lock_file,
    wait_until,
};

async fn open(path: &Path) -> Arc<SqliteStore> {
    crate::fixture::open(path).await.expect("the file opens")
}

fn fairness(role: &ChildRole) -> Fairness {
    if role.var("FAIRNESS") == "fifo" {
        Fairness::Fifo
    } else {
        Fairness::Unfair
    }
}

#[test]
fn processes_increment_a_counter_under_the_lock() {
    for fairness in ["unfair", "fifo"] {
        let (dir, path) = temp_lock_file();
        let counter = dir.path().join("counter");
        fs::write(&counter, "0").unwrap();
        let start = |_| {
            spawn(
                "child_increments_a_counter",
                &[("FILE", &path), ("COUNTER", &counter), ("FAIRNESS", &fairness)],
            )
        };
        let children: Vec<ChildProcess> = (0..4).map(start).collect();
        for child in &children {
            assert_eq!(child.read_line(), "done");
        }
        assert_eq!(fs::read_to_string(&counter).unwrap(), "160", "{fairness}");
    }
}

#[test]
fn child_increments_a_counter() {
    child("child_increments_a_counter", async |role| {
        let counter = PathBuf::from(role.var("COUNTER"));
        let mut client = role.client().await;
        for _ in 0..40 {
            let claim = client.wait("counter", fairness(&role)).await;
            let number: u32 = fs::read_to_string(&counter).unwrap().parse().unwrap();
            std::thread::yield_now();
            fs::write(&counter, (number + 1).to_string()).unwrap();
            client.unlock(&claim).await;
        }
        role.print("done");
    });
}

/// Four processes lock an unfair key, and each asks again right after its release. Each must get at least half of an
/// equal share. They do so only because the store keeps a freed key for the waiter that it wakes.
#[test]
fn each_process_gets_half_its_share_of_an_unfair_key() {
    const PROCESSES: usize = 4;
    const GRANTS: usize = 400;
    let (dir, path) = temp_lock_file();
    let log = dir.path().join("log");
    fs::write(&log, "").unwrap();
    let start = |_| {
        spawn(
            "child_locks_as_often_as_it_can",
            &[("FILE", &path), ("LOG", &log), ("GRANTS", &GRANTS.to_string())],
        )
    };
    let mut children: Vec<ChildProcess> = (0..PROCESSES).map(start).collect();
    for child in &children {
        assert_eq!(child.read_line(), "ready");
    }
    for child in &mut children {
        child.write_line("go");
    }
    for child in &children {
        assert_eq!(child.read_line(), "done");
    }
    let log = fs::read_to_string(&log).unwrap();
    let share = |child: &ChildProcess| {
        let pid = child.pid().to_string();
        log.lines().filter(|line| *line == pid).count()
    };
    let shares: Vec<usize> = children.iter().map(share).collect();
    let least = GRANTS / PROCESSES / 2;
    assert!(shares.iter().all(|share| *share >= least), "{shares:?}");
}

#[test]
fn child_locks_as_often_as_it_can() {
    child("child_locks_as_often_as_it_can", async |role| {
        let (log, grants) = (PathBuf::from(role.var("LOG")), role.number("GRANTS") as usize);
        let me = format!("{}\n", std::process::id());
        let mut client = role.client().await;
        role.print("ready");
        role.read_line();
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
        role.print("done");
    });
}

#[tokio::test]
async fn a_release_wakes_a_waiter_in_another_process() {
    for fairness in ["unfair", "fifo"] {
        let (_dir, path) = temp_lock_file();
        let mut client = TestClient::new(open(&path).await);
        let mut waiter = spawn("child_waits", &[("FILE", &path), ("FAIRNESS", &fairness)]);
        let (mut times, mut writes) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let start = Instant::now();
            let held = client.lock("k").await;
            writes.push(start.elapsed());
            waiter.write_line("wait");
            assert_eq!(waiter.read_line(), "waits");
            wait_for_waiter(&path).await;
            let start = Instant::now();
            client.unlock(&held).await;
            assert_eq!(waiter.read_line(), "has it");
            times.push(start.elapsed());
            waiter.write_line("free");
            assert_eq!(waiter.read_line(), "free");
        }
        times.sort();
        writes.sort();
        // The holder's lease is one minute, so a wait this short shows a wake-up and not a poll. The bound is 100 ms,
        // which is ten times the worst case on an idle machine, plus the time of five writes to this disk.
        let bound = Duration::from_millis(100) + 5 * writes[writes.len() / 2];
        let median = times[times.len() / 2];
        assert!(median < bound, "{fairness}: {times:?}, bound {bound:?}");
    }
}

/// Waits until the table has a waiter: a claim in the queue (phase 3), or an unfair one that is registered for
/// wake-ups (phase 2).
async fn wait_for_waiter(path: &Path) {
    let file = connect(path);
    let waiting = "SELECT count(*) FROM claim WHERE phase IN (2, 3)";
    wait_until("a claim waits", || number(&file, waiting) > 0).await;
}

#[test]
fn child_waits() {
    child("child_waits", async |role| {
        let mut client = role.client().await;
        loop {
            assert_eq!(role.read_line(), "wait");
            role.print("waits");
            let claim = client.wait("k", fairness(&role)).await;
            role.print("has it");
            assert_eq!(role.read_line(), "free");
            client.unlock(&claim).await;
            role.print("free");
        }
    });
}

#[tokio::test]
async fn a_killed_process_leaves_an_intact_file() {
    let (_dir, path) = temp_lock_file();
    for round in 0..10 {
        let victim = spawn_on(&path, "child_writes_all_the_time");
        // Each round kills the process a little later, while it keeps writing.
        for _ in 0..=round {
            assert_eq!(victim.read_line(), "writes");
        }
        victim.signal(Signal::KILL);
        drop(victim);
        let store = open(&path).await;
        let mut client = TestClient::new(store.clone());
        client.lock(&format!("round {round}")).await;
        assert_eq!(findings(&store).await, [], "round {round}");
    }
}

#[test]
fn child_writes_all_the_time() {
    child("child_writes_all_the_time", async |role| {
        let mut client = role.client().await;
        let key = std::process::id().to_string();
        loop {
            let claim = client.lock(&key).await;
            client.unlock(&claim).await;
            role.print("writes");
        }
    });
}

#[tokio::test]
async fn a_process_stopped_in_a_transaction_is_named() {
    let (_dir, path) = temp_lock_file();
    let config = Config {
        busy_limit: Duration::from_millis(300),
        ..Config::default()
    };
    let store = sqlite::open_with(Some(path.clone()), config).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let held = client.lock("k").await;
    let sleeper = spawn_on(&path, "child_stays_in_a_transaction");
    assert_eq!(sleeper.read_line(), "writes");
    sleeper.signal(Signal::STOP);
    let pid = format!("process {} ", sleeper.pid());
    let status = || fs::read_to_string(format!("/proc/{}/status", sleeper.pid())).unwrap();
    wait_until("the child stops", || status().contains("State:\tT")).await;

    let (_, refused) = client.acquire("other", |_| {}).await;
    let error = refused.expect_err("the stopped process keeps the write lock");
    assert_eq!(error.fault(), Fault::Unavailable, "{error}");
    let text = error.to_string();
    for words in [&*pid, "stopped", "-CONT"] {
        assert!(text.contains(words), "{text}");
    }
    let found = findings(&store).await;
    let named = |(_, what): &&(Severity, String)| what.contains(&pid);
    let severity = found.iter().find(named).map(|found| found.0);
    assert_eq!(severity, Some(Severity::Danger), "{found:?}");

    sleeper.signal(Signal::KILL);
    drop(sleeper);
    client.unlock(&held).await;
    client.lock("other").await;
    assert_eq!(findings(&store).await, []);
}

#[test]
fn child_stays_in_a_transaction() {
    child("child_stays_in_a_transaction", async |role| {
        let file = connect(role.var("FILE"));
        file.execute_batch("BEGIN IMMEDIATE; UPDATE token_counter SET last_token = last_token")
            .unwrap();
        role.print("writes");
        role.read_line();
    });
}

#[tokio::test]
async fn closing_a_store_removes_its_watchers() {
    let (_dir, path) = temp_lock_file();
    let mut holder = TestClient::new(open(&path).await);
    let held = holder.lock("k").await;
    let mut waiter = TestClient::new(open(&path).await);
    let (claim, _) = waiter.acquire("k", |_| {}).await;
    let _wakes = waiter.store.clone().watch(claim).await.unwrap();
    wait_for_waiter(&path).await;
    waiter.store.clone().close().await.unwrap();
    holder.unlock(&held).await;
    assert!(
        holder.try_lock("k").await,
        "the key is not reserved for a closed store"
    );
}

#[test]
fn processes_can_create_a_file_at_once() {
    let (_dir, path) = temp_lock_file();
    let start = |_| spawn_on(&path, "child_opens_at_once");
    let children: Vec<ChildProcess> = (0..8).map(start).collect();
    for child in &children {
        assert_eq!(child.read_line(), "opened");
    }
    let held = "SELECT count(*) FROM claim WHERE phase = 4";
    assert_eq!(number(&connect(&path), held), children.len() as i64);
}

#[test]
fn child_opens_at_once() {
    child("child_opens_at_once", async |role| {
        let mut client = role.client().await;
        client.lock(&format!("of {}", std::process::id())).await;
        drop(client);
        role.print("opened");
        role.read_line();
    });
}

/// After a reply, the thread that serves the file polls briefly for another request, and then sleeps without a
/// timeout.
#[tokio::test]
async fn an_idle_store_uses_no_cpu_time() {
    let (_dir, path) = temp_lock_file();
    let child = spawn_on(&path, "child_takes_a_few_locks");
    assert_eq!(child.read_line(), "done");
    let threads = fs::read_dir(format!("/proc/{}/task", child.pid())).unwrap();
    let is_ours = |dir: &PathBuf| fs::read_to_string(dir.join("comm")).unwrap().trim() == "tenure-sqlite";
    let thread = threads.map(|entry| entry.unwrap().path()).find(is_ours);
    let thread = thread.expect("the store has a thread");
    let status = || fs::read_to_string(thread.join("status")).unwrap();
    let sleeps = || status().contains("State:\tS");
    wait_until("the thread sleeps", sleeps).await;
    let worked = || {
        let text = fs::read_to_string(thread.join("schedstat")).unwrap();
        let nanos = text.split(' ').next().map(str::parse);
        Duration::from_nanos(nanos.unwrap().unwrap())
    };
    let before = worked();
    assert!(before < Duration::from_millis(100), "{before:?} for a few locks");
    // sleep: the test checks that the thread uses no CPU time meanwhile.
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(worked(), before);
}

#[test]
fn child_takes_a_few_locks() {
    child("child_takes_a_few_locks", async |role| {
        let mut client = role.client().await;
        for _ in 0..5 {
            let claim = client.lock("k").await;
            client.unlock(&claim).await;
        }
        role.print("done");
        role.read_line();
    });
}
