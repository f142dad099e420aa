//! Who may, and how: URLs, passwords, users, databases. TLS is in `tls.rs`, what `doctor` finds in `examine.rs`.
//! Length: one test for each way to be refused.

mod stage;

use std::collections::BTreeSet;
use std::io::Write;
use std::net::{SocketAddr, TcpListener};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use stage::{PASSWORD, Server, Stage, USER, config, connect, documented_rights, printed, soon};
use tenure_backend::{
    Backend, BackendError, Cause, Claim, ClaimId, ClaimRef, ClientId, Departure, Effect, Fairness, Fault,
    Holder, LockKey, Mode, OwnerId, Phase, Query,
};
use tenure_redis::{Config, RedisStore};
use tenure_servers::Redis;

const JAVA: &str = "00000000-0000-4000-8000-000000000000:7";

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
        ("redis://ada@h", Fault::Invalid, "a user and no password"),
        ("redis://ada:@h", Fault::Invalid, "a user and no password"),
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
    let read = config(
        "redis://ada:s3cr3t@cache:6380/4?connect_timeout=1s&command_timeout=250ms&awake=false&layout=redisson",
    );
    let read = read.expect("it makes sense");
    assert_eq!((read.address().as_str(), read.database), ("cache:6380", 4));
    assert_eq!(read.user.as_deref(), Some("ada"));
    assert_eq!(
        (read.connect_timeout, read.command_timeout),
        (Duration::from_secs(1), Duration::from_millis(250))
    );
    assert!(!read.awake);
    let usual = config("redis://cache").expect("it makes sense");
    assert_eq!(usual.address(), "cache:6379");
    assert_eq!(
        (usual.connect_timeout, usual.command_timeout),
        (Duration::from_secs(5), Duration::from_secs(3))
    );
    assert!(usual.awake);
}

/// Somewhere else what stands there is a password: no error and no server is told it.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_a_password_is_never_taken_for_the_default_user() {
    let error = refused(&format!("redis://{PASSWORD}@h"));
    assert!(!printed(&error).contains(PASSWORD), "{error:?}");
    let server = Redis::start().expect("it starts");
    let ask = |command: &[&str]| server.ask(command).expect("it obeys");
    ask(&["ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all"]);
    let named = |name: &str| {
        let nobody = config(&server.url()).expect("a URL");
        RedisStore::connect(Config {
            user: Some(name.to_owned()),
            ..nobody
        })
    };
    let _store = named("open").await.expect("it needs no password");
    assert!(ask(&["CLIENT", "LIST"]).contains("user=open"));
    let error = named("nobody").await.expect_err("there is none of that name");
    assert_eq!(error.fault(), Fault::Denied, "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_without_rights_is_denied_in_words() {
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
}

/// The clients of every test here are such a user; this one does everything by name.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_with_the_documented_rights_can_do_everything_and_has_none_too_many() {
    for server in [Server::start(), Server::gathering()] {
        let stage = Stage::on(server).await;
        let ([a, b], key) = (stage.trial.two().await, stage.trial.key());
        let (held, waits) = (a.claim(&key, Mode::Exclusive), b.fair(&key, Mode::Exclusive));
        a.granted(&held).await;
        let mut wakes = b.watch(&waits).await.expect("it may subscribe");
        b.waits(&waits).await;
        a.stays_alive(&held, Phase::Granted).await;
        b.stays_alive(&waits, Phase::Waiting).await;
        let status = a.status(&key).await.expect("it may look");
        assert_eq!(
            (status.holders.len(), status.waiters.map(|all| all.len())),
            (1, Some(1))
        );
        let all = Query::Prefix {
            prefix: "".into(),
            after: None,
            limit: NonZeroU32::MAX,
        };
        let page = a.backend().clone().inspect(all).await.expect("it may list");
        assert_eq!(page.items.len(), 1);
        a.release(&held).await.freed_it(&held);
        soon(wakes.next()).await;
        b.granted_soon(&waits).await;
        for foreign in [true, false] {
            let key = stage.trial.key();
            stage.ask(&["HSET", key.as_str(), JAVA, "1"]);
            stage.ask(&["PEXPIRE", key.as_str(), "60000"]);
            let who = match foreign {
                true => Holder::Foreign { key, id: JAVA.into() },
                false => Holder::All(key),
            };
            let cause = Cause::Evicted {
                by: Some("alice".into()),
            };
            let evicted = a
                .depart(Departure {
                    who,
                    cause,
                    heir: None,
                    bar: Duration::from_millis(1),
                })
                .await;
            assert_eq!(evicted.freed.len(), 1, "it may evict");
        }
        stage.ask(&["SCRIPT", "FLUSH"]);
        let again = a.claim(&stage.trial.key(), Mode::Exclusive);
        a.granted(&again).await;
        a.release(&again).await.freed_it(&again);
        let found = a.backend().clone().examine().await.expect("it can be examined");
        assert!(found.iter().all(|one| !one.what.contains("INFO")), "{found:?}");
        assert_eq!(stage.text(&["ACL", "LOG"]), "", "nothing was refused");
        assert!(stage.text(&["CLIENT", "LIST"]).contains("user=tenure"));
    }
    // What our scripts and we call, and what is documented, are the same.
    let scripts = [
        include_str!("../scripts/redisson_acquire.lua"),
        include_str!("../scripts/redisson_owners.lua"),
        include_str!("../scripts/redisson_place.lua"),
        include_str!("../scripts/redisson_release.lua"),
        include_str!("../scripts/redisson_renew.lua"),
        include_str!("../scripts/redisson_show.lua"),
        include_str!("../scripts/redisson_together.lua"),
    ]
    .concat();
    let called = scripts
        .split("('")
        .skip(1)
        .filter_map(|call| call.split('\'').next());
    let called = called.filter(|word| word.len() > 1 && word.chars().all(|c| c.is_ascii_uppercase()));
    let mut called: BTreeSet<String> = called
        .map(|command| match command {
            "PUBSUB" => "+pubsub|numsub".to_owned(),
            command => format!("+{}", command.to_lowercase()),
        })
        .collect();
    called.extend(
        [
            "~*",
            "&*",
            "-@all",
            "+evalsha",
            "+eval",
            "+script|load",
            "+ping",
            "+select",
            "+subscribe",
            "+unsubscribe",
            "+scan",
            "+dbsize",
            "+info",
            "+config|get",
            "+script|exists",
        ]
        .map(str::to_owned),
    );
    assert_eq!(documented_rights().into_iter().collect::<BTreeSet<_>>(), called);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_ask_about_the_server_is_told_what_is_not_known() {
    let stage = Stage::new().await;
    stage.ask(&["ACL", "SETUSER", USER, "-info"]);
    let client = stage.trial.client().await;
    let found = client
        .backend()
        .clone()
        .examine()
        .await
        .expect("it can be examined");
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
async fn a_database_that_the_server_does_not_have_is_said_to_be_none() {
    let server = Redis::start().expect("it starts");
    for number in ["16", "99", "4294967295"] {
        let error = connect(&format!("{}/{number}", server.url()))
            .await
            .expect_err(number);
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Invalid, Effect::None),
            "{error:?}"
        );
        let words = error.to_string();
        assert!(
            words.contains(&format!("no database {number}:")) && words.contains("`databases`"),
            "{words}"
        );
    }
}

/// Our client keeps no code of what it is refused while it introduces itself.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_on_the_way_to_a_database_is_told_as_without_one() {
    let server = Redis::start().expect("it starts");
    let ask = |command: &[&str]| server.ask(command).expect("it obeys");
    ask(&["CONFIG", "SET", "requirepass", PASSWORD]);
    for url in [server.url(), format!("{}/2", server.url())] {
        let error = connect(&url).await.expect_err("it asks for a password");
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Denied, Effect::None),
            "{error:?}"
        );
        assert!(error.to_string().contains("asks for a password"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_gives_a_password_that_nobody_asked_for_is_told_to_leave_it_out() {
    let server = Redis::start().expect("it starts");
    let url = format!("redis://:{PASSWORD}@{}", server.address());
    let error = connect(&url).await.expect_err("it has none");
    assert_eq!(error.fault(), Fault::Denied, "{error:?}");
    assert!(error.to_string().contains("asks for none"), "{error}");
    assert!(!printed(&error).contains(PASSWORD), "{error:?}");
}

/// A sentinel knows no scripts and no databases.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_knows_no_scripts_is_refused_in_words() {
    for (unknown, path) in [("SCRIPT", ""), ("SELECT", "/2")] {
        let options = ["--save", "", "--rename-command", unknown, ""];
        let server = Redis::start_with(&options, None).expect("it starts");
        let error = connect(&format!("{}{path}", server.url()))
            .await
            .expect_err("it cannot serve");
        assert_eq!(
            (error.fault(), error.effect()),
            (Fault::Unsupported, Effect::None),
            "{error:?}"
        );
        assert!(error.to_string().contains("sentinel"), "{error}");
        assert!(
            !printed(&error).contains("local "),
            "no script is printed: {}",
            printed(&error)
        );
    }
}

/// A server that answers `TIME` with these seconds, and every other command with `OK`. It serves one client.
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
async fn a_server_whose_time_is_none_is_refused_in_words() {
    connect(&format!("redis://{}", server_at("1795311524")))
        .await
        .expect("its time is one");
    for seconds in ["18446744073709551615", "18446744073710", "-1", "now"] {
        let error = connect(&format!("redis://{}", server_at(seconds))).await;
        let error = error.expect_err(seconds);
        assert_eq!((error.fault(), error.effect()), (Fault::Store, Effect::None));
        assert!(error.to_string().contains("TIME"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_node_of_a_cluster_is_refused_in_words() {
    let options = ["--save", "", "--cluster-enabled", "yes"];
    let server = Redis::start_with(&options, None).expect("it starts");
    let error = connect(&format!("{}/2", server.url()))
        .await
        .expect_err("it has one database");
    assert_eq!(error.fault(), Fault::Unsupported, "{error:?}");
    // It has no slots so far: waiting would be without an end.
    let store = connect(&server.url())
        .await
        .expect("it is found out by the first lock");
    let claim = Claim {
        at: ClaimRef {
            key: LockKey::new("k").expect("a name"),
            id: ClaimId::new(ClientId::from_random([7; 16]), 1),
        },
        owner: OwnerId(0),
        label: "l".into(),
        mode: Mode::Exclusive,
        fairness: Fairness::Unfair,
        lease: Duration::from_secs(5),
        grants: NonZeroU32::MIN,
    };
    let place_by = store.clock().now() + Duration::from_secs(5);
    let error = store
        .acquire(Arc::new(claim), place_by)
        .await
        .expect_err("it is a node");
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Unsupported, Effect::None),
        "{error:?}"
    );
    assert!(error.to_string().contains("cluster"), "{error}");
}

/// Nobody listens, the name leads nowhere, the server refuses, the connection breaks: each cause is told once.
#[tokio::test(flavor = "multi_thread")]
async fn no_source_of_an_error_repeats_another() {
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
    let all = || Query::Prefix {
        prefix: "".into(),
        after: None,
        limit: NonZeroU32::MIN,
    };
    for _ in 0..3 {
        errors.push(store.clone().inspect(all()).await.expect_err("it is gone"));
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

#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_ask_for_scripts_is_told_what_doctor_needs() {
    let stage = Stage::new().await;
    stage.ask(&["ACL", "SETUSER", USER, "-script|exists"]);
    let client = stage.trial.client().await;
    let found = client
        .backend()
        .clone()
        .examine()
        .await
        .expect("it can be examined");
    assert!(
        found.iter().any(|one| one.what.contains("SCRIPT EXISTS")),
        "{found:?}"
    );
}

/// No time is named: nobody waited for anything.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_who_may_not_subscribe_or_publish_is_told_so() {
    for (rules, words) in [
        (&["resetchannels"][..], "cannot be subscribed to"),
        (&["-subscribe"], "cannot be subscribed to"),
        (&["-publish"], "cannot be published: NOPERM"),
    ] {
        let stage = Stage::new().await;
        stage.ask(&[&["ACL", "SETUSER", USER], rules].concat());
        let client = stage.trial.client().await;
        let found = client.backend().clone().examine().await;
        let found = found.expect("it can be examined");
        let about: Vec<_> = found.iter().filter(|one| one.what.contains("wake-up")).collect();
        let [one] = &about[..] else { panic!("{found:?}") };
        assert!(one.what.contains(words), "{one:?}");
        assert!(
            !one.what.contains(" ms") && !one.what.contains("within"),
            "{one:?}"
        );
    }
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
