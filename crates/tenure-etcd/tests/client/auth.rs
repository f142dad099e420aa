//! Logins: tokens that run out or are outdated, wrong passwords, missing permissions.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::fixture::{assert_error, client, config, created, put, soon, start, watch};
use tenure_backend::{BackendError, Effect, Fault};
use tenure_etcd::client::{Client, Empty, PUT, RANGE, RangeRequest, STATUS, WatchResponse};
use tenure_etcd::{Config, Credentials};
use tenure_servers::{Certificates, Etcd};

const PASSWORD: &str = "s3cr3t";

/// Commands of `etcdctl` that make a user who may use the keys that begin with `k`, and switch users on.
const USERS: [&str; 7] = [
    "user add root:of-root",
    "user grant-role root root",
    "role add locks",
    "role grant-permission locks readwrite --prefix=true k",
    "user add ada:s3cr3t",
    "user grant-role ada locks",
    "auth enable",
];

/// Runs a command of `etcdctl`.
fn ask(etcd: &Etcd, command: &str) {
    let words: Vec<&str> = command.split(' ').collect();
    etcd.ask(&words).expect(command);
}

/// A member with users; `None` if `TENURE_SKIP` names `etcd`.
fn start_with_users(options: &[&str]) -> Option<Etcd> {
    let etcd = start(options)?;
    USERS.iter().for_each(|command| ask(&etcd, command));
    Some(etcd)
}

/// A client that logs in as ada, and the number of its logins.
fn counted(etcd: &Etcd) -> (Arc<Client>, Arc<AtomicUsize>) {
    let logins = Arc::new(AtomicUsize::new(0));
    let counter = logins.clone();
    let config = config(&etcd.url()).credentials(move || {
        counter.fetch_add(1, Ordering::Relaxed);
        async { Ok(Credentials::user("ada", PASSWORD)) }
    });
    (Client::new(config).expect("a client"), logins)
}

/// The URL of a member with a login.
fn url(etcd: &Etcd, login: &str) -> String {
    format!("etcd://{login}@{}", etcd.address())
}

#[tokio::test]
async fn a_user_reads_and_writes_what_its_role_permits() {
    let Some(etcd) = start_with_users(&[]) else { return };
    let (client, logins) = counted(&etcd);
    client.call(PUT, put("k", "v")).await.expect("it is permitted");
    let refused = client
        .call(PUT, put("other", "v"))
        .await
        .expect_err("it is not permitted");
    assert_error(&refused, (Fault::Denied, Effect::None), "lacks a permission");
    let [mut refused, mut permitted] = ["other", "k"].map(|key| watch(&client, key));
    let refused = soon(refused.next()).await.expect_err("it is not permitted");
    assert_error(&refused, (Fault::Denied, Effect::None), "lacks a permission");
    assert!(matches!(
        soon(permitted.next()).await,
        Ok(WatchResponse { created: true, .. })
    ));
    // A refused watch does not end the others.
    client.call(PUT, put("k", "w")).await.expect("it is permitted");
    assert!(matches!(
        soon(permitted.next()).await,
        Ok(WatchResponse { created: false, .. })
    ));
    assert_eq!(logins.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_wrong_or_missing_password_is_named() {
    let Some(etcd) = start_with_users(&[]) else { return };
    for (url, words) in [
        (url(&etcd, "ada:n0t-it"), "refuses the user or the password"),
        (url(&etcd, "bob:n0t-it"), "refuses the user or the password"),
        (etcd.url(), "write `etcd://USER:PASSWORD@HOST`"),
    ] {
        let refused = client(&url)
            .call(RANGE, RangeRequest::key("k"))
            .await
            .expect_err(words);
        assert_error(&refused, (Fault::Denied, Effect::None), words);
        let text = format!("{refused} {refused:?} {:?}", config(&url));
        assert!(!text.contains("n0t-it"), "{text}");
    }
}

#[tokio::test]
async fn one_login_serves_all_calls_whose_token_ran_out() {
    let Some(etcd) = start_with_users(&["--auth-token-ttl", "2"]) else {
        return;
    };
    let (client, logins) = counted(&etcd);
    client.call(PUT, put("k", "v")).await.expect("it is permitted");
    // sleep: the token's time must run out, and the server looks every second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let calls = (0..20).map(|_| client.call(PUT, put("k", "w")));
    for result in futures_util::future::join_all(calls).await {
        result.expect("it is repeated");
    }
    assert_eq!(logins.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_watch_with_an_outdated_token_can_be_repeated() {
    let Some(etcd) = start_with_users(&["--auth-token-ttl", "2"]) else {
        return;
    };
    let (client, logins) = counted(&etcd);
    let mut before = created(&client, "k").await;
    // sleep: the token's time must run out, and the server looks every second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    for watch in [&mut watch(&client, "k"), &mut before] {
        let ended = soon(watch.next()).await.expect_err("the token is outdated");
        assert_error(&ended, (Fault::Unavailable, Effect::None), "open it again");
    }
    created(&client, "k").await;
    assert_eq!(logins.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_token_is_replaced_after_a_change_of_users() {
    let keys = Certificates::for_tokens();
    let [public, private] = ["token.pub", "token.key"].map(|name| keys.file(name));
    let token = format!("jwt,pub-key={public},priv-key={private},sign-method=RS256,ttl=10m");
    let Some(etcd) = start_with_users(&["--auth-token", &token]) else {
        return;
    };
    let (client, logins) = counted(&etcd);
    client.call(PUT, put("k", "v")).await.expect("it is permitted");
    for (number, command) in ["user add bob:b0b", "role add more"].iter().enumerate() {
        etcd.ask(
            &[
                &["--user", "root:of-root"][..],
                &command.split(' ').collect::<Vec<_>>(),
            ]
            .concat(),
        )
        .expect("root may");
        client.call(PUT, put("k", "w")).await.expect("it is repeated");
        assert_eq!(logins.load(Ordering::Relaxed), number + 2);
    }
}

#[tokio::test]
async fn a_client_logs_in_when_users_are_switched_on() {
    let Some(etcd) = start(&[]) else { return };
    let client = client(&url(&etcd, "ada:s3cr3t"));
    client.call(PUT, put("k", "v")).await.expect("every client may");
    USERS.iter().for_each(|command| ask(&etcd, command));
    client.call(PUT, put("k", "w")).await.expect("ada may");
    let refused = client
        .call(PUT, put("other", "w"))
        .await
        .expect_err("ada may not");
    assert_error(&refused, (Fault::Denied, Effect::None), "lacks a permission");
    etcd.ask(&["--user", "root:of-root", "auth", "disable"])
        .expect("root may");
    client
        .call(PUT, put("other", "w"))
        .await
        .expect("every client may");
}

#[tokio::test]
async fn a_password_that_changed_is_fetched_again() {
    let Some(etcd) = start_with_users(&["--auth-token-ttl", "2"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, "s3cr3t\n").expect("a file");
    let url = format!("etcd://ada@{}?password_file={}", etcd.address(), file.display());
    let client = client(&url);
    client.call(PUT, put("k", "v")).await.expect("it is permitted");
    let change = "printf 'n3w\\nn3w\\n' | ETCDCTL_API=3 etcdctl --user root:of-root --endpoints";
    let change = format!("{change} {} user passwd ada --interactive=false", etcd.address());
    let changed = std::process::Command::new("sh").args(["-c", &change]).status();
    assert!(changed.expect("a shell").success());
    std::fs::write(&file, "n3w\n").expect("a file");
    // sleep: the token's time must run out, and the server looks every second.
    tokio::time::sleep(Duration::from_secs(4)).await;
    client
        .call(PUT, put("k", "w"))
        .await
        .expect("the new password is used");
}

#[tokio::test]
async fn a_failing_callback_fails_the_call() {
    let Some(etcd) = start_with_users(&[]) else { return };
    let failing = || async {
        Err(BackendError::new(
            Fault::Denied,
            Effect::None,
            "the vault is sealed",
        ))
    };
    let config: Config = config(&etcd.url()).credentials(failing);
    let refused = Client::new(config)
        .expect("a client")
        .call(STATUS, Empty {})
        .await;
    assert_error(
        &refused.expect_err("no credentials"),
        (Fault::Denied, Effect::None),
        "the vault is sealed",
    );
}
