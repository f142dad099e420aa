//! The lock file as a file: its permissions, and what happens if it is replaced.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::config::DbConfig;
use tenure_backend::{AcquireReply, Backend, Clock, Effect, Fault, Loss, RenewReply, Severity, SystemClock};
use tenure_sql::sqlite::{self, Config};
use tenure_testkit::ManualClock;

use crate::fixture::{
    TestClient, as_another_user, child, connect, create_lock_file, findings, number, open, sibling, spawn,
    temp_lock_file,
};

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("the file exists").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("this user owns it");
}

#[tokio::test]
async fn all_files_of_a_lock_file_have_mode_0600() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.expect("the file is made"));
    client.lock("k").await;
    for suffix in ["", "-wal", "-shm"] {
        assert_eq!(mode(&sibling(&path, suffix)), 0o600, "{suffix}");
    }
}

#[tokio::test]
async fn an_empty_file_becomes_a_lock_file() {
    let (_dir, path) = temp_lock_file();
    fs::write(&path, "").unwrap();
    let mut client = TestClient::new(open(&path).await.expect("an empty file becomes a lock file"));
    client.lock("k").await;
}

#[tokio::test]
async fn a_link_opens_the_lock_file_it_points_to() {
    let (dir, path) = temp_lock_file();
    create_lock_file(&path).await;
    let link = dir.path().join("link.db");
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let mut one = TestClient::new(open(&path).await.unwrap());
    let mut other = TestClient::new(open(&link).await.unwrap());
    one.lock("k").await;
    assert!(!other.try_lock("k").await);
}

#[tokio::test]
async fn a_file_without_write_access_is_refused() {
    let (dir, path) = temp_lock_file();
    create_lock_file(&path).await;
    let before = fs::read(&path).unwrap();
    fs::remove_file(sibling(&path, "-wal")).unwrap();
    for (of_file, of_directory, words) in [(0o444, 0o755, "write to it"), (0o666, 0o555, "directory")] {
        set_mode(&path, of_file);
        set_mode(dir.path(), of_directory);
        let other = as_another_user(&path, "child_opens_a_file");
        let (fault, text) = (other.read_line(), other.read_line());
        set_mode(dir.path(), 0o755);
        assert!(fault == "Denied" && text.contains(words), "{fault}: {text}");
        assert_eq!(fs::read(&path).unwrap(), before);
    }
}

#[test]
fn child_opens_a_file() {
    child("child_opens_a_file", async |role| match role.open().await {
        Ok(_) => role.print("opened"),
        Err(error) => role.print(&format!("{:?}\n{error}", error.fault())),
    });
}

#[tokio::test]
async fn the_umask_does_not_change_file_permissions() {
    for umask in ["0", "0777"] {
        let (dir, path) = temp_lock_file();
        let opened = spawn("child_opens_a_file", &[("FILE", &path), ("UMASK", &umask)]);
        assert_eq!(opened.read_line(), "opened");
        assert_eq!(mode(&path), 0o600, "umask {umask}");
        let opened = spawn(
            "child_opens_the_default_file",
            &[("XDG_STATE_HOME", &dir.path()), ("UMASK", &umask)],
        );
        let text = opened.read_line();
        assert_eq!(text, dir.path().join("tenure/locks.db").to_string_lossy());
        assert_eq!(mode(&dir.path().join("tenure")), 0o700, "umask {umask}");
        assert_eq!(mode(Path::new(&text)), 0o600, "umask {umask}");
    }
}

#[test]
fn child_opens_the_default_file() {
    child("child_opens_the_default_file", async |role| {
        let opened = sqlite::open(None, Arc::new(SystemClock)).await;
        opened.expect("the default file is made");
        role.print(&sqlite::default_path().unwrap().to_string_lossy());
    });
}

#[tokio::test]
async fn without_home_the_user_database_is_read() {
    let child = spawn(
        "child_prints_the_default_path",
        &[("XDG_STATE_HOME", &"not/absolute"), ("HOME", &"")],
    );
    let text = child.read_line();
    let ends = text.ends_with("/.local/state/tenure/locks.db");
    assert!(text.starts_with('/') && ends, "{text}");
}

#[test]
fn child_prints_the_default_path() {
    child("child_prints_the_default_path", async |role| {
        role.print(&sqlite::default_path().unwrap().to_string_lossy());
    });
}

#[tokio::test]
async fn a_full_file_refuses_locks_and_stays_intact() {
    let (_dir, path) = temp_lock_file();
    create_lock_file(&path).await;
    let config = Config {
        max_bytes: fs::metadata(&path).unwrap().len() + 8 * 4096,
        ..Config::default()
    };
    let store = sqlite::open_with(Some(path.clone()), config).await.unwrap();
    let mut client = TestClient::new(store.clone());
    let mut held = Vec::new();
    let error = loop {
        let label = "x".repeat(1000);
        let key = format!("k{}", held.len());
        match client.acquire(&key, |claim| claim.label = label.into()).await {
            (claim, Ok(AcquireReply::Granted(_))) => held.push(claim),
            (_, Ok(other)) => panic!("{other:?}"),
            (_, Err(error)) => break error,
        }
        assert!(held.len() < 1000, "the file has a limit");
    };
    assert_eq!(
        (error.fault(), error.effect()),
        (Fault::Store, Effect::None),
        "{error}"
    );
    assert!(error.to_string().contains("free some space"), "{error}");
    for claim in &held {
        client.unlock(claim).await;
    }
    drop((client, store));
    let mut client = TestClient::new(open(&path).await.expect("the file is intact"));
    client.lock("k0").await;
}

#[tokio::test]
async fn replacing_a_file_loses_every_claim() {
    for suffix in ["", "-wal", "-shm"] {
        let (dir, path) = temp_lock_file();
        let store = open(&path).await.unwrap();
        let mut client = TestClient::new(store.clone());
        let held = client.lock("k").await;
        let other = dir.path().join("other.db");
        let _kept_open = open(&other).await.unwrap();
        fs::rename(sibling(&other, suffix), sibling(&path, suffix)).unwrap();
        let renewed = client.renew(&held).await;
        let gone = matches!(renewed, RenewReply::Gone(Loss::Missing));
        assert!(gone, "{suffix}: {renewed:?}");
        let (_, refused) = client.acquire("k2", |_| {}).await;
        let error = refused.expect_err("nothing is granted in a file that is gone");
        assert!(
            error.fault() == Fault::Store && error.to_string().contains("replaced"),
            "{error}"
        );
        let found = findings(&store).await;
        assert!(found.len() == 1 && found[0].0 == Severity::Danger, "{found:?}");
    }
}

/// If `-wal` or `-shm` is deleted, the next process creates another one, and shares no lock with earlier processes.
#[tokio::test]
async fn deleting_a_file_loses_every_claim() {
    for suffix in ["", "-wal", "-shm"] {
        let (_dir, path) = temp_lock_file();
        let mut client = TestClient::new(open(&path).await.unwrap());
        client.lock("k").await;
        fs::remove_file(sibling(&path, suffix)).unwrap();
        let (_, refused) = client.acquire("k", |_| {}).await;
        let error = refused.expect_err("the file is gone");
        assert!(
            error.fault() == Fault::Store && error.to_string().contains("deleted"),
            "{suffix}: {error}"
        );
        assert!(
            !sibling(&path, suffix).exists(),
            "{suffix}: no other file is made in its place unasked"
        );
    }
}

/// While the system refuses to look the file up, it does not count as replaced.
#[tokio::test]
async fn a_file_that_cannot_be_looked_up_keeps_its_claims() {
    let (dir, path) = temp_lock_file();
    set_mode(dir.path(), 0o777);
    let mut other = as_another_user(&path, "child_renews_on_demand");
    assert_eq!(other.read_line(), "locked");
    for (mode, reply) in [(0, "unknown"), (0o777, "alive")] {
        set_mode(dir.path(), mode);
        other.write_line("renew");
        assert_eq!(other.read_line(), reply, "{mode:o}");
    }
}

#[test]
fn child_renews_on_demand() {
    child("child_renews_on_demand", async |role| {
        let mut client = role.client().await;
        let claim = client.lock("k").await;
        role.print("locked");
        while role.read_line() == "renew" {
            role.print(match client.renew(&claim).await {
                RenewReply::Alive { .. } => "alive",
                RenewReply::Gone(_) => "gone",
                RenewReply::Unknown(_) => "unknown",
            });
        }
    });
}

/// Changes the machine in the file, and leaves the change in the log, as a killed process does.
fn set_machine(path: &Path) {
    let file = connect(path);
    file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
        .unwrap();
    file.execute("UPDATE store SET machine = 'another'", []).unwrap();
}

/// R12: tokens continue to rise after a restart of the machine.
#[tokio::test]
async fn a_restart_ends_claims_but_keeps_tokens() {
    let (_dir, path) = temp_lock_file();
    let mut client = TestClient::new(open(&path).await.unwrap());
    let before = client.token("k").await;
    // Simulates a restart: the clock starts again, so times written before are further ahead.
    let later = "UPDATE claim SET written_at = written_at + 1000000000, expires_at = expires_at + 1000000000, \
                 forget_at = forget_at + 1000000000";
    connect(&path).execute_batch(later).unwrap();
    let mut client = TestClient::new(open(&path).await.unwrap());
    assert!(client.token("k").await > before);
    let mut third = TestClient::new(open(&path).await.unwrap());
    assert!(!third.try_lock("k").await, "claims of this boot are not dead");
}

#[tokio::test]
async fn examine_finds_a_file_that_others_can_use() {
    let (dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    assert_eq!(findings(&store).await, [], "a fresh file is in order");
    for (bits, severity) in [(0o644, Severity::Warning), (0o622, Severity::Danger)] {
        set_mode(&path, bits);
        let found = findings(&store).await;
        assert!(found.len() == 1 && found[0].0 == severity, "{found:?}");
    }
    set_mode(&path, 0o600);
    set_mode(dir.path(), 0o777);
    let found = findings(&store).await;
    assert!(found.len() == 1 && found[0].1.contains("directory"), "{found:?}");
}

#[tokio::test]
async fn examine_finds_a_sqlite_that_may_damage_the_file() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let found = store.examine().await.expect("the store can be examined");
    let is_found = found.iter().any(|found| {
        found.severity == Severity::Danger && found.what.contains("https://sqlite.org/wal.html#walresetbug")
    });
    let version = rusqlite::version_number();
    let is_old = version < 3_051_003 && ![3_044_006, 3_050_007].contains(&version);
    assert_eq!(is_found, is_old, "{version}: {found:?}");
}

#[tokio::test]
async fn examine_finds_foreign_tables_and_another_machine() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let made = connect(&path).execute_batch("CREATE TABLE notes (text TEXT)");
    made.unwrap();
    set_machine(&path);
    let found = findings(&store).await;
    let severities: Vec<Severity> = found.iter().map(|(severity, _)| *severity).collect();
    assert_eq!(severities, [Severity::Warning, Severity::Danger], "{found:?}");
}

/// R32: keys that are no longer used leave no row behind.
#[tokio::test]
async fn unused_keys_leave_no_row_behind() {
    let (_dir, path) = temp_lock_file();
    let clock = ManualClock::new();
    let store = sqlite::open(Some(path.clone()), Arc::new(clock.clone()))
        .await
        .unwrap();
    let mut client = TestClient::new(store);
    for n in 0..600 {
        let claim = client.lock(&format!("key {n}")).await;
        // Every third holder never releases its claim.
        if n % 3 != 0 {
            client.unlock(&claim).await;
        }
    }
    clock.advance(Duration::from_secs(60 + 11));
    for _ in 0..600 {
        let claim = client.lock("the last key").await;
        client.unlock(&claim).await;
    }
    let file = connect(&path);
    let others = "SELECT count(*) FROM claim WHERE key <> 'the last key'";
    assert_eq!(number(&file, others), 0);
    clock.advance(Duration::from_secs(11));
    for _ in 0..600 {
        let claim = client.lock("the last key").await;
        client.unlock(&claim).await;
    }
    let dead = format!(
        "SELECT count(*) FROM claim WHERE forget_at <= {}",
        clock.now().as_nanos()
    );
    assert_eq!(
        number(&file, &dead),
        0,
        "what has ended is forgotten, also on a key that is used all the time"
    );
}
