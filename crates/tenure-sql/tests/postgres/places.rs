//! Where a PostgreSQL server may be: behind a Unix socket, behind TLS, and one of several hosts, of which another takes
//! over.

use std::net::TcpListener;

use crate::postgres_fixture::*;
use futures_util::StreamExt;
use tenure_backend::{
    AcquireReply, ClientId, Effect, Fault, Invalidation, LockKey, Mode, Phase, Query, ReleaseReply,
    RenewReply,
};
use tenure_servers::Certificates;
use tenure_sql::server::open;

/// Acquires, renews and releases a lock of the case at this URL.
async fn lock_and_unlock(case: &Case, url: &str) {
    let store = open(case.config_at(url)).await;
    let store = store.unwrap_or_else(|error| panic!("{url}: {error:?}"));
    let (client, key) = case.one().await;
    let claim = client.claim(&key, Mode::Exclusive);
    let granted = acquire(&store, &claim).await;
    assert!(
        matches!(granted, Ok(AcquireReply::Granted(_))),
        "{url}: {granted:?}"
    );
    assert_alive(&renew(&store, &claim).await);
    let released = release(&store, unlock_of(&claim)).await;
    assert!(
        matches!(&released, ReleaseReply::Done { freed, .. } if freed.len() == 1),
        "{released:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_reached_by_its_unix_socket() {
    let case = Case::new("version").await;
    let (folder, port) = {
        let server = case.server.lock();
        (server.socket_folder().to_owned(), server.address().port())
    };
    let login = format!("{ROLE}:{PASSWORD}");
    let url = |host: &str, folder: &std::path::Path| {
        let (schema, folder) = (&case.schema, folder.display());
        format!("postgres://{login}@{host}/postgres?layout=version&schema={schema}&host={folder}")
    };
    lock_and_unlock(&case, &url(&format!("localhost:{port}"), &folder)).await;
    // A socket with the usual number, as a pooler has one in front of a server with another.
    let other = tempfile::tempdir().expect("a folder");
    let original = folder.join(format!(".s.PGSQL.{port}"));
    std::os::unix::fs::symlink(original, other.path().join(".s.PGSQL.5432")).expect("a link");
    lock_and_unlock(&case, &url("", other.path())).await;

    let empty = tempfile::tempdir().expect("a folder");
    let error = open(case.config_at(&url("", empty.path()))).await;
    let error = error.expect_err("there is no socket");
    assert_error(
        &error,
        (Fault::Unavailable, Effect::None),
        ".s.PGSQL.5432 cannot be reached",
    );
}

/// Returns whether the server's process for the client of this name has an encrypted connection.
#[cfg(feature = "tls")]
fn is_encrypted(case: &Case, name: &str) -> bool {
    let encrypted = format!(
        "SELECT bool_and(ssl) FROM pg_stat_ssl JOIN pg_stat_activity USING (pid) WHERE application_name = '{name}'"
    );
    case.ask(&encrypted) == "t"
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn each_tls_mode_verifies_what_it_says() {
    let certificates = Certificates::new(ROLE);
    let [key, certificate] = ["server.key", "server.pem"].map(|name| certificates.text(name));
    let files = [("server.key", key.as_str()), ("server.crt", &certificate)];
    let case = Case::on(start_with(&["ssl = on"], &files), "version").await;
    let port = case.address().port();
    // The certificate is for 127.0.0.1. By the name of the same machine, it is another host's.
    let [right, wrong] = ["127.0.0.1", "localhost"].map(|host| format!("{host}:{port}"));
    let [ca, other_ca] = ["ca.pem", "other-ca.pem"].map(|name| format!("&ca={}", certificates.file(name)));
    for (number, (mode, host, authority, encrypted)) in [
        ("disable", &right, "", Some(false)),
        ("prefer", &right, "", Some(true)),
        ("require", &wrong, "", Some(true)),
        ("require", &wrong, &ca, Some(true)),
        // As libpq does, `require` verifies the authority if one is named.
        ("require", &right, &other_ca, None),
        ("verify-ca", &wrong, &ca, Some(true)),
        ("verify-ca", &right, &other_ca, None),
        ("verify-ca", &right, "", None),
        ("verify-full", &right, &ca, Some(true)),
        ("verify-full", &wrong, &ca, None),
        ("verify-full", &right, &other_ca, None),
        ("verify-full", &right, "", None),
    ]
    .into_iter()
    .enumerate()
    {
        let what = format!("{mode} at {host}{authority}");
        let name = format!("tls_{number}");
        let case = case.clone().at(host);
        let case = case.with(&format!("application_name={name}&sslmode={mode}{authority}"));
        match (open(case.config()).await, encrypted) {
            (Ok(_store), Some(encrypted)) => assert_eq!(is_encrypted(&case, &name), encrypted, "{what}"),
            (Err(error), None) => {
                // An untrusted certificate stays so: repeating the attempt does not help.
                assert_error(&error, (Fault::Store, Effect::None), "no TLS can be spoken");
                assert!(!printed(&error).contains(PASSWORD), "{error:?}");
            }
            (result, _) => panic!("{what}: {result:?}"),
        }
    }
    let plain = Case::new("version").await.with("sslmode=prefer");
    lock_and_unlock(&plain, &plain.url()).await;
    let nowhere = case.with("sslmode=verify-full&ca=/nowhere/ca.pem").config();
    let error = open(nowhere).await.expect_err("there is no such file");
    assert_error(&error, (Fault::Invalid, Effect::None), "/nowhere/ca.pem");
}

#[cfg(feature = "tls")]
#[tokio::test(flavor = "multi_thread")]
async fn a_client_logs_in_with_its_certificate() {
    let certificates = Certificates::new(ROLE);
    let [key, certificate, ca] = ["server.key", "server.pem", "ca.pem"].map(|name| certificates.text(name));
    let logins = format!(
        "local all,replication postgres trust\nhost all postgres 127.0.0.1/32 trust\nhostssl all {ROLE} 127.0.0.1/32 cert\n"
    );
    let files = [
        ("server.key", key.as_str()),
        ("server.crt", &certificate),
        ("root.crt", &ca),
        ("pg_hba.conf", &logins),
    ];
    for protocol in ["TLSv1.3", "TLSv1.2"] {
        let options = [
            "ssl = on",
            "ssl_ca_file = 'root.crt'",
            &format!("ssl_max_protocol_version = '{protocol}'"),
        ];
        let case = Case::on(start_with(&options, &files), "version").await;
        let case = case.with(&format!("sslmode=verify-full&ca={}", certificates.file("ca.pem")));
        let identity = |name: &str| {
            let [cert, key] = ["pem", "key"].map(|kind| certificates.file(&format!("{name}.{kind}")));
            case.clone().with(&format!("cert={cert}&key={key}"))
        };
        let ours = identity("client");
        lock_and_unlock(&ours, &ours.url_of(ROLE)).await;
        for (case, fault, words) in [
            (case.clone(), Fault::Denied, "whether the role exists"),
            // Of another role.
            (identity("elsewhere"), Fault::Denied, "whether the role exists"),
            // Of an authority that the server does not know.
            (
                identity("other-ca"),
                Fault::Store,
                "whether it asks for one of ours",
            ),
        ] {
            let error = open(case.config_at(&case.url_of(ROLE))).await;
            let error = error.expect_err(words);
            assert_error(&error, (fault, Effect::None), words);
        }
        let plain = case
            .url_of(ROLE)
            .replace("sslmode=verify-full", "sslmode=disable");
        let plain = plain.replace(&format!("&ca={}", certificates.file("ca.pem")), "");
        let error = open(case.config_at(&plain)).await.expect_err("it is not let in");
        assert_error(&error, (Fault::Denied, Effect::None), "`pg_hba.conf`");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_in_the_list_is_skipped() {
    let case = Case::new("version").await;
    let standby = case.server.lock().standby(&[]).expect("a standby starts");
    let hosts = format!("{},{}", standby.address(), case.address());
    let case = case.at(hosts);
    lock_and_unlock(&case, &case.url()).await;
}

/// The standby is synchronous, so it has every lock that was granted.
#[tokio::test(flavor = "multi_thread")]
async fn held_locks_outlive_a_failover_to_the_standby() {
    for layout in LAYOUTS {
        let case = Case::on(start(&[]), layout).await;
        let standby = case.server.lock().standby(&[]).expect("a standby starts");
        case.ask("ALTER SYSTEM SET synchronous_standby_names = '*'; SELECT pg_reload_conf()");
        let synchronous = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
        wait_until("the standby is synchronous", || case.number(synchronous) == 1).await;
        let hosts = format!("{},{}", case.address(), standby.address());
        let ([holder, other], key) = case.clone().at(hosts).two().await;
        let store = holder.backend();
        let held = holder.claim(&key, Mode::Exclusive);
        let grant = holder.granted(&held).await;
        let changes = store.clone().invalidations(ClientId::from_random([7; 16]));
        let mut changes = changes.expect("the store has them");
        assert_eq!(soon(changes.next()).await, Some(Invalidation::All));

        case.server.lock().process().kill();
        let error = renewal_error(store, &held).await;
        assert_eq!(error.fault(), Fault::Unavailable, "{error:?}");
        standby.promote().expect("it is promoted");
        holder.stays_alive(&held, Phase::Granted).await;
        assert_eq!(soon(changes.next()).await, Some(Invalidation::All));
        other.finds_busy(&key, Mode::Exclusive).await;
        assert_eq!(holder.granted(&held).await.tokens, grant.tokens);
        holder.release(&held).await.freed_it(&held);
        let next = other.claim(&key, Mode::Exclusive);
        let after = other.granted(&next).await;
        if layout == "version" {
            assert_tokens_rise(&grant, &after);
        }
    }
}

/// A machine without power answers nothing, not even that its server is gone.
#[tokio::test(flavor = "multi_thread")]
async fn a_silent_host_does_not_keep_clients_from_the_next() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port is free");
    silent.set_nonblocking(true).expect("it can be set");
    let attempts = || std::iter::from_fn(|| silent.accept().ok()).count();
    let address = silent.local_addr().expect("it has an address");
    let case = Case::new("version").await;
    let hosts = format!("{address},{}", case.address());
    let case = case
        .at(hosts)
        .with("application_name=patient&connect_timeout=10s");
    let store = case.open().await;
    assert_eq!(attempts(), 1);
    // The next connection does not wait for the silent host again.
    case.ask(
        "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE application_name = 'patient'",
    );
    let query = || {
        let key = LockKey::new("k").expect("a key");
        store.clone().inspect(Query::Key(key))
    };
    if query().await.is_err() {
        query().await.expect("it is connected again");
    }
    assert_eq!(attempts(), 0);
}

/// A managed server turns read-only when its disk is full, or for a planned failover.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_turns_read_only_is_unavailable() {
    let case = Case::on(start(&[]), "version").await.with("connect_timeout=2s");
    let (client, key) = case.one().await;
    let held = client.holds(&key, Mode::Exclusive).await;
    let read_only = async |value: &str| {
        case.ask(&format!(
            "ALTER SYSTEM SET default_transaction_read_only = {value}; SELECT pg_reload_conf()"
        ));
        let show = "SHOW default_transaction_read_only";
        wait_until("the setting has changed", || case.ask(show) == value).await;
    };
    read_only("on").await;
    let error = soon(async {
        loop {
            // The session has not read the setting yet if it still renews.
            if let RenewReply::Unknown(error) = renew(client.backend(), &held).await {
                break error;
            }
        }
    })
    .await;
    assert_error(&error, (Fault::Unavailable, Effect::None), "read-only");
    let again = renewal_error(client.backend(), &held).await;
    assert_error(&again, (Fault::Unavailable, Effect::None), "accepts writes");
    read_only("off").await;
    client.stays_alive(&held, Phase::Granted).await;
}
