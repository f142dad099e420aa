//! `tenure run` when the lock is lost or `tenure` is killed: no command outlives its lock, unless `--on-lost ignore`
//! is given.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_servers::{Data, Redis, ZooKeeper, needs};

use crate::fixture::{Fixture, Process, alive, assert_dead, fill, small_pipe, wait_for};

/// A command with a child in its group and one outside of it. It writes all three process ids to a file.
const FAMILY: &str = "sleep 600 & a=$!; setsid sleep 600 & echo $$ $a $! > pids; wait";

/// R22, R24: if `tenure` is killed (with any `--on-lost`) or stopped, the command's processes die before another client
/// gets the lock.
#[test]
fn a_killed_or_stopped_tenure_leaves_no_process_and_no_lock() {
    for (signal, on_lost, code) in [
        (Signal::KILL, "term", 137),
        (Signal::KILL, "ignore", 137),
        (Signal::STOP, "term", 123),
    ] {
        let fixture = Fixture::new();
        let run = fixture.shell(&["k", "--lease", "3s", "--on-lost", on_lost], FAMILY);
        let pids = fixture.pids("pids", 3);
        run.send(signal);
        let began = Instant::now();
        let hold = fixture.hold(&["k"]);
        hold.next("waiting");
        hold.next("acquired");
        assert_dead(&pids);
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        run.send(Signal::CONT);
        assert_eq!(run.finish().code, code);
        hold.release();
    }
}

#[test]
fn the_guardian_is_armed_before_the_command_starts() {
    let fixture = Fixture::new();
    // The command first stops `tenure`, the parent of the guardian. So a deadline that `tenure` sent only after the
    // start would never reach the guardian.
    let script = "kill -STOP $(cut -d' ' -f4 /proc/$PPID/stat); echo $$ > pid; exec sleep 600";
    let run = fixture.shell(&["k", "--lease", "3s"], script);
    let pid = fixture.pids("pid", 1)[0];
    wait_for("the command's end", || !alive(pid));
    run.send(Signal::CONT);
    assert_eq!(run.finish().code, 123);
}

#[test]
fn renewals_move_the_deadline_while_the_command_runs() {
    let fixture = Fixture::new();
    let began = Instant::now();
    let run = fixture.shell(&["k", "--lease", "3s"], "touch ran; sleep 4; exit 6");
    fixture.wait_for_file("ran");
    assert!(fixture.is_busy("k"));
    assert_eq!(run.finish().code, 6);
    assert!(began.elapsed() >= Duration::from_secs(4));
}

/// A cron mail must name the key, the store and the reason.
#[test]
fn the_warning_about_a_store_that_died_names_key_store_and_cause() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let mut redis = Redis::start().expect("the server starts");
    let fixture = Fixture::new();
    let url = redis.url();
    for (lock, words) in [
        (
            &["run", "backup", "--lease", "6s", "--", "sleep", "600"][..],
            "the lock on \"backup\" could not be renewed in time: Redis at",
        ),
        (
            &["hold", "backup", "--lease", "6s", "--no-stdin"],
            "the lock on \"backup\"",
        ),
    ] {
        let holder = fixture
            .at_home(lock)
            .env("TENURE_URL", &url)
            .stderr(Stdio::piped())
            .spawn();
        let holder = Process::of(holder.expect("it starts"));
        wait_for("the lock", || {
            let keys = fixture.call_at_home(&["--json", "ls", "backup"], &[("TENURE_URL", &url)]);
            keys.objects().len() == 1
        });
        redis.process().kill();
        let printed = holder.finish().stderr;
        let printed = printed
            .lines()
            .find(|line| line.contains(words))
            .unwrap_or(&printed);
        assert!(printed.contains(words), "{printed}");
        assert!(
            printed.contains("cannot be reached") && printed.contains("refused"),
            "{printed}"
        );
        assert!(!printed.contains("try again"), "{printed}");
        redis.restart(Data::Lost).expect("the server starts again");
    }
}

/// The servers give a third of the lease that is asked for. TERM is due before the local deadline, by a grace that must be
/// computed from the lease that they give: from the other, it would be due at once.
#[test]
fn a_store_that_shortens_leases_does_not_stop_the_command() {
    if !needs("zookeeper", "zookeeper") {
        return;
    }
    let tick = Duration::from_millis(500);
    let server = ZooKeeper::start_with(tick, "maxSessionTimeout=12000\n").expect("the server starts");
    let fixture = Fixture::new();
    let url = format!("{}?tick_time=500ms", server.url());
    let store: &[_] = &[("TENURE_URL", &*url)];
    let run = [
        "run", "k", "--lease", "36s", "--grace", "12s", "--", "sleep", "14",
    ];
    let done = fixture.call_at_home(&run, store);
    assert_eq!(done.code, 0, "{done:?}");
    let mut hold = fixture.at_home(&["hold", "k", "--json", "--lease", "36s"]);
    hold.envs(store.iter().copied());
    let hold = Process::start(hold);
    let lease = hold.next("acquired")["lease_ms"].as_u64();
    assert!(lease.is_some_and(|lease| lease <= 12_000), "{lease:?}");
    hold.release();
}

/// A renewal would find the eviction only after ten seconds. Redis tells the holder at once.
#[test]
fn on_redis_an_eviction_ends_run_and_hold_at_once() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let redis = Redis::start().expect("the server starts");
    let fixture = Fixture::new();
    let store: &[_] = &[("TENURE_URL", &*redis.url())];
    for (lock, code) in [
        (&["run", "k", "--", "sleep", "600"][..], 123),
        (&["--json", "hold", "k", "--no-stdin"], 4),
    ] {
        let mut holder = fixture.at_home(lock);
        holder
            .envs(store.iter().copied())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let holder = Process::of(holder.spawn().expect("it starts"));
        let subscribed = || {
            redis
                .ask(&["PUBSUB", "CHANNELS", "tenure:client:*"])
                .is_ok_and(|found| found.len() > 4)
        };
        wait_for("the holder's subscription", subscribed);
        let evicted = Instant::now();
        assert_eq!(fixture.call_at_home(&["evict", "k", "--all"], store).code, 0);
        let done = holder.finish();
        assert!(
            evicted.elapsed() < Duration::from_secs(5),
            "{:?}: {done:?}",
            evicted.elapsed()
        );
        assert_eq!(done.code, code, "{done:?}");
        assert!(format!("{done:?}").contains("evicted"), "{done:?}");
    }
}

/// R24: the command does not run on without its lock.
#[test]
fn an_evicted_command_gets_term_then_kill_and_123() {
    for (on_lost, terms_first) in [("term", true), ("kill", false)] {
        let fixture = Fixture::new();
        let script = "trap 'touch got_term' TERM; echo $$ > pid; while :; do sleep 0.02; done";
        let run = fixture.shell(
            &["k", "--lease", "6s", "--grace", "2s", "--on-lost", on_lost],
            script,
        );
        let pids = fixture.pids("pid", 1);
        fixture.evict("k");
        let done = run.finish();
        assert_eq!(done.code, 123, "{done:?}");
        assert!(done.stderr.contains("evicted"), "{done:?}");
        assert_eq!(fixture.path("got_term").exists(), terms_first, "{on_lost}");
        assert_dead(&pids);
    }
}

#[test]
fn a_known_loss_stops_the_command_before_the_deadline() {
    let fixture = Fixture::new();
    let run = fixture.shell(&["k", "--lease", "9s"], "echo $$ > pid; exec sleep 600");
    let pids = fixture.pids("pid", 1);
    let began = Instant::now();
    fixture.evict("k");
    assert_eq!(run.finish().code, 123);
    // The renewal at a third of the lease reports the loss. The deadline's TERM would come only after 7 s.
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    assert_dead(&pids);
}

#[test]
fn a_command_that_kills_its_guardian_dies_with_its_processes() {
    let fixture = Fixture::new();
    let mut codes = Vec::new();
    for _ in 0..10 {
        let script = "setsid sleep 600 & echo $$ $! > pids; kill -KILL $PPID; exec sleep 600";
        let run = fixture.shell(&["k"], script);
        let pids = fixture.pids("pids", 2);
        codes.push(run.finish().code);
        assert_dead(&pids);
        std::fs::remove_file(fixture.path("pids")).expect("it is there");
    }
    assert_eq!(codes, [123; 10], "it ran, so its end is no failure to start it");
    assert!(!fixture.is_busy("k"));
}

#[test]
fn on_lost_ignore_warns_and_lets_the_command_end() {
    let fixture = Fixture::new();
    let script = "touch ready; while ! [ -e go ]; do sleep 0.02; done; exit 6";
    let run = fixture.shell(&["k", "--lease", "3s", "--on-lost", "ignore"], script);
    fixture.wait_for_file("ready");
    fixture.evict("k");
    let other = fixture.holding(&["k"]);
    // sleep: lets the deadline pass. Without `--on-lost ignore`, the command would be killed at the deadline.
    std::thread::sleep(Duration::from_millis(3200));
    fixture.write("go", "", 0o600);
    let done = run.finish();
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.stderr.contains("lost"), "{done:?}");
    other.release();
}

#[test]
fn max_hold_stops_the_command_while_the_lock_is_still_held() {
    let fixture = Fixture::new();
    for on_lost in ["term", "ignore"] {
        let script = "trap 'touch got_term' TERM; echo $$ > pid; while :; do sleep 0.02; done";
        let began = Instant::now();
        let options = ["k", "--grace", "2s", "--max-hold", "2s", "--on-lost", on_lost];
        let run = fixture.shell(&options, script);
        fixture.wait_for_file("got_term");
        assert!(began.elapsed() >= Duration::from_secs(2));
        let pids = fixture.pids("pid", 1);
        let is_busy = fixture.is_busy("k");
        assert!(is_busy || !alive(pids[0]), "the lock outlives the command");
        assert_eq!(run.finish().code, 123);
        assert_dead(&pids);
        assert!(!fixture.is_busy("k"));
        std::fs::remove_file(fixture.path("got_term")).expect("it is there");
        std::fs::remove_file(fixture.path("pid")).expect("it is there");
    }
}

/// The holder learns of the eviction at a renewal, after 5 s. Its deadline comes after 14 s.
#[test]
fn a_full_stderr_does_not_delay_the_stop() {
    let fixture = Fixture::new();
    let (reader, stderr) = small_pipe();
    // The shell itself reports on stderr that a signal has ended its `sleep`.
    let script = "exec 2> log; trap 'touch termed; exit' TERM; touch ran; while :; do sleep 0.02; done";
    let mut command = fixture.command(&["run", "k", "--lease", "15s", "--", "sh", "-c", script]);
    let child = command.stderr(stderr.try_clone().expect("a descriptor")).spawn();
    let run = Process::of(child.expect("it starts"));
    drop(command);
    fixture.wait_for_file("ran");
    fill(&stderr);
    drop(stderr);
    let began = Instant::now();
    fixture.evict("k");
    fixture.wait_for_file("termed");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let warning = std::io::read_to_string(reader).expect("text");
    assert!(warning.contains("evicted"), "{warning}");
    assert_eq!(run.finish().code, 123);
}
