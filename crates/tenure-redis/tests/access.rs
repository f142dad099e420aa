//! Who may, and how: URLs, passwords, users, databases; and what `doctor` finds. TLS is in `tls.rs`.

mod stage;

use std::sync::Arc;
use std::time::Duration;

use stage::Stage;
use tenure_backend::{Backend, BackendError, Effect, Fault, Finding, Mode, Severity};
use tenure_endpoint::StoreUrl;
use tenure_redis::{Config, RedisStore};
use tenure_servers::Redis;

const PASSWORD: &str = "s3cr3t-and-long";

fn config(url: &str) -> Result<Config, BackendError> {
    Config::from_url(&StoreUrl::parse(url).expect("a URL"))
}

async fn connect(url: &str) -> Result<Arc<RedisStore>, BackendError> {
    RedisStore::connect(config(url)?).await
}

/// Everything that could be printed of an error.
fn printed(error: &BackendError) -> String {
    let cause = std::error::Error::source(error).map(ToString::to_string);
    format!("{error} {error:?} {cause:?}")
}

fn refused(url: &str) -> BackendError {
    let error = config(url).expect_err(url);
    assert_eq!(error.effect(), Effect::None);
    error
}

#[test]
fn what_is_not_served_is_refused_in_words() {
    for (url, fault, words) in [
        (
            "redis://h?layout=plain",
            Fault::Unsupported,
            "`plain` is not served",
        ),
        (
            "redis://h?layout=spring",
            Fault::Unsupported,
            "`spring` is not served",
        ),
        ("redis://h?fencing=redisson", Fault::Unsupported, "not served"),
        ("redis://h?replicas=1", Fault::Unsupported, "not served"),
        ("redis://h?replica_wait=1s", Fault::Unsupported, "not served"),
        ("redis://a,b", Fault::Invalid, "names one server"),
        ("redis://h/first", Fault::Invalid, "number of a database"),
        ("redis://h?layout=claims", Fault::Invalid, "redisson"),
        ("redis://h?colour=red", Fault::Invalid, "connect_timeout"),
        ("redis://h?ca=/x", Fault::Invalid, "rediss"),
        ("rediss://h?cert=/x", Fault::Invalid, "give both"),
        ("redis://h?command_timeout=0s", Fault::Invalid, "longer than 0"),
    ] {
        let error = refused(url);
        assert_eq!(error.fault(), fault, "{url}: {error}");
        assert!(error.to_string().contains(words), "{url}: {error}");
    }
}

#[test]
fn a_url_says_where_who_and_for_how_long() {
    let read =
        config("redis://ada:s3cr3t@cache:6380/4?connect_timeout=1s&command_timeout=250ms&layout=redisson");
    let read = read.expect("it makes sense");
    assert_eq!((read.address().as_str(), read.database), ("cache:6380", 4));
    assert_eq!(read.user.as_deref(), Some("ada"));
    assert_eq!(
        (read.connect_timeout, read.command_timeout),
        (Duration::from_secs(1), Duration::from_millis(250))
    );
    let usual = config("redis://cache").expect("it makes sense");
    assert_eq!(usual.address(), "cache:6379");
    assert_eq!(
        (usual.connect_timeout, usual.command_timeout),
        (Duration::from_secs(5), Duration::from_secs(3))
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_is_asked_for_refused_and_never_shown() {
    let server = Redis::start().expect("it starts");
    server
        .ask(&["CONFIG", "SET", "requirepass", PASSWORD])
        .expect("it obeys");
    let host = server.address();
    let store = connect(&format!("redis://:{PASSWORD}@{host}"))
        .await
        .expect("the right one");
    assert!(!format!("{store:?}").contains(PASSWORD));
    let missing = connect(&format!("redis://{host}")).await.expect_err("none");
    assert_eq!(missing.fault(), Fault::Denied, "{missing:?}");
    let wrong = connect(&format!("redis://:{PASSWORD}x@{host}"))
        .await
        .expect_err("a wrong one");
    assert_eq!(wrong.fault(), Fault::Denied, "{wrong:?}");
    for error in [missing, wrong] {
        assert_eq!(error.effect(), Effect::None);
        assert!(!printed(&error).contains(PASSWORD), "{error:?}");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, format!("{PASSWORD}\n")).expect("a file");
    let url = format!("redis://{host}?password_file={}", file.display());
    connect(&url).await.expect("the password is in the file");
    let twice = format!("redis://:x@{host}?password_file={}", file.display());
    assert_eq!(refused(&twice).fault(), Fault::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_is_denied_in_words_and_one_with_few_can_lock() {
    let stage = Stage::new().await;
    let host = stage.redis.lock().address();
    let user = |name: &str, rules: &[&str]| {
        stage.ask(&[&["ACL", "SETUSER", name, "on", &format!(">{PASSWORD}")], rules].concat());
        format!("redis://{name}:{PASSWORD}@{host}")
    };
    let nobody = user("nobody", &["~*", "&*", "+ping"]);
    let error = connect(&nobody).await.expect_err("it may nothing");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Denied, Effect::None),
        "{error:?}"
    );
    assert!(!printed(&error).contains(PASSWORD), "{error:?}");
    // What the documentation says is enough.
    let enough = [
        "~*",
        "&*",
        "+evalsha",
        "+script|load",
        "+script|exists",
        "+time",
        "+exists",
        "+pttl",
        "+pexpire",
        "+pexpireat",
        "+persist",
        "+get",
        "+set",
        "+getset",
        "+psetex",
        "+hset",
        "+hdel",
        "+hmget",
        "+hgetall",
        "+hkeys",
        "+hexists",
        "+lindex",
        "+lpos",
        "+lpush",
        "+rpush",
        "+lpop",
        "+lrem",
        "+lrange",
        "+zadd",
        "+zrem",
        "+zscore",
        "+zcard",
        "+zincrby",
        "+zrange",
        "+zrevrange",
        "+zrangebyscore",
        "+publish",
        "+subscribe",
        "+unsubscribe",
        "+pubsub|numsub",
        "+ping",
        "+scan",
        "+select",
    ];
    let store = connect(&user("locker", &enough)).await.expect("it may lock");
    let trial = &stage.trial;
    let (client, key) = (trial.client().await, trial.key());
    let held = client.fair(&key, Mode::Exclusive);
    let place_by = client.now() + Duration::from_secs(5);
    let standing = store
        .clone()
        .acquire(held.clone(), place_by)
        .await
        .expect("it is granted");
    assert!(
        matches!(standing, tenure_backend::Standing::Granted(_)),
        "{standing:?}"
    );
    let waits = client.fair(&key, Mode::Exclusive);
    store
        .clone()
        .acquire(waits.clone(), place_by)
        .await
        .expect("it waits");
    let wakes = store.clone().watch(waits).await.expect("it may subscribe");
    client.release(&held).await.freed_it(&held);
    drop(wakes);
    let found = store.examine().await.expect("it can be examined");
    assert!(found.iter().any(|one| one.what.contains("INFO")), "{found:?}");
}

/// A right that is missing shows in the midst of a script: nobody knows then what was done.
#[tokio::test(flavor = "multi_thread")]
async fn a_right_that_is_missing_within_a_script_is_denied_with_unknown_effect() {
    let stage = Stage::new().await;
    let host = stage.redis.lock().address();
    let password = format!(">{PASSWORD}");
    stage.ask(&[
        "ACL", "SETUSER", "mute", "on", &password, "~*", "&*", "+@all", "-publish",
    ]);
    let store = connect(&format!("redis://mute:{PASSWORD}@{host}"))
        .await
        .expect("it may connect");
    let (client, key) = (stage.trial.client().await, stage.trial.key());
    let claim = client.claim(&key, Mode::Exclusive);
    client.granted(&claim).await;
    let batch = tenure_backend::Batch::from_iter([tenure_backend::Departure {
        who: tenure_backend::Holder::Claim(claim.at.clone()),
        cause: tenure_backend::Cause::Unlocked,
        heir: None,
        bar: Duration::ZERO,
    }]);
    match store.release(batch).await.pop() {
        Some(tenure_backend::Released::Unknown(error)) => {
            assert_eq!(
                (error.fault(), error.effect()),
                (Fault::Denied, Effect::Unknown),
                "{error:?}"
            );
        }
        other => panic!("{other:?}"),
    }
    client.withdraw(&claim).await.freed_nobody();
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_live_in_the_database_that_the_url_names() {
    let stage = Stage::new().await;
    let host = stage.redis.lock().address();
    let store = connect(&format!("redis://{host}/3")).await.expect("it answers");
    let client = stage.trial.client().await;
    let claim = client.claim(&stage.trial.key(), Mode::Exclusive);
    let place_by = client.now() + Duration::from_secs(5);
    store
        .acquire(claim.clone(), place_by)
        .await
        .expect("it is granted");
    assert_eq!(stage.keys(), [""; 0]);
    stage.ask(&["SELECT", "3"]);
    assert!(stage.keys().contains(&claim.at.key.to_string()));
    let none = connect(&format!("redis://{host}/99"))
        .await
        .expect_err("there is none");
    assert_eq!(none.effect(), Effect::None, "{none:?}");
}

#[cfg(not(feature = "tls"))]
#[tokio::test(flavor = "multi_thread")]
async fn tls_that_was_left_out_names_the_feature() {
    let error = connect("rediss://127.0.0.1").await.expect_err("it was left out");
    assert_eq!(error.fault(), Fault::Unsupported);
    assert!(error.to_string().contains("`tls`"), "{error}");
}

async fn findings(options: &[&str]) -> (Redis, Vec<Finding>) {
    let server = Redis::start_with(options, None).expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let found = store.examine().await.expect("it can be examined");
    (server, found)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_keeps_everything_has_nothing_to_find() {
    let (_server, found) = findings(&["--save", "", "--appendonly", "yes", "--appendfsync", "always"]).await;
    assert_eq!(found, []);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_crash_of_the_machine_can_take_is_told() {
    for (policy, severity) in [("everysec", Severity::Note), ("no", Severity::Warning)] {
        let (_server, found) =
            findings(&["--save", "", "--appendonly", "yes", "--appendfsync", policy]).await;
        let [finding] = &found[..] else {
            panic!("{found:?}")
        };
        assert_eq!(finding.severity, severity);
        assert!(finding.what.contains(policy), "{finding:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_weakens_locks_is_found_with_what_follows() {
    let options = [
        "--save",
        "",
        "--maxmemory",
        "100mb",
        "--maxmemory-policy",
        "allkeys-lru",
    ];
    let (server, found) = findings(&options).await;
    let one = |words: &str| {
        let finding = found.iter().find(|finding| finding.what.contains(words));
        finding.unwrap_or_else(|| panic!("{words} in {found:?}"))
    };
    assert_eq!(one("append-only").severity, Severity::Warning);
    assert_eq!(one("allkeys-lru").severity, Severity::Danger);
    assert!(found.iter().all(|finding| !finding.consequence.is_empty()));
    // A replica grants nothing, and says so.
    server.ask(&["REPLICAOF", "127.0.0.1", "1"]).expect("it obeys");
    let store = connect(&server.url()).await;
    if let Ok(store) = store {
        let found = store.examine().await.expect("it can be examined");
        assert!(
            found
                .iter()
                .any(|finding| finding.what.contains("replica of another")),
            "{found:?}"
        );
    }
}
