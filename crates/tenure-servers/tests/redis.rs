//! A Redis server can be started, stopped, killed, emptied, and moved in time.

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

#[test]
fn a_server_answers_and_is_gone_when_it_is_dropped() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let mut redis = Redis::start().unwrap();
    assert_eq!(redis.ask(&["PING"]).unwrap(), "PONG");
    assert!(redis.ask(&["NONSENSE"]).is_err());
    let (pid, address) = (redis.process().pid(), redis.address());
    drop(redis);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists());
    assert!(std::net::TcpStream::connect(address).is_err());
}

#[test]
fn what_was_written_survives_a_kill_unless_it_is_to_be_lost() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let mut redis = Redis::start_on(Disk::EveryWrite, None).unwrap();
    redis.ask(&["SET", "k", "v"]).unwrap();
    redis.restart(Data::Kept).unwrap();
    assert_eq!(redis.ask(&["GET", "k"]).unwrap(), "v");
    redis.restart(Data::Lost).unwrap();
    assert_eq!(redis.ask(&["GET", "k"]).unwrap(), "");
}

#[test]
fn a_server_that_takes_snapshots_loses_what_came_after_the_last() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let mut redis = Redis::start_on(Disk::Snapshots, None).unwrap();
    redis.ask(&["SET", "early", "v"]).unwrap();
    redis.ask(&["SAVE"]).unwrap();
    redis.ask(&["SET", "late", "v"]).unwrap();
    redis.restart(Data::Kept).unwrap();
    assert_eq!(redis.ask(&["GET", "early"]).unwrap(), "v");
    assert_eq!(redis.ask(&["GET", "late"]).unwrap(), "");
}

#[test]
fn a_paused_server_is_silent_and_goes_on_where_it_was() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let mut redis = Redis::start().unwrap();
    redis.process().pause();
    let address = redis.address();
    let asking = std::thread::spawn(move || {
        use std::io::{Read, Write};
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        stream.write_all(b"PING\r\n").unwrap();
        let mut answer = [0; 5];
        stream.read_exact(&mut answer).unwrap();
        answer
    });
    // sleep: silence is what is waited for.
    std::thread::sleep(Duration::from_millis(100));
    assert!(!asking.is_finished());
    redis.process().resume();
    assert_eq!(&asking.join().unwrap(), b"+PONG");
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
