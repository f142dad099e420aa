//! Runs the fenced writes of `tenure::fenced::RedisFence` on a real Redis server.

use std::time::Duration;

use tenure::FencingToken;
use tenure::fenced::{REFUSED, RedisFence, RedisWrite, Stale};
use tenure_servers::Redis;
use tokio::runtime::{Builder, Runtime};

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("the number is a token")
}

/// Runs a fenced write. Returns the server's reply, or its error.
fn run(server: &Redis, write: &RedisWrite, by: FencingToken, values: &[&str]) -> Result<String, String> {
    let arguments = write.eval(by, values);
    let texts: Vec<&str> = arguments
        .iter()
        .map(|bytes| std::str::from_utf8(bytes).expect("the values are texts"))
        .collect();
    let command = [&["EVAL"], &texts[..]].concat();
    server.ask(&command).map_err(|error| error.to_string())
}

fn stock() -> RedisFence {
    RedisFence::new("stock:42").expect("the key can have a fence")
}

#[test]
fn writes_accept_only_equal_and_newer_tokens() {
    let server = Redis::start().expect("redis-server starts");
    let (set, hset) = (stock().set(), stock().hset());
    assert_eq!(run(&server, &set, token(6), &["60"]), Ok("OK".into()));
    assert_eq!(
        run(&server, &set, token(6), &["61", "EX", "100"]),
        Ok("OK".into())
    );
    let refused = run(&server, &set, token(5), &["50"]).expect_err("the token is older");
    assert!(refused.contains(REFUSED), "{refused}");
    assert_eq!(Stale::in_error(&refused), Some(Stale::new(Some(token(6)))));
    assert_eq!(server.ask(&["GET", "stock:42"]).ok(), Some("61".into()));
    server.ask(&["DEL", "stock:42"]).expect("the server obeys");
    run(&server, &hset, token(5), &["left", "5"]).expect_err("the fence outlives the value");
    assert_eq!(
        run(&server, &hset, token(7), &["left", "7", "sold", "3"]),
        Ok("2".into())
    );
    assert_eq!(server.ask(&["HGET", "stock:42", "left"]).ok(), Some("7".into()));
}

#[test]
fn tokens_are_compared_exactly() {
    let server = Redis::start().expect("redis-server starts");
    let set = stock().set();
    // As numbers of Lua, these tokens are equal.
    let (older, newer) = (token((1 << 62) + 1), token((1 << 62) + 2));
    assert_eq!(run(&server, &set, token(9), &["a"]), Ok("OK".into()));
    assert_eq!(run(&server, &set, token(10), &["b"]), Ok("OK".into()));
    run(&server, &set, token(9), &["c"]).expect_err("9 is older than 10");
    assert_eq!(run(&server, &set, newer, &["d"]), Ok("OK".into()));
    run(&server, &set, older, &["e"]).expect_err("the token is older by one");
    assert_eq!(server.ask(&["GET", "stock:42"]).ok(), Some("d".into()));
}

#[test]
fn a_script_of_the_caller_runs_only_with_a_current_token() {
    let server = Redis::start().expect("redis-server starts");
    let add = stock().script("return redis.call('INCRBY', KEYS[1], ARGV[2])");
    assert_eq!(run(&server, &add, token(7), &["10"]), Ok("10".into()));
    assert_eq!(run(&server, &add, token(8), &["-1"]), Ok("9".into()));
    run(&server, &add, token(7), &["-1"]).expect_err("the token is older");
    assert_eq!(server.ask(&["GET", "stock:42"]).ok(), Some("9".into()));
}

#[test]
fn both_keys_are_in_one_slot() {
    for (key, fence) in [
        ("stock", "{stock}:fence"),
        ("a{b}c", "a{b}c:fence"),
        ("a{b", "{a{b}:fence"),
        ("{}{b}", ""),
        ("a}b", ""),
        ("", ""),
    ] {
        let keys = RedisFence::new(key);
        match keys {
            Ok(fenced) => assert_eq!(fenced.keys(), [key, fence]),
            Err(error) => assert!(fence.is_empty(), "{error}"),
        }
    }
}

/// A runtime whose tasks run only during `block_on`: at other times they are like a stopped process.
fn process() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made")
}

#[test]
fn a_paused_holder_cannot_write_after_the_next_one() {
    const LEASE: Duration = Duration::from_secs(1);
    let server = Redis::start().expect("redis-server starts");
    let set = stock().set();
    let (paused, other) = (process(), process());
    let hold = async || {
        let client = tenure::connect(&server.url()).await.expect("the server answers");
        let guard = client.mutex("stock").lease(LEASE).lock().await;
        let guard = guard.expect("the lease of the other holder ends");
        (guard.token().expect("Redis has tokens"), guard, client)
    };
    let (old, _old_guard, _old_client) = paused.block_on(hold());
    // Nothing runs on `paused` from here on, so nothing renews the lease.
    let (new, _new_guard, _new_client) = other.block_on(hold());
    assert_eq!(run(&server, &set, new, &["by the new holder"]), Ok("OK".into()));
    let refused = run(&server, &set, old, &["by the paused holder"]).expect_err("the token is older");
    assert_eq!(Stale::in_error(&refused), Some(Stale::new(Some(new))));
    assert_eq!(
        server.ask(&["GET", "stock:42"]).ok(),
        Some("by the new holder".into())
    );
}
