//! Access: URLs, passwords, users, permissions and databases.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::Duration;

use crate::fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    Backend, BackendError, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault, LockKey, Mode, Phase,
    Query, ReleaseRequest, ReleaseTarget, Severity,
};
use tenure_redis::RedisStore;
use tenure_servers::Redis;

/// Asserts that connecting fails with this fault and these words, without effect, and without a secret in the error.
async fn refuses(url: &str, fault: Fault, words: &str) {
    let error = connect(url).await.expect_err(url);
    assert_error(&error, (fault, Effect::None), words);
    let printed = printed(&error);
    assert!(
        !printed.contains(PASSWORD) && !printed.contains("local "),
        "no password and no script: {printed}"
    );
}

fn refused(url: &str) -> BackendError {
    let error = config(url).expect_err(url);
    assert_eq!(error.effect(), Effect::None);
    error
}

#[test]
fn unsupported_urls_are_refused_with_a_reason() {
    use Fault::Invalid;
    for (url, fault, words) in [
        ("redis://h?layout=spring", Invalid, "needs `registry=NAME`"),
        (
            "redis://h?layout=plain&fencing=redisson",
            Invalid,
            "for the layout `redisson`",
        ),
        ("redis://h?layout=plain&registry=x", Invalid, "leave it out"),
        ("redis://a,b", Invalid, "names one server"),
        ("redis://ada@h", Invalid, "a user and no password"),
        ("redis://ada:@h", Invalid, "a user and no password"),
        ("redis://h/first", Invalid, "number of a database"),
        ("redis://h?layout=claims", Invalid, "redisson"),
        ("redis://h?colour=red", Invalid, "connect_timeout"),
        ("redis://h?ca=/x", Invalid, "rediss"),
        ("rediss://h?cert=/x", Invalid, "give both"),
        ("redis://h?command_timeout=0s", Invalid, "longer than 0"),
    ] {
        let error = refused(url);
        assert_eq!(error.fault(), fault, "{url}: {error}");
        assert!(error.to_string().contains(words), "{url}: {error}");
    }
}

/// A URL's user without a password may be a misplaced password: it is neither printed nor sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_password_is_not_the_default_user() {
    let error = refused(&format!("redis://{PASSWORD}@h"));
    assert!(!printed(&error).contains(PASSWORD), "{error:?}");
    let server = Redis::start().expect("it starts");
    let ask = |command: &[&str]| server.ask(command).expect("it obeys");
    ask(&["ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all"]);
    let named = |name: &str| {
        let base = config(&server.url()).expect("a URL");
        RedisStore::connect(base.user(name))
    };
    let _store = named("open").await.expect("it needs no password");
    assert!(ask(&["CLIENT", "LIST"]).contains("user=open"));
    let error = named("nobody").await.expect_err("there is none of that name");
    assert_eq!(error.fault(), Fault::Denied, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_permissions_is_denied_with_a_reason() {
    let fixture = Fixture::new().await;
    let host = fixture.redis.lock().address();
    fixture.command(&[
        "ACL",
        "SETUSER",
        "nobody",
        "on",
        &format!(">{PASSWORD}"),
        "~*",
        "&*",
        "+ping",
    ]);
    refuses(&format!("redis://nobody:{PASSWORD}@{host}"), Fault::Denied, "").await;
}

/// The clients use every verb, with a Redis user that has only the documented permissions.
#[tokio::test(flavor = "multi_thread")]
async fn the_documented_permissions_are_sufficient_and_minimal() {
    for server in [Server::start(), Server::batching()] {
        let fixture = Fixture::on(server).await;
        let ([a, b], key) = (fixture.store.two().await, fixture.store.key());
        let held = hold(&a, &key).await;
        let waits = b.fair(&key, Mode::Exclusive);
        let mut wakes = b.watch(&waits).await.expect("it may subscribe");
        b.waits(&waits).await;
        a.stays_alive(&held, Phase::Granted).await;
        b.stays_alive(&waits, Phase::Waiting).await;
        let status = a.status(&key).await.expect("it may look");
        assert_eq!(
            (status.holders.len(), status.waiters.map(|all| all.len())),
            (1, Some(1))
        );
        assert_eq!(a.list("", 1_000).await.len(), 1, "it may list");
        a.release(&held).await.freed_it(&held);
        wait_for_wake(&mut wakes).await;
        b.granted_soon(&waits).await;
        for foreign in [true, false] {
            let key = fixture.store.key();
            java_hold(&fixture, &key, 60_000);
            let who = match foreign {
                true => ReleaseTarget::Foreign { key, id: JAVA.into() },
                false => ReleaseTarget::All(key),
            };
            let by = Some("alice".into());
            let evicted = ReleaseRequest {
                cause: Cause::Evicted { by },
                cooldown: Duration::from_millis(1),
                ..eviction_of(who)
            };
            assert_eq!(a.send_release(evicted).await.freed.len(), 1, "it may evict");
        }
        fixture.command(&["SCRIPT", "FLUSH"]);
        let again = hold(&a, &fixture.store.key()).await;
        a.release(&again).await.freed_it(&again);
        let found = examine(a.backend()).await;
        assert!(found.iter().all(|one| !one.what.contains("INFO")), "{found:?}");
        assert_eq!(fixture.text(&["ACL", "LOG"]), "", "nothing was refused");
        assert!(fixture.text(&["CLIENT", "LIST"]).contains("user=tenure"));
    }
    // The documented permissions are exactly the commands that the scripts and the client call.
    let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts")).expect("it is there");
    let scripts: String = folder
        .map(|file| std::fs::read_to_string(file.expect("a file").path()).expect("a script"))
        .collect();
    let quoted = scripts.split("('").skip(1);
    let words = quoted.filter_map(|call| call.split('\'').next());
    let by_scripts = words
        .filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()))
        .map(|word| match word {
            "PUBSUB" => "+pubsub|numsub".to_owned(),
            word => format!("+{}", word.to_lowercase()),
        });
    let by_us = "~* &* -@all +evalsha +eval +script|load +ping +select +subscribe +unsubscribe +scan +dbsize +info \
                 +config|get +script|exists +role +wait +cluster|slots +cluster|nodes +cluster|info +hello +spublish +ssubscribe \
                 +sunsubscribe +pubsub|shardnumsub";
    let called: BTreeSet<String> = by_scripts.chain(by_us.split(' ').map(str::to_owned)).collect();
    assert_eq!(documented_rights().into_iter().collect::<BTreeSet<_>>(), called);
}

/// A script that lacks a permission fails midway, so its effect is unknown.
#[tokio::test(flavor = "multi_thread")]
async fn a_denial_inside_a_script_has_an_unknown_effect() {
    let (fixture, client, key) = Fixture::one().await;
    let claim = hold(&client, &key).await;
    fixture.command(&["ACL", "SETUSER", USER, "-publish"]);
    let error = release_error(client.backend(), unlock_of(&claim)).await;
    assert_error(&error, (Fault::Denied, Effect::Unknown), "");
    fixture.command(&["ACL", "SETUSER", USER, "+publish"]);
    client.withdraw(&claim).await.freed_nothing();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unusable_server_is_refused_with_a_reason() {
    let no_scripts: &[&str] = &["--rename-command", "SCRIPT", ""];
    let no_databases: &[&str] = &["--rename-command", "SELECT", ""];
    let cluster: &[&str] = &["--cluster-enabled", "yes"];
    let given = format!(":{PASSWORD}@");
    for (options, asked_for, given, path, fault, words) in [
        (
            &[][..],
            "",
            "",
            "/16",
            Fault::Invalid,
            "no database 16: name another in the URL's path",
        ),
        (&[], "", "", "/99", Fault::Invalid, "no database 99:"),
        (&[], "", "", "/4294967295", Fault::Invalid, "or set `databases`"),
        (&[], "", &given, "", Fault::Denied, "asks for none"),
        // The redis crate drops the codes of errors during login.
        (&[], PASSWORD, "", "", Fault::Denied, "asks for a password"),
        (&[], PASSWORD, "", "/2", Fault::Denied, "asks for a password"),
        // A sentinel has neither scripts nor databases.
        (no_scripts, "", "", "", Fault::Unsupported, "sentinel"),
        (no_databases, "", "", "/2", Fault::Unsupported, "sentinel"),
        (cluster, "", "", "/2", Fault::Unsupported, "cluster"),
    ] {
        let server = Redis::start_with(&[&["--save", ""], options].concat(), None).expect("it starts");
        let asks = ["CONFIG", "SET", "requirepass", asked_for];
        server.ask(&asks).expect("it obeys");
        refuses(
            &format!("redis://{given}{}{path}", server.address()),
            fault,
            words,
        )
        .await;
    }
}

/// A server that sends this text to each client, and closes the connection without reading.
fn server_that_says(text: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.write_all(text.as_bytes()).expect("the client is there");
        }
    });
    address
}

/// The client has not read the reason when the server has already closed the connection.
#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_a_server_that_closes_is_shown() {
    for (text, fault, words) in [
        (
            "-DENIED Redis is running in protected mode.\r\n",
            Fault::Denied,
            "protected mode",
        ),
        (
            "-ERR max number of clients reached\r\n",
            Fault::Unavailable,
            "maxclients",
        ),
        ("HTTP/1.1 400 Bad Request\r\n\r\n", Fault::Store, "is not Redis"),
        (
            "$100\r\nthe connection is cut here",
            Fault::Unavailable,
            "cannot be reached",
        ),
    ] {
        let url = format!("redis://{}", server_that_says(text));
        for _ in 0..20 {
            refuses(&url, fault, words).await;
        }
    }
}

/// A server that replies to `TIME` with these seconds and to all other commands with `OK`. It serves one client.
fn server_at(seconds: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = listener.local_addr().expect("it has an address");
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a client connects");
        let mut requests = redis::Parser::new();
        while let Ok(redis::Value::Array(words)) = requests.parse_value(&stream) {
            let answer = match &words[0] {
                redis::Value::BulkString(word) if word == b"TIME" => {
                    format!("*2\r\n${}\r\n{seconds}\r\n$1\r\n0\r\n", seconds.len())
                }
                _ => "+OK\r\n".to_owned(),
            };
            stream.write_all(answer.as_bytes()).expect("the client reads");
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn a_malformed_reply_to_time_is_refused() {
    let url = |seconds| format!("redis://{}", server_at(seconds));
    connect(&url("1795311524")).await.expect("its time is one");
    for seconds in ["18446744073709551615", "18446744073710", "-1", "now"] {
        refuses(&url(seconds), Fault::Store, "TIME").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_node_refuses_the_first_lock() {
    let options = ["--save", "", "--cluster-enabled", "yes"];
    let server = Redis::start_with(&options, None).expect("it starts");
    // This node of a cluster serves no slots. A client of `redis://` uses no other node, so its first lock must fail,
    // not wait.
    let store = connect(&server.url())
        .await
        .expect("it is found out by the first lock");
    let key = LockKey::new("k").expect("a name");
    let id = ClaimId::new(ClientId::from_random([7; 16]), 1);
    let claim = Claim::of(ClaimRef { key, id }, Duration::from_secs(5));
    let error = acquire(&store, &Arc::new(claim)).await.expect_err("it is a node");
    assert_error(&error, (Fault::Unsupported, Effect::None), "cluster");
}

/// A closed port, an unknown name, a refusal, a broken connection: the error names each cause once.
#[tokio::test(flavor = "multi_thread")]
async fn error_sources_do_not_repeat_each_other() {
    let server = Redis::start().expect("it starts");
    let store = connect(&server.url()).await.expect("it answers");
    let mut errors = Vec::new();
    for url in [
        "redis://127.0.0.1:1".to_owned(),
        "redis://nobody.invalid".to_owned(),
        format!("{}/99", server.url()),
        format!("redis://nobody:x@{}", server.address()),
    ] {
        errors.push(connect(&url).await.expect_err(&url));
    }
    drop(server);
    for _ in 0..3 {
        let look = Query::Key(LockKey::new("k").expect("a name"));
        errors.push(store.clone().inspect(look).await.expect_err("it is gone"));
    }
    for error in errors {
        let mut told = vec![error.to_string()];
        let mut source = std::error::Error::source(&error);
        while let Some(cause) = source {
            let said = cause.to_string();
            assert!(
                !told.iter().any(|one| one.contains(&said)),
                "{told:?} and {said:?}"
            );
            told.push(said);
            source = cause.source();
        }
    }
}

/// A finding about a missing permission names no duration, because the server refuses the command at once.
#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_one_finding() {
    for (rules, words) in [
        ("-info", "INFO"),
        ("-script|exists", "SCRIPT EXISTS"),
        ("resetchannels", "wake-ups cannot be subscribed to"),
        (
            "resetchannels &redisson_* &*probe*",
            "may not use the channels `tenure:client:*`",
        ),
        ("-subscribe", "wake-ups cannot be subscribed to"),
        ("-publish", "wake-ups cannot be published: NOPERM"),
    ] {
        let fixture = Fixture::new().await;
        let words_of_rules: Vec<&str> = rules.split(' ').collect();
        fixture.command(&[&["ACL", "SETUSER", USER][..], &words_of_rules].concat());
        let found = examine(fixture.store.client().await.backend()).await;
        let about: Vec<_> = found.iter().filter(|one| one.what.contains(words)).collect();
        let [one] = &about[..] else {
            panic!("{rules}: {found:?}")
        };
        assert_eq!(one.severity, Severity::Warning, "{rules}: {one:?}");
        assert!(
            !one.what.contains(" ms") && !one.what.contains("within"),
            "{rules}: {one:?}"
        );
        let of_wake_ups = found.iter().filter(|one| one.what.contains("wake-up"));
        assert_eq!(
            of_wake_ups.count(),
            usize::from(words.contains("wake-up")),
            "{rules}: {found:?}"
        );
    }
}

/// A user that may not use the channels of clients learns of no eviction at once, but is woken like any other.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_channel_leaves_the_others_subscribed() {
    let (fixture, client, key) = Fixture::one().await;
    fixture.command(&["ACL", "SETUSER", USER, "resetchannels", "&redisson_*"]);
    let (held, waiting) = (
        client.holds(&key, Mode::Exclusive).await,
        client.claim(&key, Mode::Exclusive),
    );
    let backend = client.backend().clone();
    let _hints = backend.clone().invalidations(held.at.id.client());
    assert!(!is_granted(&acquire(&backend, &waiting).await));
    let mut wakes = backend.watch(waiting).await.expect("it subscribes");
    // The first wake-up comes with the subscription. The second one must come from the release.
    wakes.next().await;
    client.release(&held).await;
    wait_for_wake(&mut wakes).await;
    // While a subscription is lost, its waiters are woken every 100 ms. This one was not lost.
    let again = tokio::time::timeout(Duration::from_millis(500), wakes.next()).await;
    assert!(again.is_err(), "the subscription was lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn locks_use_the_database_of_the_url() {
    let (fixture, client, key) = Fixture::one().await;
    let url = format!("{}/3", fixture.redis.lock().url());
    let store = connect(&url).await.expect("it answers");
    let claim = client.claim(&key, Mode::Exclusive);
    assert!(is_granted(&acquire(&store, &claim).await));
    assert_eq!(fixture.keys(), [""; 0]);
    fixture.command(&["SELECT", "3"]);
    assert!(fixture.exists(key.as_str()));
}

#[cfg(not(feature = "tls"))]
#[tokio::test(flavor = "multi_thread")]
async fn a_build_without_tls_names_the_missing_feature() {
    let error = connect("rediss://127.0.0.1").await.expect_err("it was left out");
    assert_eq!(error.fault(), Fault::Unsupported);
    assert!(error.to_string().contains("`tls`"), "{error}");
}
