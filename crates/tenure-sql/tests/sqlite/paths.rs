//! Unusual paths and files: each of them either works, or is refused with a message and left unchanged.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use rusqlite::Connection;
use tenure_backend::{Backend, BackendError, Claim, Effect, Fairness, Severity};

use crate::fixture::{TestClient, child, findings, open, sibling, spawn, temp_lock_file};

/// Opens a path that must be refused, and returns the error's message.
async fn open_refused(path: &Path) -> String {
    let error: BackendError = open(path).await.expect_err("the path is refused");
    assert_eq!(error.effect(), Effect::None, "{error}");
    error.to_string()
}

/// Opens a path that must work, takes a lock and closes the file.
async fn assert_works(path: &Path) {
    let store = open(path).await.expect("the path can be used for a lock file");
    TestClient::new(store.clone()).lock("k").await;
    store.close().await.expect("the file is closed");
}

/// Messages of an error and its causes.
fn messages(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(|error| format!("{error}|")).collect()
}

#[tokio::test]
async fn control_characters_in_a_path_are_escaped() {
    let (dir, _) = temp_lock_file();
    let path = dir.path().join("a\n\u{1b}[2J\u{202e}b.db");
    let check = |text: &str| {
        assert!(
            !text.contains(|c: char| c.is_control() || c == '\u{202e}'),
            "{text:?}"
        );
        assert!(text.contains("a\\n\\u{1b}[2J\\u{202e}b.db"), "{text:?}");
    };
    assert_works(&path).await;
    let store = open(&path).await.unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let found = findings(&store).await;
    assert_eq!(found.len(), 1, "{found:?}");
    check(&found[0].1);
    let mut client = TestClient::new(store);
    client.lock("other").await;
    fs::remove_file(&path).unwrap();
    let (_, lost) = client.acquire("k", |_| {}).await;
    check(&messages(&lost.expect_err("the file is gone")));
    fs::write(&path, "no database").unwrap();
    check(&messages(&open(&path).await.expect_err("it is no database")));
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    check(&messages(&open(&path).await.expect_err("it is a directory")));
    let nowhere = open(&path.join("none/locks.db")).await;
    check(&messages(&nowhere.expect_err("it lies nowhere")));
}

#[tokio::test]
async fn a_dangling_link_is_refused() {
    let (dir, path) = temp_lock_file();
    for target in ["missing.db", "missing/locks.db"] {
        let link = dir.path().join("link.db");
        symlink(dir.path().join(target), &link).unwrap();
        let text = open_refused(&link).await;
        assert!(text.contains("is a link to nothing"), "{text}");
        assert!(
            !dir.path().join(target).exists(),
            "nothing was made that was not asked for"
        );
        fs::remove_file(&link).unwrap();
    }
    symlink(&path, &path).unwrap();
    open_refused(&path).await;
}

#[tokio::test]
async fn a_path_to_no_regular_file_is_refused() {
    let (dir, file) = temp_lock_file();
    fs::write(&file, "").unwrap();
    let (pipe, missing) = (dir.path().join("pipe"), dir.path().join("missing"));
    let made = Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    for (path, words) in [
        (dir.path(), "is a directory"),
        (&missing.join("locks.db"), "does not exist"),
        (&missing.join(""), "names no file"),
        (&file.join("locks.db"), "no directory"),
        (&pipe, "no regular file"),
        (Path::new("/dev/null"), "no regular file"),
        (&dir.path().join("n".repeat(300)), "too long"),
    ] {
        let text = open_refused(path).await;
        let name = path.file_name().expect("they have names").to_string_lossy();
        assert!(text.contains(words) && text.contains(&*name), "{text}");
    }
    assert!(!missing.exists(), "no directory is made that was not asked for");
}

#[tokio::test]
async fn a_path_may_be_any_bytes_up_to_the_maximum_length() {
    let (dir, _) = temp_lock_file();
    for name in [
        &b"\xFF\xFE.db"[..],
        b"a%20b?c#d.db",
        "schlüssel \u{1F511}.db".as_bytes(),
    ] {
        assert_works(&dir.path().join(OsStr::from_bytes(name))).await;
    }
    let long = |length: usize| -> PathBuf {
        let mut deep = fs::canonicalize(dir.path()).unwrap();
        while deep.as_os_str().len() + 102 < length {
            deep.push("d".repeat(99));
        }
        fs::create_dir_all(&deep).unwrap();
        let rest = length - deep.as_os_str().len() - 1;
        deep.join("f".repeat(rest))
    };
    assert_works(&long(500)).await;
    let text = open_refused(&long(501)).await;
    assert!(text.contains("501 bytes"), "{text}");
}

/// The files have the application id of a lock file, but tables of another program, or not all tables.
#[tokio::test]
async fn foreign_tables_with_our_application_id_are_refused() {
    let ours = "CREATE TABLE store (id INTEGER PRIMARY KEY, format, machine, clock_offset);
        INSERT INTO store VALUES (1, 1, '', 0);";
    let others = format!("{ours} CREATE TABLE token_counter (text); CREATE TABLE claim (key, text)");
    for tables in [
        "CREATE TABLE notes (text)",
        "CREATE TABLE claim (key, text)",
        ours,
        &others,
    ] {
        let (_dir, path) = temp_lock_file();
        let theirs = Connection::open(&path).unwrap();
        theirs.pragma_update(None, "application_id", 0x5445_4E55).unwrap();
        theirs.execute_batch(tables).unwrap();
        drop(theirs);
        let before = fs::read(&path).unwrap();
        let text = open_refused(&path).await;
        assert!(text.contains("another program"), "{text}");
        assert!(
            fs::read(&path).unwrap() == before,
            "{tables}: the file is left as it was"
        );
    }
}

/// If the end of the write-ahead log is cut off, only the commits after the cut are lost.
#[tokio::test]
async fn a_truncated_log_loses_only_its_end() {
    let (dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let mut client = TestClient::new(store.clone());
    for n in 0..20 {
        client.lock(&format!("k{n}")).await;
    }
    let copy = dir.path().join("copy.db");
    let log = sibling(&copy, "-wal");
    for lost in [7, 10_000, fs::metadata(sibling(&path, "-wal")).unwrap().len() - 7] {
        for suffix in ["", "-wal"] {
            let mut copying = Command::new("cp");
            copying
                .arg("-p")
                .args([sibling(&path, suffix), sibling(&copy, suffix)]);
            assert!(copying.status().unwrap().success());
        }
        let file = fs::OpenOptions::new().write(true).open(&log).unwrap();
        file.set_len(file.metadata().unwrap().len() - lost).unwrap();
        let store = open(&copy).await.expect("the rest of the log is intact");
        assert_eq!(findings(&store).await, []);
        store.close().await.unwrap();
    }
}

#[tokio::test]
#[cfg(target_os = "linux")]
async fn examine_finds_a_file_in_memory() {
    let dir = tempfile::tempdir_in("/dev/shm").expect("Linux has a file system in memory");
    let store = open(&dir.path().join("locks.db")).await.unwrap();
    let found = store.examine().await.unwrap();
    let memory = |found: &&tenure_backend::Finding| found.what.contains("in memory");
    let severity = found.iter().find(memory).map(|found| found.severity);
    assert_eq!(severity, Some(Severity::Warning));
}

#[test]
fn examine_finds_a_second_default_file() {
    let (dir, _) = temp_lock_file();
    let (home, state) = (dir.path().join("home"), dir.path().join("state"));
    let other = home.join(".local/state/tenure");
    fs::create_dir_all(&other).unwrap();
    let examines = || {
        spawn(
            "child_examines_the_default_file",
            &[("XDG_STATE_HOME", &state), ("HOME", &home)],
        )
    };
    assert_eq!(examines().read_line(), "examined");
    fs::write(other.join("locks.db"), "").unwrap();
    assert!(examines().read_line().contains("another lock file"));
}

#[test]
fn child_examines_the_default_file() {
    child("child_examines_the_default_file", async |role| {
        let path = tenure_sql::sqlite::default_path().unwrap();
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let found = findings(&open(&path).await.unwrap()).await;
        found.iter().for_each(|(_, what)| role.print(what));
        role.print("examined");
    });
}

/// A limit on the size of a child's files simulates a disk that fails. The child's error says so, and earlier commits
/// stay.
#[tokio::test]
async fn a_failed_write_is_reported_and_the_file_stays_intact() {
    let (_dir, path) = temp_lock_file();
    let store = open(&path).await.unwrap();
    let before = TestClient::new(store.clone()).token("k").await;
    store.close().await.unwrap();
    let env: &crate::fixture::Env<'_> = &[("FILE", &path), ("KIBIBYTES", &"64")];
    let child = spawn("child_writes_until_it_fails", env);
    let text = child.read_line();
    let words = ["locks.db", "check its disk"];
    assert!(words.iter().all(|word| text.contains(word)), "{text}");
    assert_eq!(child.read_line(), "refused again");
    drop(child);
    let store = open(&path).await.expect("the file is intact");
    assert_eq!(findings(&store).await, []);
    let mut client = TestClient::new(store);
    assert!(!client.try_lock("k").await, "what was held before is held");
    assert!(client.token("another").await > before);
}

#[test]
fn child_writes_until_it_fails() {
    child("child_writes_until_it_fails", async |role| {
        let mut client = role.client().await;
        let fair = |claim: &mut Claim| claim.fairness = Fairness::Fifo;
        let error = loop {
            if let (_, Err(error)) = client.acquire("of the child", fair).await {
                break error;
            }
        };
        role.print(&error.to_string());
        let (_, again) = client.acquire("another", |_| {}).await;
        again.expect_err("it still cannot write");
        role.print("refused again");
    });
}
