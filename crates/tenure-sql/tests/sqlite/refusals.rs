//! Which files are refused as lock files. A refused file and its folder are left as they were.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use rusqlite::config::DbConfig;
use tenure_backend::{BackendError, Effect, Fault};

use crate::fixture::{child, connect, create_lock_file, open, sibling, spawn_on, temp_lock_file};

/// Opens a file that must be refused. Checks that the file and its folder are unchanged, and that the error names the
/// file and says what to do.
async fn refused(path: &Path) -> BackendError {
    let before = folder_of(path);
    let error = open(path).await.expect_err("the file is refused");
    assert!(folder_of(path) == before, "{error}: the file is left as it was");
    assert_eq!(error.effect(), Effect::None, "{error}");
    let text = error.to_string();
    let name = path.file_name().expect("test files have names").to_string_lossy();
    assert!(text.contains(&*name), "the error names the file: {text}");
    assert!(text.contains(": "), "the error says what to do: {text}");
    error
}

/// The names in the folder of a file, with the contents of each file. Without those of `-shm`, which every reader of a
/// log changes.
fn folder_of(path: &Path) -> BTreeMap<PathBuf, Option<Vec<u8>>> {
    let entries = fs::read_dir(path.parent().expect("a folder")).expect("it can be listed");
    let entries = entries.map(|entry| entry.expect("it can be listed").path());
    let is_index = |path: &Path| path.to_string_lossy().ends_with("-shm");
    entries
        .map(|path| {
            let contents = if is_index(&path) { None } else { contents(&path) };
            (path, contents)
        })
        .collect()
}

/// Contents of a file. Another process (`cat`) reads them, because closing the file here would drop the POSIX
/// locks of this process.
fn contents(path: &Path) -> Option<Vec<u8>> {
    let read = std::process::Command::new("cat")
        .arg(path)
        .output()
        .expect("cat can be run");
    read.status.success().then_some(read.stdout)
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused() {
    let (_dir, path) = temp_lock_file();
    for garbage in [
        &b"hello"[..],
        &[0; 4096],
        &[0xFF; 100_000],
        b"SQLite format 3\0 and then nothing of the kind",
    ] {
        fs::write(&path, garbage).unwrap();
        assert_eq!(refused(&path).await.fault(), Fault::Store);
        assert!(!sibling(&path, "-wal").exists() && !sibling(&path, "-shm").exists());
    }
}

#[tokio::test]
async fn a_damaged_lock_file_is_refused() {
    let (_dir, path) = temp_lock_file();
    create_lock_file(&path).await;
    // Reading and closing the file moves the log into it.
    let file = Connection::open(&path).unwrap();
    file.query_row("SELECT count(*) FROM claim", [], |_| Ok(()))
        .unwrap();
    drop(file);
    let sound = fs::read(&path).unwrap();
    let page = 4096;
    let mut torn = sound.clone();
    torn[3 * page..4 * page].fill(0xA5);
    let mut headless = sound.clone();
    headless[100..page].fill(0);
    for damaged in [
        torn,
        headless,
        sound[..sound.len() - page].to_vec(),
        sound[..page / 2].to_vec(),
    ] {
        fs::write(&path, damaged).unwrap();
        let error = refused(&path).await;
        assert_eq!(error.fault(), Fault::Store);
        assert!(error.to_string().contains("damaged"), "{error}");
    }
    fs::write(&path, sound).unwrap();
    open(&path).await.expect("an intact file opens");
}

/// The application has its own database open in this process, with commits only in its log. Refusing that database
/// must neither checkpoint the log nor drop the application's locks.
#[tokio::test]
async fn a_database_of_another_program_keeps_its_locks() {
    for journal in ["WAL", "DELETE"] {
        let (_dir, path) = temp_lock_file();
        let theirs = Connection::open(&path).unwrap();
        theirs.pragma_update(None, "journal_mode", journal).unwrap();
        theirs
            .execute_batch("CREATE TABLE notes (text TEXT); INSERT INTO notes VALUES ('mine')")
            .unwrap();
        theirs.execute_batch("BEGIN IMMEDIATE").unwrap();
        let log = contents(&sibling(&path, "-wal"));
        let error = refused(&path).await;
        assert!(error.to_string().contains("another program"), "{error}");
        assert_eq!(contents(&sibling(&path, "-wal")), log);
        let stranger = spawn_on(&path, "child_tries_to_write").read_line();
        assert_eq!(
            stranger, "busy",
            "{journal}: the other program still has its lock"
        );
        theirs
            .execute_batch("COMMIT; INSERT INTO notes VALUES ('still mine')")
            .unwrap();
    }
}

#[test]
fn child_tries_to_write() {
    child("child_tries_to_write", async |role| {
        let file = Connection::open(role.var("FILE")).unwrap();
        file.busy_timeout(Duration::ZERO).unwrap();
        let begun = file.execute_batch("BEGIN IMMEDIATE");
        role.print(if begun.is_ok() { "free" } else { "busy" });
    });
}

/// SQLite keeps a separate log for each name of a file, so holders under two names would not exclude each other.
#[tokio::test]
async fn a_file_with_two_names_is_refused_by_either_name() {
    let (dir, path) = temp_lock_file();
    let open_before = open(&path).await.unwrap();
    let other = dir.path().join("other.db");
    fs::hard_link(&path, &other).unwrap();
    for name in [&path, &other] {
        let error = refused(name).await.to_string();
        assert!(error.contains("has 2 names (hard links)"), "{error}");
    }
    assert!(!dir.path().join("other.db-wal").exists(), "it was not touched");
    fs::remove_file(&other).unwrap();
    open(&path).await.unwrap();
    drop(open_before);
}

/// The state in which the last program has left a lock file.
#[derive(Clone, Copy, Debug)]
enum Left {
    WithItsLog,
    WithoutALog,
    InAnotherJournalMode,
}

/// Changes a lock file by an SQL statement, and leaves the file in this state.
fn change_and_leave(path: &Path, statement: &str, left: Left) {
    let file = connect(path);
    file.execute_batch(statement).unwrap();
    match left {
        Left::WithItsLog => {
            file.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)
                .unwrap();
        }
        Left::WithoutALog => {}
        Left::InAnotherJournalMode => file.pragma_update(None, "journal_mode", "DELETE").unwrap(),
    }
    drop(file);
    let has_log = matches!(left, Left::WithItsLog);
    assert_eq!(sibling(path, "-wal").exists(), has_log, "{left:?}");
}

#[tokio::test]
async fn a_refused_file_and_its_folder_are_left_as_they_were() {
    for left in [Left::WithItsLog, Left::WithoutALog, Left::InAnotherJournalMode] {
        for (statement, word) in [
            ("UPDATE store SET format = 2", "later version"),
            ("UPDATE store SET machine = 'another'", "another machine"),
            (
                "ALTER TABLE claim RENAME COLUMN forget_at TO forget",
                "another program",
            ),
            ("ALTER TABLE store RENAME COLUMN id TO one", "another program"),
        ] {
            let (_dir, path) = temp_lock_file();
            create_lock_file(&path).await;
            change_and_leave(&path, statement, left);
            let error = refused(&path).await.to_string();
            assert!(error.contains(word), "{left:?}: {error}");
        }
    }
}

/// A file without a write-ahead log, with the times of another clock, is in use by a reader.
#[tokio::test]
async fn a_file_in_use_on_another_clock_keeps_its_journal_mode() {
    let (_dir, path) = temp_lock_file();
    create_lock_file(&path).await;
    let other_clock = "UPDATE store SET clock_offset = clock_offset + 1000";
    change_and_leave(&path, other_clock, Left::InAnotherJournalMode);
    let reader = connect(&path);
    reader.execute_batch("BEGIN; SELECT count(*) FROM claim").unwrap();
    let error = refused(&path).await.to_string();
    assert!(error.contains("time namespace"), "{error}");
    drop(reader);
    open(&path).await.expect("the times are converted");
}
