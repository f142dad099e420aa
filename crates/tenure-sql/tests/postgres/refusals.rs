//! What PostgreSQL, its table or the settings refuse: each error says what to do, had no effect, and shows no password.

use std::net::TcpListener;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::postgres_fixture::*;
use tenure_backend::{Backend, BackendError, Effect, Fault, LockKey, Mode, Phase, Query};
use tenure_sql::server::{Config, Credentials, create, open, schema};
use tokio::task::JoinSet;

/// Asserts that connecting fails with this fault and these words, without effect, and shows no password.
async fn refuses(config: Config, fault: Fault, words: &str) {
    let error = open(config).await.expect_err(words);
    assert_error(&error, (fault, Effect::None), words);
    assert!(!printed(&error).contains(PASSWORD), "{error:?}");
}

#[test]
fn unsupported_urls_are_refused_with_a_reason() {
    for (url, words) in [
        ("postgres://u@h/d", "layout=version"),
        ("postgres://u@h/d?layout=claims", "`version`"),
        ("postgres://u@h/d?layout=version&colour=red", "command_timeout"),
        (
            "postgres://u@h/d?layout=version&table=a-b",
            "`table` is not an identifier",
        ),
        (
            "postgres://u@h/d?layout=version&table=a;b",
            "`table` is not an identifier",
        ),
        (
            "postgres://u@h/d?layout=version&table=public.a",
            "`table` is not an identifier",
        ),
        (
            "postgres://u@h/d?layout=version&schema=1a",
            "`schema` is not an identifier",
        ),
        (
            "postgres://u@h/d?layout=version&schema=%22a%22",
            "`schema` is not an identifier",
        ),
        (
            "postgres://u@h/d?layout=shedlock&time_zone=GMT%2B2",
            "`time_zone` is not a time zone",
        ),
        (
            "postgres://u@h/d?layout=shedlock&time_zone=Etc/GMT-2",
            "`time_zone` is not a time zone",
        ),
        (
            "postgres://u@h/d?layout=shedlock&time_zone=%2B2",
            "`time_zone` is not a time zone",
        ),
        (
            "postgres://u@h/d?layout=shedlock&time_zone='",
            "`time_zone` is not a time zone",
        ),
        ("postgres://u@h/d?layout=version&connections=0", "from 1 to 100"),
        (
            "postgres://u@h/d?layout=version&connections=many",
            "from 1 to 100",
        ),
        (
            "postgres://u@h/d?layout=version&command_timeout=0s",
            "longer than 0",
        ),
        (
            "postgres://u@h/d?layout=version&connect_timeout=0s",
            "longer than 0",
        ),
        ("postgres://u@h/d?layout=version&sslmode=maybe", "verify-full"),
        ("postgres://u@h/d?layout=version&ca=/x", "sslmode=verify-full"),
        (
            "postgres://u@h/d?layout=version&sslmode=require&cert=/x",
            "give both",
        ),
        ("postgres://u@h/d?layout=version&host=db.example", "folder"),
        (
            "postgres://u:p@h/d?layout=version&password_file=/x",
            "give one of them",
        ),
        (
            "postgres://u@h/d?layout=version&password_file=/nowhere/x",
            "cannot be read",
        ),
    ] {
        let error = try_config(url).expect_err(url);
        assert_error(&error, (Fault::Invalid, Effect::None), words);
    }
}

/// A role of the test's own, with the permissions of the case's clients.
async fn role(case: &Case, name: &str, options: &str) {
    let create = format!("CREATE ROLE {name} PASSWORD '{PASSWORD}' {options}; GRANT {ROLE} TO {name}");
    case.script(&create).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_says_what_to_do() {
    let case = Case::new("version").await;
    let at = |login: &str| case.config_at(&case.url_of(login));
    assert!(!format!("{:?}", case.config()).contains(PASSWORD));
    assert!(!format!("{:?}", case.open().await).contains(PASSWORD));
    refuses(
        at(&format!("{ROLE}:wrong-{PASSWORD}")),
        Fault::Denied,
        "correct it in the URL",
    )
    .await;
    refuses(
        at(&format!("nobody:{PASSWORD}")),
        Fault::Denied,
        "refuses the password",
    )
    .await;
    refuses(at(ROLE), Fault::Denied, "asks for a password").await;
    role(&case, "retired", "NOLOGIN").await;
    refuses(
        at(&format!("retired:{PASSWORD}")),
        Fault::Denied,
        "whether the role exists",
    )
    .await;
    let elsewhere = case.url().replace("/postgres?", "/nowhere?");
    refuses(case.config_at(&elsewhere), Fault::Invalid, "no such database").await;
}

/// Each refusal counts, and some servers lock the role after a few.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_password_is_not_tried_at_the_next_host() {
    let case = Case::new("version").await;
    let next = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    let address = next.local_addr().expect("it has an address");
    // A login takes seconds on a busy machine, and the first host has half of the limit.
    let hosts = case
        .clone()
        .at(format!("{},{address}", case.address()))
        .with("connect_timeout=60s");
    let config = config(&hosts.url_of(&format!("{ROLE}:wrong")));
    refuses(config, Fault::Denied, "refuses the password").await;
    next.set_nonblocking(true).expect("it can be set");
    assert!(next.accept().is_err(), "no client has connected");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unreachable_server_says_what_to_do() {
    let case = Case::new("version").await;
    let at = |hosts: &str| case.clone().at(hosts).config();
    refuses(at("127.0.0.1:1"), Fault::Unavailable, "whether it runs there").await;
    // No name server is needed to tell that no host has this name: it begins with a hyphen.
    refuses(at("-nowhere"), Fault::Store, "is not known").await;
    refuses(
        at("127.0.0.1:1,127.0.0.1:2"),
        Fault::Unavailable,
        "whether it runs there",
    )
    .await;
    // A name server may not know the host yet, so another host's outage is the better answer.
    refuses(
        at("127.0.0.1:1,-nowhere"),
        Fault::Unavailable,
        "whether it runs there",
    )
    .await;
    open(at(&format!("-nowhere,{}", case.address())))
        .await
        .expect("the second host answers");
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_is_not_silently_left_out() {
    let case = Case::new("version").await;
    let (fault, words) = match cfg!(feature = "tls") {
        true => (Fault::Store, "does not offer TLS"),
        false => (Fault::Unsupported, "left out of this build"),
    };
    refuses(case.with("sslmode=require").config(), fault, words).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_takes_no_connection_says_why() {
    let case = Case::new("version").await;
    role(&case, "crowded", "LOGIN CONNECTION LIMIT 1").await;
    let crowded = || case.config_at(&case.url_of(&format!("crowded:{PASSWORD}")));
    let only = open(crowded()).await.expect("one connection is allowed");
    refuses(crowded(), Fault::Unavailable, "too many connections").await;
    drop(only);

    role(&case, "reader", "LOGIN").await;
    case.ask("ALTER ROLE reader SET default_transaction_read_only = on");
    let reader = case.config_at(&case.url_of(&format!("reader:{PASSWORD}")));
    refuses(reader, Fault::Unavailable, "default_transaction_read_only").await;

    let standby = case.server.lock().standby(&[]).expect("a standby starts");
    let standby = case.clone().at(standby.address()).config();
    refuses(standby, Fault::Unavailable, "name the primary server").await;
}

/// A server that starts up refuses connections with the same code as one that shuts down, which a test can prolong.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_shuts_down_says_so() {
    let case = Case::alone("version").await;
    let _session = admin(&case.server).await;
    let pid = case.server.lock().process().pid().to_string();
    // After SIGTERM, the server waits until its clients have gone, and lets no other in.
    let kill = Command::new("kill").args(["-TERM", &pid]).status();
    assert!(kill.expect("`kill` is installed").success());
    let closes = || {
        let url = case.server.lock().url();
        async move {
            tokio_postgres::connect(&url, tokio_postgres::NoTls)
                .await
                .is_err()
        }
    };
    soon(async { while !closes().await {} }).await;
    refuses(case.config(), Fault::Unavailable, "starting up or shutting down").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unfit_table_is_refused_with_a_reason() {
    let case = Case::new("version").await;
    case.script("CREATE EXTENSION IF NOT EXISTS citext SCHEMA public")
        .await;
    for (layout, change, words) in [
        ("version", "ALTER TABLE {t} RENAME TO other", "is not there"),
        (
            "version",
            "CREATE COLLATION {s}.loose (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
             ALTER TABLE {t} ALTER resource_key TYPE varchar(200) COLLATE {s}.loose",
            "two keys would be one lock",
        ),
        ("unique", "ALTER TABLE {t} ALTER lock_key TYPE public.citext", "`lock_key` of `{t}` has the type `citext`"),
        ("unique", "ALTER TABLE {t} ALTER lock_key TYPE char(200)", "has the type `character`"),
        ("unique", "ALTER TABLE {t} DROP CONSTRAINT distributed_lock_lock_key_key", "no unique index"),
        (
            "version",
            "ALTER TABLE {t} DROP CONSTRAINT resource_lock_resource_key_key;
             CREATE UNIQUE INDEX ON {t} (resource_key) WHERE locked; CREATE UNIQUE INDEX ON {t} (resource_key, version);
             CREATE UNIQUE INDEX ON {t} (lower(resource_key)); CREATE INDEX ON {t} (resource_key)",
            "no unique index",
        ),
        // A conflict with such an index is found too late.
        (
            "shedlock",
            "ALTER TABLE {t} DROP CONSTRAINT shedlock_pkey; ALTER TABLE {t} ADD PRIMARY KEY (name) DEFERRABLE",
            "no unique index",
        ),
        ("version", "ALTER TABLE {t} ALTER version TYPE int", "has the type `integer`, and not `bigint`"),
        ("version", "ALTER TABLE {t} ALTER expire_time TYPE timestamp", "and not `timestamp with time zone`"),
        ("shedlock", "ALTER TABLE {t} ALTER lock_until TYPE timestamptz", "and not `timestamp without time zone`"),
        ("unique", "ALTER TABLE {t} ALTER lock_value TYPE varchar(40)", "holds 40 characters, and a claim's ID has up to 62"),
        ("unique", "ALTER TABLE {t} ALTER expire_time TYPE timestamptz(0)", "has times without milliseconds"),
        ("version", "ALTER TABLE {t} DROP COLUMN expire_time", "`expire_time` of `{t}` is not there"),
        ("unique", "ALTER TABLE {t} DROP COLUMN create_time", "`create_time` of `{t}` is not there"),
    ] {
        let case = Case::on(case.server.clone(), layout).await;
        let (table, schema) = (case.table(), case.schema.clone());
        let named = |text: &str| text.replace("{t}", &table).replace("{s}", &schema);
        case.script(&named(change)).await;
        refuses(case.config(), Fault::Store, &named(words)).await;
    }
}

/// The table has changed after the store was opened, or has what the check at the beginning does not look for.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_changes_later_is_refused_with_a_reason() {
    for (change, words) in [
        ("ALTER TABLE {t} RENAME TO other", "is not there"),
        (
            "ALTER TABLE {t} RENAME COLUMN expire_time TO other",
            "columns of this layout",
        ),
        (
            "ALTER TABLE {t} ADD COLUMN tenant text NOT NULL",
            "columns of this layout",
        ),
        (
            "ALTER TABLE {t} ALTER resource_key TYPE varchar(5)",
            "longer than the table's column",
        ),
        (
            "ALTER TABLE {t} ALTER lock_holder TYPE varchar(5)",
            "longer than the table's column",
        ),
    ] {
        let case = Case::new("version").await;
        let (client, _) = case.one().await;
        case.script(&change.replace("{t}", &case.table())).await;
        let key = LockKey::new("a longer key").expect("a key");
        let error = acquire(client.backend(), &client.claim(&key, Mode::Exclusive)).await;
        let error = error.expect_err(words);
        assert_eq!(error.effect(), Effect::None);
        assert!(error.to_string().contains(words), "{words}: {error:?}");
    }
}

/// A migration drops the table and creates it again. The statements that are prepared for the old one serve the new one.
#[tokio::test(flavor = "multi_thread")]
async fn a_table_that_is_created_again_is_used() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (client, key) = case.one().await;
        let lost = client.holds(&key, Mode::Exclusive).await;
        let (table, ddl) = (case.table(), schema(&case.config()).expect("it is in this build"));
        let again = format!("DROP TABLE {table}; {ddl}; GRANT ALL ON {table} TO {ROLE}");
        case.script(&again).await;
        client.is_gone(&lost, Phase::Granted).await;
        let held = client.holds(&key, Mode::Exclusive).await;
        let larger = format!(
            "ALTER TABLE {table} ALTER {} TYPE varchar(500)",
            case.key_column()
        );
        case.script(&larger).await;
        client.stays_alive(&held, Phase::Granted).await;
        client.finds_busy(&key, Mode::Exclusive).await;
        client.release(&held).await;
        client.finds_free(&key, Mode::Exclusive).await;
    }
}

/// Revokes each permission alone, and makes the calls that need it.
#[tokio::test(flavor = "multi_thread")]
async fn each_missing_permission_is_denied_without_effect() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let fixture = case.fixture().await;
        let (client, key) = (fixture.client().await, fixture.key());
        let held = client.holds(&key, Mode::Exclusive).await;
        let before = case.row("*", &key);
        for permission in case.documented_permissions() {
            let change = |verb: &str, to: &str| {
                case.ask(&format!("{verb} {permission} ON {} {to} {ROLE}", case.table()))
            };
            change("REVOKE", "FROM");
            let error = match permission.as_str() {
                "DELETE" => release_error(client.backend(), unlock_of(&held)).await,
                _ => {
                    let claim = client.claim(&fixture.key(), Mode::Exclusive);
                    acquire(client.backend(), &claim).await.expect_err("it is denied")
                }
            };
            assert_error(&error, (Fault::Denied, Effect::None), "`tenure schema` lists");
            assert_eq!(case.number(&format!("SELECT count(*) FROM {}", case.table())), 1);
            assert_eq!(case.row("*", &key), before, "{layout}: {permission}");
            change("GRANT", "TO");
        }
        client.stays_alive(&held, Phase::Granted).await;
        client.release(&held).await.freed_it(&held);
        case.ask(&format!("REVOKE USAGE ON SCHEMA {} FROM {ROLE}", case.schema));
        refuses(case.config(), Fault::Denied, "lacks a permission").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_the_column_cannot_hold_is_refused() {
    let case = Case::new("shedlock").await;
    let (client, _) = case.one().await;
    let key = |count: usize| LockKey::new("ä".repeat(count)).expect("a key");
    let claim = client.claim(&key(65), Mode::Exclusive);
    let error = acquire(client.backend(), &claim)
        .await
        .expect_err("it is too long");
    let words = "this key has 65 characters, and the table's column holds 64";
    assert_error(&error, (Fault::Invalid, Effect::None), words);
    client.finds_free(&key(64), Mode::Exclusive).await;

    let case = Case::new("unique").await;
    let unlimited = format!("ALTER TABLE {} ALTER lock_key TYPE text", case.table());
    case.script(&unlimited).await;
    let (client, _) = case.one().await;
    client
        .finds_free(&key(LockKey::MAX_BYTES / 2), Mode::Exclusive)
        .await;
}

/// A label that the holder's column cannot hold is cut: nothing depends on it.
#[tokio::test(flavor = "multi_thread")]
async fn a_label_that_the_column_cannot_hold_is_cut() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let (client, key) = case.one().await;
        let claim = client.claim_as(&key, Mode::Exclusive, |claim| {
            claim.label = "ä".repeat(300).into()
        });
        client.granted(&claim).await;
        client.stays_alive(&claim, Phase::Granted).await;
        let status = client.status(&key).await.expect("it is held");
        let label = status.holders[0].label.as_deref().expect("a label");
        assert!(label.starts_with("ääää") && label.len() < 600, "{label}");
        client.release(&claim).await.freed_it(&claim);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_created_unless_asked() {
    for layout in LAYOUTS {
        let case = Case::new(layout).await;
        let table = case.table();
        let relations = format!(
            "SELECT relname FROM pg_class WHERE relnamespace = '{}'::regnamespace ORDER BY 1",
            case.schema
        );
        let original = case.ask(&relations);
        case.script(&format!("DROP TABLE {table}")).await;
        let without = case.ask(&relations);
        refuses(case.config(), Fault::Store, "tenure schema --apply").await;
        assert_eq!(case.ask(&relations), without);
        // The clients' role may not create tables.
        let error = create(case.config()).await.expect_err("it is denied");
        assert_error(&error, (Fault::Denied, Effect::None), "permission");
        assert_eq!(case.ask(&relations), without);

        case.ask(&format!("GRANT CREATE ON SCHEMA {} TO {ROLE}", case.schema));
        for _ in 0..2 {
            create(case.config()).await.expect("it may create the table");
            assert_eq!(case.ask(&relations), original);
        }
        let comment = case.ask(&format!("SELECT obj_description('{table}'::regclass)"));
        assert_eq!(comment, format!("Tenure: layout {layout}, version 1"));
        let (client, key) = case.one().await;
        let held = client.holds(&key, Mode::Exclusive).await;
        create(case.config()).await.expect("the table is there");
        client.release(&held).await.freed_it(&held);
        let text = schema(&case.config()).expect("it is in this build");
        assert!(
            text.contains(&format!("CREATE TABLE IF NOT EXISTS {table}")),
            "{text}"
        );
    }
    let case = Case::new("version").await;
    let nowhere = case.url().replace(&case.schema, "nowhere");
    let error = create(config(&nowhere))
        .await
        .expect_err("there is no such schema");
    assert_error(&error, (Fault::Store, Effect::None), "the schema is not there");
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_clients_may_create_the_table_at_once() {
    let case = Case::new("version").await;
    case.ask(&format!("GRANT CREATE ON SCHEMA {} TO {ROLE}", case.schema));
    for _ in 0..10 {
        case.script(&format!("DROP TABLE {}", case.table())).await;
        let mut clients = JoinSet::new();
        for _ in 0..10 {
            clients.spawn(create(case.config()));
        }
        while let Some(created) = clients.join_next().await {
            created
                .expect("no panic")
                .expect("one creates it, and the others find it");
        }
    }
}

/// Calls the store until it has noticed that its connection was closed, and has opened another.
async fn reconnected(store: &Arc<dyn Backend>) -> Result<(), BackendError> {
    let key = LockKey::new("k").expect("a key");
    loop {
        match store.clone().inspect(Query::Key(key.clone())).await {
            Err(error) if error.effect() == Effect::Unknown => {}
            answer => return answer.map(drop),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_file_is_read_at_each_connect() {
    const ROTATED: &str = "another-s3cr3t-and-long";
    let case = Case::new("version").await;
    role(&case, "rotating", "LOGIN").await;
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    let write = |password: &str| std::fs::write(&file, format!("{password}\n")).expect("a file");
    write("wrong");
    let case = case.with(&format!("password_file={}", file.display()));
    let config = || case.config_at(&case.url_of("rotating"));
    refuses(config(), Fault::Denied, "or its file").await;
    write(PASSWORD);
    let store = open(config()).await.expect("the password is in the file");

    case.ask(&format!("ALTER ROLE rotating PASSWORD '{ROTATED}'"));
    let cut = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE usename = 'rotating'";
    case.ask(cut);
    let error = soon(reconnected(&store))
        .await
        .expect_err("the old password is in the file");
    assert_error(&error, (Fault::Denied, Effect::None), "refuses the password");
    write(ROTATED);
    soon(reconnected(&store))
        .await
        .expect("the rotated password is in the file");

    case.ask(cut);
    write("");
    let error = soon(reconnected(&store)).await.expect_err("the file is empty");
    assert_error(&error, (Fault::Unavailable, Effect::None), "empty first line");
    for password in [PASSWORD, ROTATED] {
        assert!(!printed(&error).contains(password), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_fetched_at_each_connect() {
    let case = Case::new("version").await.with("application_name=fetching");
    let url = case.url_of("somebody");
    let fetched = Arc::new(AtomicUsize::new(0));
    let config = case.config_at(&url).credentials({
        let fetched = fetched.clone();
        move || {
            fetched.fetch_add(1, Ordering::Relaxed);
            async { Ok(Credentials::user(ROLE, PASSWORD)) }
        }
    });
    assert!(!format!("{config:?}").contains(PASSWORD));
    let store = open(config).await.expect("the right password");
    assert!(!format!("{store:?}").contains(PASSWORD));
    assert_eq!(fetched.load(Ordering::Relaxed), 1);
    case.ask(
        "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'fetching'",
    );
    soon(reconnected(&store)).await.expect("it is let in again");
    assert_eq!(fetched.load(Ordering::Relaxed), 2);

    let wrong = case
        .config_at(&url)
        .credentials(|| async { Ok(Credentials::user(ROLE, "wrong")) });
    refuses(wrong, Fault::Denied, "refuses the password").await;
    let sealed = || BackendError::new(Fault::Unavailable, Effect::None, "the vault is sealed");
    let sealed = case
        .config_at(&url)
        .credentials(move || async move { Err(sealed()) });
    refuses(sealed, Fault::Unavailable, "the vault is sealed").await;
}
