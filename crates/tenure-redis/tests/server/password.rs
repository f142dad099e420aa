//! Passwords from the URL, from a callback, from a file that is read at each connect, and from a pipe.

use std::io::Write;
use std::sync::Arc;

use crate::fixture::*;
use tenure_backend::{Backend, BackendError, Effect, Fault, LockKey, Query};
use tenure_redis::{Credentials, RedisStore};
use tenure_servers::Redis;

#[tokio::test(flavor = "multi_thread")]
async fn a_wrong_password_is_denied_and_no_password_is_shown() {
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
    let error = config(&twice).expect_err("two passwords");
    assert_eq!(error.fault(), Fault::Invalid);
}

#[tokio::test(flavor = "multi_thread")]
async fn credentials_are_fetched_at_each_connect() {
    let server = Redis::start().expect("it starts");
    server
        .ask(&["CONFIG", "SET", "requirepass", PASSWORD])
        .expect("it obeys");
    let url = format!("redis://{}", server.address());
    let plain = || config(&url).expect("a URL");
    let fetched = plain().credentials(|| async { Ok(Credentials::password(PASSWORD)) });
    let store = RedisStore::connect(fetched).await.expect("the right one");
    assert!(!format!("{store:?}").contains(PASSWORD));
    let named = plain().credentials(|| async { Ok(Credentials::user("default", PASSWORD)) });
    RedisStore::connect(named).await.expect("the right one");
    let wrong = plain().credentials(|| async { Ok(Credentials::password("wrong")) });
    let wrong = RedisStore::connect(wrong).await.expect_err("a wrong one");
    assert_eq!(wrong.fault(), Fault::Denied, "{wrong:?}");
    let sealed = || BackendError::new(Fault::Unavailable, Effect::None, "the vault is sealed");
    let sealed = plain().credentials(move || async move { Err(sealed()) });
    let sealed = RedisStore::connect(sealed).await.expect_err("there are none");
    assert_eq!(sealed.to_string(), "the vault is sealed");
}

/// Calls the store until it has noticed the closed connection and opened another.
async fn reconnected(store: &Arc<RedisStore>) -> Result<(), BackendError> {
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
    let server = Redis::start().expect("it starts");
    let ask = |password: &str, command: &[&str]| {
        let login = ["AUTH", password];
        server.ask_in_turn(&[&login, command]).expect("it obeys");
    };
    let protected = ["CONFIG", "SET", "requirepass", PASSWORD];
    server.ask(&protected).expect("it obeys");
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("password");
    std::fs::write(&file, PASSWORD).expect("a file");
    let url = format!("redis://{}?password_file={}", server.address(), file.display());
    let store = connect(&url).await.expect("the password is in the file");

    ask(PASSWORD, &["CONFIG", "SET", "requirepass", ROTATED]);
    std::fs::write(&file, ROTATED).expect("a file");
    let cut = ["CLIENT", "KILL", "TYPE", "normal"];
    ask(ROTATED, &cut);
    soon(reconnected(&store))
        .await
        .expect("the rotated password is in the file");

    std::fs::write(&file, "").expect("a file");
    ask(ROTATED, &cut);
    let error = soon(reconnected(&store))
        .await
        .expect_err("no password is in the file");
    assert_error(&error, (Fault::Unavailable, Effect::None), "empty first line");
    for password in [PASSWORD, ROTATED] {
        assert!(!printed(&error).contains(password), "{error:?}");
    }
    std::fs::write(&file, ROTATED).expect("a file");
    soon(reconnected(&store)).await.expect("the password is back");
}

/// The password's file is a pipe, with a path like the one that a shell makes of `<(command)`.
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_password_pipe_is_read_once() {
    let server = Redis::start().expect("it starts");
    server
        .ask(&["CONFIG", "SET", "requirepass", PASSWORD])
        .expect("it obeys");
    let (reader, mut writer) = std::io::pipe().expect("a pipe");
    writer.write_all(PASSWORD.as_bytes()).expect("the pipe takes it");
    drop(writer);
    let file = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&reader));
    let url = format!("redis://{}?password_file={file}", server.address());
    connect(&url).await.expect("the password was in the pipe");
}
