//! A Redis server can be started, paused, killed and emptied, and its clock can be stepped.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tenure_servers::{Data, Disk, Redis, SteppedClock, needs};

/// Polls `done` until it returns true; panics with `what` after 30 s.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        // sleep: the server is another process, so the test polls it.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Starts a server; `None` if `TENURE_SKIP` names `redis-server`.
fn start(disk: Disk) -> Option<Redis> {
    needs("redis-server", "redis-server").then(|| Redis::start_on(disk, None).unwrap())
}

#[test]
fn a_server_answers_and_is_gone_when_it_is_dropped() {
    let Some(mut redis) = start(Disk::Nothing) else {
        return;
    };
    assert_eq!(redis.ask(&["PING"]).unwrap(), "PONG");
    let error = redis.ask(&["NONSENSE"]).unwrap_err().to_string();
    assert!(error.starts_with("ERR unknown command"), "{error}");
    let nested = ["EVAL", "return {1, 'a\\r\\nb', {'c', {}}, false, 'ü'}", "0"];
    assert_eq!(redis.ask(&nested).unwrap(), "1\na\r\nb\nc\n\n\nü");
    let (pid, address) = (redis.process().pid(), redis.address());
    drop(redis);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn a_restart_keeps_or_loses_the_data_as_requested() {
    let Some(mut redis) = start(Disk::EveryWrite) else {
        return;
    };
    redis.ask(&["SET", "k", "v"]).unwrap();
    redis.restart(Data::Kept).unwrap();
    assert_eq!(redis.ask(&["GET", "k"]).unwrap(), "v");
    redis.restart(Data::Lost).unwrap();
    assert_eq!(redis.ask(&["GET", "k"]).unwrap(), "");
}

#[test]
fn a_server_with_snapshots_loses_later_writes() {
    let Some(mut redis) = start(Disk::Snapshots) else {
        return;
    };
    redis.ask(&["SET", "early", "v"]).unwrap();
    redis.ask(&["SAVE"]).unwrap();
    redis.ask(&["SET", "late", "v"]).unwrap();
    redis.restart(Data::Kept).unwrap();
    assert_eq!(redis.ask(&["GET", "early"]).unwrap(), "v");
    assert_eq!(redis.ask(&["GET", "late"]).unwrap(), "");
}

#[test]
fn a_paused_server_is_silent_until_it_is_resumed() {
    let Some(mut redis) = start(Disk::Nothing) else {
        return;
    };
    redis.process().pause();
    let mut stream = TcpStream::connect(redis.address()).unwrap();
    stream.write_all(b"PING\r\n").unwrap();
    stream.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut answer = [0; 5];
    assert!(
        stream.read_exact(&mut answer).is_err(),
        "silence is what is waited for"
    );
    redis.process().resume();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+PONG");
}

#[test]
fn a_clock_step_forward_expires_keys() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let redis = Redis::start_with(&["--save", ""], Some(SteppedClock::new().unwrap())).unwrap();
    let clock = redis.clock().unwrap();
    redis.ask(&["SET", "k", "v", "PX", "60000"]).unwrap();
    let left = || redis.ask(&["PTTL", "k"]).unwrap().parse::<i64>().unwrap();
    clock.step_ms(30_000).unwrap();
    wait_until("a step forward", || left() <= 30_000);
    clock.step_ms(-20_000).unwrap();
    wait_until("a step back", || left() > 40_000);
    clock.step_ms(90_000).unwrap();
    wait_until("the end of the key", || left() == -2);
}
