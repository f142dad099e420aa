//! How the store meets a real MariaDB server: what it refuses, what it finds, and what its statements cost.
#![cfg(feature = "mysql")]

mod mysql;

use std::sync::Arc;
use std::time::{Duration, Instant};

use mysql::{Case, PASSWORD, USER, config, start, start_with_clock};
use mysql_async::prelude::Queryable;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Effect, Fault,
    LockKey, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
};
use tenure_sql::server::{create, open};
use tenure_testkit::Subject;

fn claim(key: &str, number: u64) -> Arc<Claim> {
    let id = ClaimId::new(ClientId::from_random([7; 16]), number);
    let key = LockKey::new(key).expect("a key");
    Arc::new(Claim::of(ClaimRef { key, id }, Duration::from_secs(30)))
}

async fn acquire(store: &Arc<dyn Backend>, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
    let not_after = store.clock().now() + Duration::from_secs(5);
    store.clone().acquire(claim.clone(), not_after).await
}

async fn lock(store: &Arc<dyn Backend>, claim: &Arc<Claim>) {
    let reply = acquire(store, claim).await;
    assert!(matches!(reply, Ok(AcquireReply::Granted(_))), "{reply:?}");
}

async fn waits(store: &Arc<dyn Backend>, claim: &Arc<Claim>) {
    let reply = acquire(store, claim).await;
    assert!(matches!(reply, Ok(AcquireReply::Waiting { .. })), "{reply:?}");
}

async fn unlock(store: &Arc<dyn Backend>, claim: &Arc<Claim>) {
    let request = ReleaseRequest::of(claim, Cause::Unlocked);
    let reply = store.clone().release(Batch::from_iter([request])).await.pop();
    assert!(
        matches!(&reply, Some(ReleaseReply::Done { freed, .. }) if freed.len() == 1),
        "{reply:?}"
    );
}

/// Fails unless opening is refused with this fault and words, and without the password.
async fn assert_refused(url: &str, fault: Fault, words: &str) -> String {
    let refused = open(config(url)).await.map(drop).expect_err("it is refused");
    let source = std::error::Error::source(&refused).map(ToString::to_string);
    let text = format!("{refused} ({})", source.unwrap_or_default());
    assert_eq!(
        (refused.fault(), refused.effect()),
        (fault, Effect::None),
        "{text}"
    );
    assert!(text.contains(words), "{text}");
    assert!(!text.contains(PASSWORD), "{text}");
    text
}

/// What the examination finds, in short.
async fn findings(store: &Arc<dyn Backend>) -> Vec<String> {
    let found = store.clone().examine().await.expect("it answers").into_iter();
    let found: Vec<String> = found
        .map(|one| format!("{:?}: {}", one.severity, one.what))
        .collect();
    assert!(found.len() <= 12, "{found:?}");
    found
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_login_is_refused_in_words() {
    let case = Case::new("version");
    let (address, database) = (case.address(), &case.database);
    let url = |login: &str, database: &str| format!("mysql://{login}@{address}/{database}?layout=version");
    let right = format!("{USER}:{PASSWORD}");
    assert_refused(
        &url(&format!("{USER}:wrong"), database),
        Fault::Denied,
        "refuses the user or its password",
    )
    .await;
    assert_refused(
        &url(&right, "nowhere"),
        Fault::Denied,
        "there is none of this name",
    )
    .await;
    assert_refused(&url("root", "nowhere"), Fault::Invalid, "no such database").await;
    let absent = url(&right, database) + "&table=absent";
    assert_refused(&absent, Fault::Store, "create it with `tenure schema --apply`").await;
    let zone = url(&right, database) + "&time_zone=Middle/Earth";
    assert_refused(&zone, Fault::Invalid, "does not know this time zone").await;
    let closed = url(&right, database).replace(&address.port().to_string(), "1");
    assert_refused(&closed, Fault::Unavailable, "see whether it runs there").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_only_server_is_passed_over() {
    let case = Case::new("version");
    let read_only = start(&["--read-only"], &[]);
    let setup = format!(
        "CREATE DATABASE {0}; GRANT SELECT ON {0}.* TO {USER}",
        case.database
    );
    read_only.lock().ask(&setup).expect("the server obeys");
    let address = read_only.lock().address();
    assert_refused(&case.url(address), Fault::Unavailable, "accepts writes").await;
    let both = case.url(case.address()).replace('@', &format!("@{address},"));
    let store = open(config(&both))
        .await
        .expect("the other server accepts writes");
    lock(&store, &claim("k", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_cuts_texts_or_stops_its_clock_is_refused() {
    let case = Case::on(start(&["--sysdate-is-now"], &[]), "unique");
    assert_refused(&case.url(case.address()), Fault::Store, "--sysdate-is-now").await;
    case.ask("SET GLOBAL sql_mode = ''");
    assert_refused(&case.url(case.address()), Fault::Store, "STRICT_TRANS_TABLES").await;
}

/// The table that ShedLock's documentation shows has columns of the type TIMESTAMP. ShedLock writes UTC, or its own zone's
/// time, into them, and each session reads another time from them.
#[tokio::test(flavor = "multi_thread")]
async fn a_timestamp_is_refused_unless_all_sessions_are_in_utc() {
    const AS_DOCUMENTED: &str = "ALTER TABLE shedlock MODIFY lock_until TIMESTAMP(3) NOT NULL,
        MODIFY locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)";
    let in_utc = Case::on(start(&["--default-time-zone=+00:00"], &[]), "shedlock");
    in_utc.ask(AS_DOCUMENTED);
    let url = in_utc.url(in_utc.address());
    open(config(&url)).await.expect("all sessions are in UTC");
    let elsewhere = format!("{url}&time_zone=%2B05:30");
    assert_refused(&elsewhere, Fault::Store, "unless it is in UTC").await;

    let case = Case::on(start(&["--default-time-zone=+02:00"], &[]), "shedlock");
    let url = case.url(case.address());
    open(config(&url))
        .await
        .expect("the layout's own table has no zone");
    case.ask(AS_DOCUMENTED);
    let refused = assert_refused(&url, Fault::Store, "unless it is in UTC").await;
    let (_, cure) = refused.split_once("This mends it: ").expect("it names the cure");
    case.ask(cure.trim_end_matches(" ()"));
    open(config(&url)).await.expect("it is mended");
}

/// Each textbook's table is refused with the statement that mends it: most fold letters, so that two keys are one (R21).
#[tokio::test(flavor = "multi_thread")]
async fn a_table_of_another_form_is_refused_with_its_cure() {
    let tables = [
        (
            "unique",
            "CREATE OR REPLACE TABLE distributed_lock (id INT AUTO_INCREMENT PRIMARY KEY,
                 lock_key VARCHAR(64) NOT NULL, lock_value VARCHAR(255) CHARACTER SET latin1 NOT NULL,
                 expire_time DATETIME NOT NULL, create_time TIMESTAMP DEFAULT CURRENT_TIMESTAMP) ENGINE = Aria",
        ),
        (
            "version",
            "CREATE OR REPLACE TABLE resource_lock (id INT AUTO_INCREMENT PRIMARY KEY,
                 resource_key VARCHAR(64) COLLATE utf8mb4_bin NOT NULL UNIQUE, version INT NOT NULL DEFAULT 0,
                 locked INT NOT NULL DEFAULT 0, lock_holder VARCHAR(64) NOT NULL DEFAULT '', update_time DATETIME)",
        ),
        (
            "shedlock",
            "CREATE OR REPLACE TABLE shedlock (name VARCHAR(64) NOT NULL, lock_until TIMESTAMP NOT NULL,
                 locked_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3), locked_by VARCHAR(255) NOT NULL,
                 PRIMARY KEY (name))",
        ),
    ];
    for (layout, table) in tables {
        let case = Case::new(layout);
        case.ask(table);
        let url = case.url(case.address());
        let refused = assert_refused(&url, Fault::Store, "takes different keys for equal").await;
        let (_, cure) = refused.split_once("This mends it: ").expect("it names the cure");
        case.ask(cure.trim_end_matches(" ()"));
        let store = open(config(&url))
            .await
            .unwrap_or_else(|error| panic!("{cure}: {error}"));
        for (number, key) in [(1, "k"), (2, "K"), (3, "k ")] {
            lock(&store, &claim(key, number)).await;
        }
        unlock(&store, &claim("k", 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_schema_can_be_applied_twice() {
    for layout in ["unique", "version", "shedlock"] {
        let case = Case::new(layout);
        case.ask(&format!("DROP TABLE {}", case.table()));
        let root = format!(
            "mysql://root@{}/{}?layout={layout}",
            case.address(),
            case.database
        );
        for _ in 0..2 {
            create(config(&root)).await.expect("it is created, or was");
        }
        let store = open(config(&root)).await.expect("it has the layout");
        lock(&store, &claim("k", 1)).await;
        create(config(&case.url(case.address())))
            .await
            .expect_err("the user may not create tables");
    }
}

/// R21: a key is refused before anything is sent, or locks under its whole name.
#[tokio::test(flavor = "multi_thread")]
async fn a_key_longer_than_the_column_is_refused() {
    let case = Case::new("shedlock");
    let store = open(case.config()).await.expect("it opens");
    lock(&store, &claim(&"ä".repeat(64), 1)).await;
    let refused = acquire(&store, &claim(&"ä".repeat(65), 2))
        .await
        .expect_err("it is too long");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Invalid, Effect::None),
        "{refused}"
    );
}

/// The numbers of statements that a lock and an unlock of a free key cost, and those of a refused try.
#[tokio::test(flavor = "multi_thread")]
async fn locking_costs_few_statements() {
    let server = start(&[], &[]);
    for (layout, of_lock, of_refusal) in [("version", 2, 2), ("unique", 3, 1), ("shedlock", 3, 1)] {
        let case = Case::on(server.clone(), layout);
        let store = open(case.config()).await.expect("it opens");
        let executed = || {
            let count = case.ask("SHOW GLOBAL STATUS LIKE 'Com_stmt_execute'");
            count
                .split('\t')
                .nth(1)
                .and_then(|count| count.parse::<u64>().ok())
                .expect("a number")
        };
        lock(&store, &claim("k", 1)).await;
        unlock(&store, &claim("k", 1)).await;
        let before = executed();
        lock(&store, &claim("k", 2)).await;
        unlock(&store, &claim("k", 2)).await;
        assert_eq!(executed() - before, of_lock, "{layout}");
        lock(&store, &claim("k", 3)).await;
        let before = executed();
        waits(&store, &claim("k", 4)).await;
        assert_eq!(executed() - before, of_refusal, "{layout}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_try_writes_nothing_and_uses_up_no_number() {
    for layout in ["unique", "version"] {
        let case = Case::on(start(&[], &[]), layout);
        let [holder, other] =
            [open(case.config()).await, open(case.config()).await].map(|store| store.expect("it opens"));
        lock(&holder, &claim("k", 1)).await;
        let next_number = || {
            case.ask(&format!(
                "SELECT auto_increment FROM information_schema.tables
                 WHERE table_schema = '{}' AND table_name = '{}'",
                case.database,
                case.table()
            ))
        };
        let written = || {
            let status = case.ask("SHOW GLOBAL STATUS LIKE 'Innodb_lsn_current'");
            let position = status
                .rsplit('\t')
                .next()
                .and_then(|position| position.parse::<u64>().ok());
            position.expect("a position in the log")
        };
        waits(&other, &claim("k", 100)).await;
        let before = (next_number(), written());
        for number in 2..100 {
            waits(&other, &claim("k", number)).await;
        }
        assert_eq!(next_number(), before.0, "{layout}");
        // The server itself may write a little meanwhile. 98 tries that write would add more.
        let grown = written() - before.1;
        assert!(grown < 2_000, "{layout}: {grown} bytes");
    }
}

/// A row that another program has locked is busy at once, and delays no other key.
#[tokio::test(flavor = "multi_thread")]
async fn a_row_locked_elsewhere_delays_no_other_key() {
    for layout in ["unique", "version", "shedlock"] {
        let case = Case::new(layout);
        let store = open(case.config()).await.expect("it opens");
        lock(&store, &claim("k", 1)).await;
        let mut other = case.superuser().await;
        other.query_drop("BEGIN").await.expect("it obeys");
        let all: Vec<mysql_async::Row> = other
            .query(format!("SELECT * FROM {} FOR UPDATE", case.table()))
            .await
            .expect("it obeys");
        assert_eq!(all.len(), 1);
        let mut quickest = Duration::MAX;
        for number in 2..5 {
            let began = Instant::now();
            waits(&store, &claim("k", number)).await;
            quickest = quickest.min(began.elapsed());
        }
        // The server's own limit for a locked row is a second.
        assert!(quickest < Duration::from_millis(900), "{layout}: {quickest:?}");
        let renewal = tenure_backend::RenewRequest::of(&claim("k", 1));
        let renewed = store.clone().renew(Batch::from_iter([renewal])).await.pop();
        assert!(
            matches!(&renewed, Some(tenure_backend::RenewReply::Unknown(error)) if error.effect() == Effect::None),
            "{renewed:?}"
        );
        other.query_drop("ROLLBACK").await.expect("it obeys");
        unlock(&store, &claim("k", 1)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_goes_on_after_its_connections_were_killed() {
    let case = Case::on(start(&[], &[]), "version");
    let store = open(case.config()).await.expect("it opens");
    lock(&store, &claim("k", 1)).await;
    case.ask(&format!("KILL USER {USER}"));
    let lost = acquire(&store, &claim("other", 2))
        .await
        .expect_err("the connection is gone");
    assert_eq!(
        (lost.fault(), lost.effect()),
        (Fault::Unavailable, Effect::Unknown),
        "{lost}"
    );
    unlock(&store, &claim("k", 1)).await;
    case.server.lock().process().stop();
    acquire(&store, &claim("k", 3))
        .await
        .expect_err("the server is gone");
    let gone = acquire(&store, &claim("k", 4))
        .await
        .expect_err("the server is gone");
    assert_eq!(
        (gone.fault(), gone.effect()),
        (Fault::Unavailable, Effect::None),
        "{gone}"
    );
    case.server
        .lock()
        .restart(tenure_servers::Data::Kept)
        .expect("it starts");
    lock(&store, &claim("k", 5)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_unix_socket_can_be_used() {
    let case = Case::new("version");
    let socket = case.server.lock().socket().display().to_string();
    let url = format!(
        "mysql://{USER}:{PASSWORD}@/{}?layout=version&host={socket}",
        case.database
    );
    let store = open(config(&url)).await.expect("it opens");
    lock(&store, &claim("k", 1)).await;
    assert_eq!(findings(&store).await, [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_nothing_on_a_sound_server() {
    for layout in ["unique", "version", "shedlock"] {
        let case = Case::new(layout);
        let store = open(config(&case.url(case.address()))).await.expect("it opens");
        assert_eq!(findings(&store).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_settings_that_weaken_the_locks() {
    let options = [
        "--log-bin",
        "--server-id=1",
        "--binlog-format=STATEMENT",
        "--innodb-flush-log-at-trx-commit=2",
        "--default-time-zone=+02:00",
        "--transaction-isolation=SERIALIZABLE",
    ];
    let case = Case::on(start(&options, &[]), "version");
    let store = open(config(&case.url(case.address()))).await.expect("it opens");
    case.ask(&format!(
        "REVOKE INSERT ON {} FROM {USER}; SET GLOBAL read_only = 1",
        case.table()
    ));
    let found = findings(&store).await.join("\n");
    for words in [
        "innodb_flush_log_at_trx_commit",
        "sync_binlog",
        "binlog_format",
        "the server is read-only",
        "INSERT command denied",
        "+2 h from Tenure's (`time_zone` is `+02:00`)",
        "SERIALIZABLE",
    ] {
        assert!(found.contains(words), "{words}: {found}");
    }
    // The server refuses all that the doctor has named.
    let refused = acquire(&store, &claim("k", 1))
        .await
        .expect_err("nothing can be written");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Unavailable, Effect::None),
        "{refused}"
    );
    case.ask("SET GLOBAL read_only = 0");
    let refused = acquire(&store, &claim("k", 2))
        .await
        .expect_err("nothing can be written");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Store, Effect::None),
        "{refused}"
    );
    assert!(refused.to_string().contains("`binlog_format`"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_zone_that_sets_its_clocks() {
    let case = Case::on(start(&[], &[]), "version");
    case.ask(
        "INSERT INTO mysql.time_zone (Time_zone_id, Use_leap_seconds) VALUES (1, 'N');
         INSERT INTO mysql.time_zone_name (Name, Time_zone_id) VALUES ('Middle/Earth', 1);
         INSERT INTO mysql.time_zone_transition_type (Time_zone_id, Transition_type_id, `Offset`, Is_DST, Abbreviation)
             VALUES (1, 0, 3600, 0, 'MET'), (1, 1, 7200, 1, 'MEST');
         INSERT INTO mysql.time_zone_transition (Time_zone_id, Transition_time, Transition_type_id)
             VALUES (1, UNIX_TIMESTAMP(CONCAT(YEAR(NOW()), '-03-30')), 1), (1, UNIX_TIMESTAMP(CONCAT(YEAR(NOW()), '-10-30')), 0)",
    );
    let url = case.url(case.address());
    for (zone, is_found) in [("Middle/Earth", true), ("%2B01:00", false), ("UTC", false)] {
        // `UTC` is the default.
        let option = if zone == "UTC" {
            String::new()
        } else {
            format!("&time_zone={zone}")
        };
        let store = open(config(&(url.clone() + &option))).await.expect("it opens");
        let found = findings(&store).await.join("\n");
        assert_eq!(
            found.contains("are set twice a year"),
            is_found,
            "{zone}: {found}"
        );
        assert_eq!(found.contains("`Middle/Earth`"), is_found, "{zone}: {found}");
    }
}

/// By the server's clock, the lease of such a renewal ends before the time at which the row was taken.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_renewed_after_the_clock_was_set_back_ends() {
    for layout in ["unique", "version", "shedlock"] {
        let case = Case::new(layout);
        let [ours, other] = [open(case.config()).await, open(case.config()).await];
        let [ours, other] = [ours, other].map(|store| store.expect("the server answers"));
        let [held, next] = [claim("k", 1), claim("k", 2)];
        lock(&ours, &held).await;
        case.ask("UPDATE step SET us = us - 3600000000");
        let renewed = ours
            .clone()
            .renew(Batch::from_iter([RenewRequest::of(&held)]))
            .await;
        assert!(matches!(renewed[..], [RenewReply::Alive { .. }]), "{renewed:?}");
        waits(&other, &next).await;
        case.pass(held.lease + Duration::from_secs(1)).await;
        lock(&other, &next).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_a_far_clock_and_too_many_connections() {
    let clock = tenure_servers::SteppedClock::new().expect("a clock that steps");
    let server = start_with_clock(
        &["--max-connections=10", "--bind-address=0.0.0.0"],
        &[],
        Some(clock),
    );
    let case = Case::on(server, "unique");
    // Not one of the names of this machine.
    let address = case.url(case.address()).replace("127.0.0.1", "127.0.0.2");
    let store = open(config(&address)).await.expect("it opens");
    case.server
        .lock()
        .clock()
        .expect("it steps")
        .step_ms(3_609_000)
        .expect("it steps");
    let mut others = Vec::new();
    for _ in 0..9 {
        others.push(case.superuser().await);
    }
    let found = findings(&store).await.join("\n");
    for words in [
        "clock differs from this machine's by 360",
        "10 of 10 connections",
        "is not encrypted",
    ] {
        assert!(found.contains(words), "{words}: {found}");
    }
    let refused = open(config(&address))
        .await
        .map(drop)
        .expect_err("there are too many");
    assert_eq!(
        (refused.fault(), refused.effect()),
        (Fault::Unavailable, Effect::None),
        "{refused}"
    );
    assert!(refused.to_string().contains("too many connections"), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_doctor_finds_both_ends_of_a_replication_that_is_not_waited_for() {
    let primary = Case::on(
        start(&["--log-bin", "--server-id=1", "--sync-binlog=1"], &[]),
        "version",
    );
    // Both servers have the same users.
    let replica = Case::on(
        start(&["--server-id=2", "--slave-skip-errors=all"], &[]),
        "version",
    );
    let (ip, port) = (primary.address().ip(), primary.address().port());
    let follow = format!(
        "CHANGE MASTER TO MASTER_HOST='{ip}', MASTER_PORT={port}, MASTER_USER='root', MASTER_CONNECT_RETRY=1; START SLAVE"
    );
    replica.server.lock().ask(&follow).expect("the server obeys");
    // The superuser sees the replicas, the usual user does not.
    let root = format!(
        "mysql://root@{}/{}?layout=version",
        primary.address(),
        primary.database
    );
    let store = open(config(&root)).await.expect("it opens");
    finds(&store, "this server does not wait for its replicas (1 connected)").await;
    let store = open(replica.config()).await.expect("it opens");
    finds(
        &store,
        "this server is a replica of another one, and accepts writes",
    )
    .await;
}

/// Examines a server until this warning is all that is found.
async fn finds(store: &Arc<dyn Backend>, warning: &str) {
    let began = Instant::now();
    loop {
        let found = findings(store).await;
        if found == [format!("Warning: {warning}")] {
            break;
        }
        assert!(began.elapsed() < Duration::from_secs(30), "{found:?}");
        // sleep: the pause between two looks, until the deadline above.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A host that accepts connections and never answers, as a paused machine does.
#[tokio::test(flavor = "multi_thread")]
async fn a_host_that_does_not_answer_leaves_time_for_the_next() {
    let case = Case::new("version");
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let silent = silent.local_addr().expect("one");
    let url = case.url(case.address()).replace('@', &format!("@{silent},")) + "&connect_timeout=10s";
    let store = open(config(&url)).await.expect("the other host answers");
    lock(&store, &claim("k", 1)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_table_may_have_a_reserved_word_as_its_name() {
    for layout in ["unique", "version", "shedlock"] {
        let case = Case::new(layout);
        let url = format!(
            "mysql://root@{}/mysql?layout={layout}&table=lock&schema={}",
            case.address(),
            case.database
        );
        create(config(&url)).await.expect("it is created");
        let store = open(config(&url)).await.expect("it opens");
        lock(&store, &claim("k", 1)).await;
        unlock(&store, &claim("k", 1)).await;
        assert_eq!(findings(&store).await, [""; 0]);
    }
}
