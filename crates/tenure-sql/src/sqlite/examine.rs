//! `examine`: reports what weakens the locks of a file, each with its consequence. Repairs nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tenure_backend::{BackendError, Effect, Finding, escape_control};

use super::config::Config;
use super::ddl::COUNTERS;
use super::file::mode;
use super::names::display_path;
use super::origin::Origin;
use super::siblings::with_siblings;
use super::{adopt, busy, connection, error, file, file_system, paths, sharing, validate, write_lock};

/// Time for which another process may keep the write lock before it is reported. Far longer than a transaction.
pub(super) const WRITE_LOCK_LIMIT: Duration = Duration::from_secs(1);

/// Free bytes on the disk below which `examine` warns: the log needs 4 MiB, and the file some more.
const SPACE_WARNING: u64 = 64 << 20;
const SPACE_DANGER: u64 = 8 << 20;

/// Finding that the file was deleted or replaced while it was open. `error` is the result of the check.
pub(super) fn replaced(error: &BackendError) -> Vec<Finding> {
    vec![Finding::danger(
        error.to_string(),
        "processes that use the old and the new file do not exclude each other",
    )]
}

pub(super) fn unusable(error: &BackendError) -> Vec<Finding> {
    vec![Finding::danger(
        error.to_string(),
        "no lock can be had as long as this lasts",
    )]
}

/// Reports what weakens the locks of an open file. `write_lock_is_free`: this process could take SQLite's write lock
/// within [`WRITE_LOCK_LIMIT`].
pub(super) fn examine(
    path: &Path,
    connection: &Connection,
    config: &Config,
    write_lock_is_free: bool,
) -> Vec<Finding> {
    let mut findings = examine_file(path, config);
    if !write_lock_is_free {
        findings.push(write_lock_kept(path));
    }
    busy::set_deadline(Instant::now(), config.busy_limit);
    let checked =
        check_journal(connection, &mut findings).and_then(|()| check_database(connection, &mut findings));
    if let Err(error) = checked {
        findings.extend(unusable(&error::sqlite(path, error, Effect::None)));
    }
    findings
}

/// Reports what weakens the locks of a file, without a look inside.
pub(super) fn examine_file(path: &Path, config: &Config) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mode = config.mode_of_new_file();
    check_permissions(path, mode, &mut findings);
    check_mode(path, mode, &mut findings);
    let owners = [file::owner(path), path.parent().and_then(file::owner)];
    check_owners(
        path,
        mode,
        owners,
        rustix::process::geteuid().as_raw(),
        &mut findings,
    );
    if let Ok(space) = rustix::fs::statvfs(path) {
        check_disk_space(path, space.f_bavail.saturating_mul(space.f_frsize), &mut findings);
    }
    if file_system::is_memory(path) {
        findings.push(Finding::warning(
            format!("{} is on a file system in memory", display_path(path)),
            "a restart of the machine takes the file, and fencing tokens then rise only if the system clock does",
        ));
    }
    if let Some(bug) = connection::wal_reset_bug(rusqlite::version_number()) {
        findings.push(Finding::danger(
            bug,
            "claims may be missing from a damaged file, so that two can hold one lock: use SQLite 3.51.3 or later, \
             such as by the feature `sqlite-bundled`, unless your system has corrected its own SQLite",
        ));
    }
    if paths::default_path().is_ok_and(|default| file::inode(&default).ok() == file::inode(path).ok())
        && let Some(other) = paths::shadowed_path()
    {
        findings.push(Finding::warning(
            format!(
                "there is another lock file at {}, used where XDG_STATE_HOME is not set",
                display_path(&other)
            ),
            "programs that use one do not exclude those that use the other",
        ));
    }
    findings
}

/// Reports permissions beyond `allowed`, the mode that the settings ask for. Users who may write the file must be able
/// to write the directory too, where SQLite creates its files.
fn check_permissions(path: &Path, allowed: u32, findings: &mut Vec<Finding>) {
    let safe = match allowed {
        0o600 => "0600 is safe".to_owned(),
        allowed => format!("{allowed:04o} is asked for"),
    };
    for file in with_siblings(path) {
        let Some(mode) = mode(&file) else { continue };
        let name = display_path(&file);
        if mode & !allowed & 0o022 != 0 {
            findings.push(Finding::danger(
                format!("other users can write {name} (mode {mode:04o}; {safe})"),
                "they can free or take every lock in it, or stop all who use it",
            ));
        } else if mode & !allowed & 0o044 != 0 {
            findings.push(Finding::warning(
                format!("other users can read {name} (mode {mode:04o}; {safe})"),
                "they see the names of all locks and who holds them, and can keep the file busy",
            ));
        }
    }
    let Some(directory) = path.parent() else { return };
    // With the sticky bit, as in /tmp, users cannot replace files of other users.
    if mode(directory).is_some_and(|mode| mode & !allowed & 0o022 != 0 && mode & 0o1000 == 0) {
        findings.push(Finding::danger(
            format!("other users can write the directory {}", display_path(directory)),
            "they can replace the lock file, and then two can hold one lock",
        ));
    }
}

/// Reports files that lack permissions of the mode that the settings ask for.
fn check_mode(path: &Path, wanted: u32, findings: &mut Vec<Finding>) {
    if let Some(problem) = sharing::lacking_mode(path, wanted) {
        findings.push(Finding::warning(
            problem,
            "users who have access by the missing permissions cannot lock",
        ));
    }
}

/// Reports a file or directory of another user, because its owner can change or replace it, whatever its permissions.
/// Does not report root, which can replace any file, nor the owner of a file that other users shall write.
fn check_owners(
    path: &Path,
    allowed: u32,
    [file, directory]: [Option<u32>; 2],
    us: u32,
    findings: &mut Vec<Finding>,
) {
    let stranger = |owner: &u32| ![us, 0].contains(owner);
    if let Some(owner) = file.filter(|owner| stranger(owner) && allowed & 0o022 == 0) {
        findings.push(Finding::warning(
            format!(
                "{} belongs to another user ({owner}, this is {us})",
                display_path(path)
            ),
            "that user can free or take every lock in it, and decides who else can",
        ));
    }
    if let Some(owner) = directory.filter(stranger) {
        findings.push(Finding::warning(
            format!(
                "the directory of {} belongs to another user ({owner}, this is {us})",
                display_path(path)
            ),
            "that user can replace the lock file, and then two can hold one lock",
        ));
    }
}

fn check_disk_space(path: &Path, free: u64, findings: &mut Vec<Finding>) {
    let finding = match free {
        0..SPACE_DANGER => Finding::danger,
        SPACE_DANGER..SPACE_WARNING => Finding::warning,
        _ => return,
    };
    findings.push(finding(
        format!("the disk of {} has {} MiB left", display_path(path), free >> 20),
        "once it is full no lock can be taken or renewed, and held ones are lost with their leases",
    ));
}

/// Finding that a process keeps SQLite's write lock, for example one that is stopped within a transaction.
fn write_lock_kept(path: &Path) -> Finding {
    let who = write_lock::owner(path).map_or_else(
        || "a process that cannot be identified".to_owned(),
        |owner| owner.describe(),
    );
    Finding::danger(
        format!("{} is kept busy by {who}", display_path(path)),
        "no process can take, renew or free a lock until then",
    )
}

/// Reports a journal mode other than WAL.
fn check_journal(connection: &Connection, findings: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let journal: String = connection.query_row("PRAGMA journal_mode", [], |row| row.get(0))?;
    if journal != "wal" {
        findings.push(Finding::danger(
            format!("the file keeps its journal as {journal:?}, not as \"wal\": another program changed it"),
            "a lock that was just taken may be forgotten when the power fails",
        ));
    }
    Ok(())
}

/// Reports faults inside the database: damage, foreign tables, lost counters, another machine or clock.
pub(super) fn check_database(connection: &Connection, findings: &mut Vec<Finding>) -> rusqlite::Result<()> {
    let sound: String = connection.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if sound != "ok" {
        findings.push(Finding::danger(
            format!("the file is damaged: {}", escape_control(&sound)),
            "claims may be missing, so that two can hold one lock: move the file away",
        ));
    }
    for name in foreign_tables(connection)? {
        findings.push(Finding::warning(
            format!("there is a table or trigger {name:?} in the file that is not ours"),
            "another program writes to this file, and may keep it busy or change claims",
        ));
    }
    let gone = COUNTERS.saturating_sub(counters(connection)?);
    if gone > 0 {
        findings.push(Finding::danger(
            format!(
                "{gone} of the {COUNTERS} counters of fencing tokens are gone: another program removed them"
            ),
            "no lock can be had whose tokens they count: move the file away",
        ));
    }
    let there = adopt::origin(connection)?;
    let here = match Origin::here() {
        Ok(here) => here,
        Err(error) => {
            findings.push(Finding::danger(
                format!("the origin of this process's clock cannot be read: {error}"),
                "no process that is in the same state can open the file",
            ));
            return Ok(());
        }
    };
    if here != there {
        findings.push(Finding::danger(
            "the file says that its claims are of another machine or time namespace",
            "their leases are counted on another clock, so two can hold one lock: connect again",
        ));
    }
    Ok(())
}

/// Number of token counters that still exist.
fn counters(connection: &Connection) -> rusqlite::Result<u64> {
    let count = "SELECT count(*) FROM token_counter WHERE number BETWEEN 0 AND ?1 - 1";
    connection.query_row(count, [COUNTERS.cast_signed()], |row| {
        row.get::<_, i64>(0).map(i64::cast_unsigned)
    })
}

fn foreign_tables(connection: &Connection) -> rusqlite::Result<Vec<String>> {
    let mut names =
        connection.prepare("SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")?;
    let names: Vec<String> = names.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let ours = |name: &String| validate::TABLE_NAMES.contains(&name.as_str());
    Ok(names.into_iter().filter(|name| !ours(name)).collect())
}

#[cfg(test)]
mod tests {
    use tenure_backend::Severity;

    use super::*;
    use crate::sqlite::tests::create_file;

    fn found(look: impl FnOnce(&mut Vec<Finding>)) -> Vec<(Severity, String)> {
        let mut findings = Vec::new();
        look(&mut findings);
        let summary = |found: Finding| (found.severity, found.what);
        findings.into_iter().map(summary).collect()
    }

    #[test]
    fn a_disk_that_is_nearly_full_is_found() {
        let path = Path::new("locks.db");
        let severity = |free| {
            let found = found(|findings| check_disk_space(path, free, findings));
            found.first().map(|(severity, _)| *severity)
        };
        assert_eq!(severity(SPACE_WARNING), None);
        assert_eq!(severity(SPACE_WARNING - 1), Some(Severity::Warning));
        assert_eq!(severity(SPACE_DANGER - 1), Some(Severity::Danger));
    }

    #[test]
    fn a_file_or_directory_of_another_user_is_found() {
        let whose =
            |owners| found(|findings| check_owners(Path::new("locks.db"), 0o600, owners, 1000, findings));
        // The file is our own, and its directory is root's.
        assert_eq!(whose([Some(1000), Some(0)]), []);
        for owners in [[Some(1001), Some(1000)], [Some(1000), Some(1001)]] {
            let found = whose(owners);
            let is_reported =
                found.len() == 1 && found[0].0 == Severity::Warning && found[0].1.contains("1001");
            assert!(is_reported, "{found:?}");
        }
    }

    #[test]
    fn changes_by_another_program_are_found() {
        for (change, words) in [
            ("PRAGMA journal_mode = DELETE", "\"delete\""),
            ("DELETE FROM token_counter WHERE number > 60", "3 of the 64 "),
        ] {
            let (_dir, _, file) = create_file(&Origin::here().expect("/proc can be read"));
            let found_inside = || {
                found(|findings| {
                    check_journal(&file, findings).expect("it can be read");
                    check_database(&file, findings).expect("it can be read");
                })
            };
            assert_eq!(found_inside(), []);
            file.execute_batch(change).expect("no other process has it open");
            let found = found_inside();
            let is_reported =
                found.len() == 1 && found[0].0 == Severity::Danger && found[0].1.contains(words);
            assert!(is_reported, "{change}: {found:?}");
        }
    }
}
