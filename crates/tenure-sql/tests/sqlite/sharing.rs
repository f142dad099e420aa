//! A lock file that several users share: its mode, and users who can only read it.

use std::fs;
use std::num::NonZeroU32;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tenure_backend::{AcquireReply, Backend, BackendError, Fault, Query, RenewReply, Severity};
use tenure_sql::sqlite::{self, Config, SqliteStore};

use crate::fixture::{
    DEADLINE, TestClient, as_another_user, child, connect, findings, sibling, spawn, temp_lock_file,
};

const SUFFIXES: [&str; 3] = ["", "-wal", "-shm"];

fn modes(path: &Path) -> [u32; 3] {
    SUFFIXES.map(|suffix| {
        let file = fs::metadata(sibling(path, suffix)).expect("the file exists");
        file.mode() & 0o7777
    })
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("this user owns it");
}

async fn open_with(path: &Path, config: Config) -> Result<Arc<SqliteStore>, BackendError> {
    let config = Config {
        busy_limit: DEADLINE,
        ..config
    };
    sqlite::open_with(Some(path.to_owned()), config).await
}

fn with_mode(mode: u32) -> Config {
    Config {
        file_mode: Some(mode),
        ..Config::default()
    }
}

fn reading() -> Config {
    Config {
        allow_read_only: true,
        ..Config::default()
    }
}

#[tokio::test]
async fn a_new_file_has_the_mode_of_its_settings_whatever_the_umask() {
    for umask in ["0", "0777"] {
        for mode in [0o600, 0o640, 0o666] {
            let (_dir, path) = temp_lock_file();
            let child = spawn(
                "child_creates_a_file_with_a_mode",
                &[("FILE", &path), ("UMASK", &umask), ("MODE", &mode.to_string())],
            );
            assert_eq!(child.read_line(), "locked");
            assert_eq!(modes(&path), [mode; 3], "umask {umask}");
        }
    }
}

#[test]
fn child_creates_a_file_with_a_mode() {
    child("child_creates_a_file_with_a_mode", async |role| {
        let mode = u32::try_from(role.number("MODE")).expect("it is small");
        let store = open_with(Path::new(&role.var("FILE")), with_mode(mode)).await;
        TestClient::new(store.expect("the file is made")).lock("k").await;
        role.print("locked");
        // Keeps the file open while the parent looks.
        role.read_line();
    });
}

#[tokio::test]
async fn a_mode_that_no_lock_file_can_have_is_invalid() {
    let (_dir, path) = temp_lock_file();
    for mode in [0, 0o460, 0o260, 0o1660, 0o4755, 0o10_600] {
        let error = open_with(&path, with_mode(mode))
            .await
            .expect_err("it is refused");
        assert_eq!(error.fault(), Fault::Invalid, "{error}");
        assert!(error.to_string().contains("such as 0660"), "{error}");
    }
    assert!(!path.exists(), "it is refused before the file is created");
}

#[tokio::test]
async fn examine_compares_the_mode_with_the_one_asked_for() {
    let (dir, path) = temp_lock_file();
    let store = open_with(&path, with_mode(0o660)).await.expect("it opens");
    TestClient::new(store.clone()).lock("k").await;
    set_mode(dir.path(), 0o770);
    assert_eq!(findings(&store).await, [], "what is asked for is no finding");
    for (suffix, mode, severity, words) in [
        ("-wal", 0o600, Severity::Warning, "chmod 0660 "),
        ("", 0o664, Severity::Warning, "other users can read"),
        ("", 0o666, Severity::Danger, "other users can write"),
    ] {
        set_mode(&sibling(&path, suffix), mode);
        let found = findings(&store).await;
        let is_found = found.len() == 1 && found[0].0 == severity && found[0].1.contains(words);
        assert!(is_found, "{mode:o}: {found:?}");
        set_mode(&sibling(&path, suffix), 0o660);
    }
    set_mode(dir.path(), 0o777);
    let found = findings(&store).await;
    assert!(found.len() == 1 && found[0].1.contains("directory"), "{found:?}");
}

/// Denies everyone the right to write these files. Without root, the other user is this user.
fn write_protect(path: &Path) {
    for suffix in SUFFIXES {
        let file = sibling(path, suffix);
        if file.exists() {
            set_mode(&file, 0o444);
        }
    }
}

/// The names in the folder of a file, and the length and change time of each file.
fn folder_of(path: &Path) -> Vec<(PathBuf, u64, i64, i64)> {
    let entries = fs::read_dir(path.parent().expect("a folder")).expect("it can be listed");
    let mut files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("it can be listed");
            let file = entry.metadata().expect("it is there");
            (entry.path(), file.len(), file.ctime(), file.ctime_nsec())
        })
        .collect();
    files.sort();
    files
}

#[tokio::test]
async fn a_user_who_can_only_read_inspects_and_changes_nothing() {
    for state in ["in use", "with its log", "without its log"] {
        let (dir, path) = temp_lock_file();
        let store = open_with(&path, Config::default()).await.expect("it opens");
        TestClient::new(store.clone()).lock("k").await;
        if state != "in use" {
            store.clone().close().await.expect("it closes");
        }
        if state == "without its log" {
            let file = connect(&path);
            let count: i64 = file
                .query_row("SELECT count(*) FROM claim", [], |row| row.get(0))
                .expect("it can be read");
            assert_eq!(count, 1);
        }
        assert_eq!(sibling(&path, "-wal").exists(), state != "without its log");
        write_protect(&path);
        for directory in [0o777, 0o755] {
            set_mode(dir.path(), directory);
            let before = folder_of(&path);
            let other = as_another_user(&path, "child_reads");
            assert_eq!(other.read_line(), "refused: Denied", "{state}");
            assert_eq!(other.read_line(), "k", "{state}");
            assert_eq!(other.read_line(), "acquire: Denied");
            assert_eq!(other.read_line(), "renew: Denied");
            let found = other.read_line();
            assert!(found.contains("this user can only read"), "{found}");
            assert_eq!(other.read_line(), "closed");
            other.end();
            assert_eq!(folder_of(&path), before, "{state}, {directory:o}");
        }
    }
}

#[test]
fn child_reads() {
    child("child_reads", async |role| {
        let path = PathBuf::from(role.var("FILE"));
        let refused = open_with(&path, Config::default()).await;
        let refused = refused.expect_err("only a reader may open it");
        role.print(&format!("refused: {:?}", refused.fault()));
        let store = open_with(&path, reading()).await.expect("it can be read");
        let query = Query::Prefix {
            prefix: "".into(),
            after: None,
            limit: NonZeroU32::MAX,
        };
        let page = store.clone().inspect(query).await.expect("it can be listed");
        let keys: Vec<&str> = page.items.iter().map(|item| item.key.as_str()).collect();
        role.print(&keys.join(" "));
        let mut client = TestClient::new(store.clone());
        let (claim, denied) = client.acquire("k", |_| {}).await;
        match denied {
            Err(error) => role.print(&format!("acquire: {:?}", error.fault())),
            Ok(AcquireReply::Granted(_)) => role.print("granted"),
            Ok(other) => role.print(&format!("{other:?}")),
        }
        match client.renew(&claim).await {
            RenewReply::Unknown(error) => role.print(&format!("renew: {:?}", error.fault())),
            other => role.print(&format!("{other:?}")),
        }
        let found = findings(&store).await;
        role.print(&found.first().expect("a finding").1);
        store.close().await.expect("it closes");
        role.print("closed");
        role.read_line();
    });
}

/// With write access, the setting changes nothing.
#[tokio::test]
async fn a_store_that_may_be_read_only_locks_where_it_can() {
    let (_dir, path) = temp_lock_file();
    let store = open_with(&path, reading()).await.expect("it opens");
    TestClient::new(store).lock("k").await;
}
