//! A Redis server can be started, stopped, killed, emptied, and moved in time.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tenure_servers::{Data, Disk, Redis, SteppedClock, needs};

/// Waits until `done`, or fails.
fn wait_until(what: &str, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() {
        assert!(Instant::now() < end, "{what}: not within 30 s");
        // sleep: the server is another process, and is asked again.
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A server that keeps so much on its disk, unless tests are to do without.
fn start(disk: Disk) -> Option<Redis> {
    needs("redis-server", "redis-server").then(|| Redis::start_on(disk, None).unwrap())
}

#[test]
fn a_server_answers_and_is_gone_when_it_is_dropped() {
    let Some(mut redis) = start(Disk::Nothing) else {
        return;
    };
    assert_eq!(redis.ask(&["PING"]).unwrap(), "PONG");
    assert!(redis.ask(&["NONSENSE"]).is_err());
    let (pid, address) = (redis.process().pid(), redis.address());
    drop(redis);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn what_was_written_survives_a_kill_unless_it_is_to_be_lost() {
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
fn a_server_that_takes_snapshots_loses_what_came_after_the_last() {
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
fn a_paused_server_is_silent_and_goes_on_where_it_was() {
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
fn a_server_whose_clock_steps_forward_ends_what_has_a_time_limit() {
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
