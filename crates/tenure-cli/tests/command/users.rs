//! Two users of one lock file: root and `nobody`. Only root can start a command as another user.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::fixture::{Done, Fixture, Process};

const NOBODY: u32 = 65_534;
/// A user that has no other process.
const LONELY: u32 = 54_323;
/// A group ID that no user has.
const GROUP: u32 = 54_321;

/// Returns whether this process can start commands as another user. Prints a message if not.
fn is_root() -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        eprintln!("not tried: only root can start commands as another user");
    }
    is_root
}

/// A directory in which all users may create files, and a program that all users can start.
struct Shared {
    fixture: Fixture,
    program: PathBuf,
}

impl Shared {
    fn new() -> Shared {
        let fixture = Fixture::new();
        set_mode(fixture.folder.path(), 0o755);
        fs::create_dir(fixture.path("shared")).expect("the folder is ours");
        set_mode(&fixture.path("shared"), 0o777);
        // Other users may not be able to enter the folder of the built program. Another process copies it: a program that
        // is open for writing cannot be started, and a child of another test could inherit the open file.
        let program = fixture.path("tenure");
        let copied = Command::new("cp")
            .args([env!("CARGO_BIN_EXE_tenure").as_ref(), program.as_path()])
            .status();
        assert!(copied.is_ok_and(|status| status.success()));
        set_mode(&program, 0o755);
        Shared { fixture, program }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.fixture.path("shared").join(name)
    }

    /// Prepares a call of `tenure` on `l.db` with this query, in a shell with this umask.
    fn command(&self, umask: &str, query: &str, args: &[&str]) -> Command {
        let mut command = Command::new("sh");
        let url = format!("sqlite:{}{query}", self.path("l.db").display());
        let script = format!("umask {umask}; exec \"$0\" --url \"$@\"");
        command
            .args(["-c", &script])
            .arg(&self.program)
            .arg(url)
            .args(args);
        command.env_remove("TENURE_URL").current_dir("/");
        command
    }

    fn as_root(&self, query: &str, args: &[&str]) -> Done {
        Done::by(&mut self.command("022", query, args))
    }

    fn as_nobody(&self, query: &str, args: &[&str]) -> Done {
        // The standard library drops root's groups.
        Done::by(self.command("022", query, args).uid(NOBODY).gid(NOBODY))
    }

    /// Modes of the lock file, its `-wal` and its `-shm`.
    fn modes(&self) -> [u32; 3] {
        ["l.db", "l.db-wal", "l.db-shm"].map(|name| mode(&self.path(name)))
    }

    fn set_modes(&self, mode: u32) {
        for name in ["l.db", "l.db-wal", "l.db-shm"] {
            set_mode(&self.path(name), mode);
        }
    }

    /// The names and owners of the files in the directory.
    fn owners(&self) -> Vec<(String, u32)> {
        let files = fs::read_dir(self.fixture.path("shared")).expect("it can be listed");
        let mut owners: Vec<(String, u32)> = files
            .map(|file| {
                let file = file.expect("it can be listed");
                let owner = file.metadata().expect("it is there").uid();
                (file.file_name().to_string_lossy().into_owned(), owner)
            })
            .collect();
        owners.sort();
        owners
    }
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).expect("it is there").mode() & 0o7777
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("root may do that");
}

/// Checks that the command failed with a message that has these words, and no text of SQLite's own.
fn assert_refused(done: &Done, code: i32, words: &[&str]) {
    assert_eq!(done.code, code, "{done:?}");
    for word in words {
        assert!(done.stderr.contains(word), "{word} is missing in {done:?}");
    }
    for word in ["immutable", "Error code", "unable to open"] {
        assert!(!done.stderr.contains(word), "{word} in {done:?}");
    }
    let whys = done.stderr.lines().filter(|line| line.contains("= why:"));
    assert_eq!(whys.count(), 1, "{done:?}");
}

const RUN: [&str; 4] = ["run", "k", "--", "true"];

#[test]
fn another_users_file_is_named_with_owner_and_mode() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    assert_eq!(shared.as_root("", &RUN).code, 0);
    let file = shared.path("l.db").display().to_string();
    let state = format!("{file} belongs to root and has mode 0600, so this user cannot write to it");
    let commands = "chgrp GROUP l.db l.db-wal l.db-shm && chmod 0660 l.db l.db-wal l.db-shm";
    let done = shared.as_nobody("", &RUN);
    assert_refused(&done, 125, &[&state, commands, "`?mode=0660`"]);
    assert!(!done.stderr.contains("directory"), "{done:?}");
    assert_refused(
        &shared.as_nobody("", &["ls"]),
        3,
        &["so this user cannot read it", "chmod 0640"],
    );
    // The lock file is open to all, but not its log.
    set_mode(&shared.path("l.db"), 0o666);
    let state = format!("{file}-wal belongs to root and has mode 0600");
    assert_refused(
        &shared.as_nobody("", &RUN),
        125,
        &[&state, "chmod 0666 l.db l.db-wal l.db-shm"],
    );
    shared.set_modes(0o666);
    assert_eq!(shared.as_nobody("", &RUN).code, 0);
}

#[test]
fn a_directory_is_named_only_if_it_is_in_the_way() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    let directory = shared.fixture.path("shared");
    let state = |mode| {
        format!(
            "the directory {} belongs to root and has mode {mode}",
            directory.display()
        )
    };
    set_mode(&directory, 0o755);
    let done = shared.as_nobody("", &RUN);
    assert_refused(
        &done,
        125,
        &[&state("0755"), "cannot create l.db in it", "chmod g+rwxs"],
    );
    assert_eq!(shared.as_root("?mode=0666", &RUN).code, 0);
    assert_eq!(shared.as_nobody("", &RUN).code, 0, "the log is there");
    fs::remove_file(shared.path("l.db-wal")).expect("root may do that");
    let done = shared.as_nobody("", &RUN);
    assert_refused(&done, 125, &[&state("0755"), "cannot create l.db-wal in it"]);
    set_mode(&directory, 0o700);
    for (args, code) in [(&RUN[..], 125), (&["ls"], 3)] {
        assert_refused(
            &shared.as_nobody("", args),
            code,
            &[&state("0700"), "cannot enter it"],
        );
    }
}

#[test]
fn a_new_file_gets_the_mode_of_its_url_whatever_the_umask() {
    for umask in ["000", "022", "077"] {
        for (query, expected) in [("", 0o600), ("?mode=0660", 0o660), ("?mode=644", 0o644)] {
            let shared = Shared::new();
            let done = Done::by(&mut shared.command(umask, query, &RUN));
            assert_eq!((done.code, &*done.stderr), (0, ""), "{umask} {query}");
            assert_eq!(shared.modes(), [expected; 3], "{umask} {query}");
        }
    }
}

#[test]
fn a_mode_that_is_no_file_mode_is_refused_before_the_file_is_created() {
    let shared = Shared::new();
    for wrong in ["", "66", "00660", "0888", "rw", "1660", "0460", "0060"] {
        for (args, code) in [(&RUN[..], 125), (&["ls"], 2)] {
            let done = shared.as_root(&format!("?mode={wrong}"), args);
            assert_refused(&done, code, &["`mode`", "such as `0660`"]);
        }
    }
    assert_eq!(shared.owners(), []);
}

#[test]
fn the_mode_of_an_existing_file_is_kept_and_a_warning_says_chmod() {
    let shared = Shared::new();
    assert_eq!(shared.as_root("", &RUN).code, 0);
    let done = shared.as_root("?mode=0660", &RUN);
    assert_eq!(shared.modes(), [0o600; 3]);
    let words = "l.db has mode 0600, although 0660 is asked for: run `cd ";
    assert!(done.code == 0 && done.stderr.contains(words), "{done:?}");
    assert!(
        done.stderr.contains("&& chmod 0660 l.db l.db-wal l.db-shm`\n"),
        "{done:?}"
    );
    let done = shared.as_root("?mode=0660", &["doctor"]);
    assert!(done.code == 1 && done.stdout.contains(words), "{done:?}");
    shared.set_modes(0o664);
    set_mode(&shared.fixture.path("shared"), 0o770);
    let done = shared.as_root("?mode=0660", &RUN);
    assert_eq!((done.code, &*done.stderr), (0, ""), "more than is asked for");
    shared.set_modes(0o660);
    let done = shared.as_root("?mode=0660", &["doctor"]);
    assert!(!done.stdout.contains("mode"), "what is asked for: {done:?}");
}

/// The guide for users of flock shows these commands.
#[test]
fn users_of_a_group_share_a_file_in_a_directory_of_the_group() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    let directory = shared.fixture.path("shared");
    std::os::unix::fs::chown(&directory, None, Some(GROUP)).expect("root may do that");
    set_mode(&directory, 0o2770);
    // `setpriv` can give a command a group beside its own.
    let run = |user: u32, query: &str| {
        let [user, group] = [user, GROUP].map(|id| id.to_string());
        let own = shared.command("077", query, &RUN);
        let mut run = Command::new("setpriv");
        run.args(["--reuid", &user, "--regid", &user, "--groups", &group])
            .arg(own.get_program())
            .args(own.get_args())
            .env_remove("TENURE_URL")
            .current_dir("/");
        Done::by(&mut run)
    };
    let users = [NOBODY, 54_322, 0];
    for creator in users {
        for user in [creator].into_iter().chain(users) {
            let done = run(user, "?mode=0660");
            assert_eq!((done.code, &*done.stderr), (0, ""), "{creator} {user}");
            assert_eq!(shared.modes(), [0o660; 3], "{creator} {user}");
        }
        // Another user creates the log than the lock file.
        for name in ["l.db-wal", "l.db-shm"] {
            fs::remove_file(shared.path(name)).expect("root may do that");
        }
        for user in users.into_iter().rev() {
            let done = run(user, "?mode=0660");
            assert_eq!((done.code, &*done.stderr), (0, ""), "{creator} {user}");
            assert_eq!(shared.modes(), [0o660; 3], "{creator} {user}");
        }
        for name in ["l.db", "l.db-wal", "l.db-shm"] {
            fs::remove_file(shared.path(name)).expect("root may do that");
        }
    }
}

/// The limit of processes (RLIMIT_NPROC) counts a user's threads too. It does not hold for root.
#[test]
fn a_lack_of_threads_is_reported_as_such() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    let file = format!("sqlite:{}", shared.path("l.db").display());
    let [user, group] = [format!("--reuid={LONELY}"), format!("--regid={LONELY}")];
    for limit in 1..=4 {
        for url in [
            &file,
            "redis://localhost:1",
            "redlock://localhost:1,localhost:2",
            "etcd://localhost:1",
            "zookeeper://localhost:1",
            "postgres://u@localhost:1/d?layout=version",
            "mysql://u@localhost:1/d?layout=version",
        ] {
            let mut run = Command::new("setpriv");
            run.args([&*user, &*group, "--clear-groups", "prlimit"])
                .arg(format!("--nproc={limit}:{limit}"))
                .arg(&shared.program)
                .args(["--url", url, "run", "-n", "k", "--", "true"])
                .env_remove("TENURE_URL")
                .current_dir("/");
            let done = Done::by(&mut run);
            assert!([0, 125, 126].contains(&done.code), "{limit} {url}: {done:?}");
            assert!(!done.stderr.contains("panicked"), "{limit} {url}: {done:?}");
        }
    }
}

/// SQLite gives the log that root creates the owner of the lock file.
#[test]
fn a_log_that_root_creates_belongs_to_the_owner_of_the_file() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    assert_eq!(shared.as_nobody("", &RUN).code, 0);
    for name in ["l.db-wal", "l.db-shm"] {
        fs::remove_file(shared.path(name)).expect("root may do that");
    }
    assert_eq!(shared.as_root("", &RUN).code, 0);
    let owned = ["l.db", "l.db-shm", "l.db-wal"].map(|name| (name.to_owned(), NOBODY));
    assert_eq!(shared.owners(), owned);
    assert_eq!(shared.as_nobody("", &RUN).code, 0);
}

#[test]
fn a_user_without_write_access_can_look_but_not_lock() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    // A killed holder keeps its lock until the lease ends, and no process has the file open.
    let lease = ["hold", "k", "--label", "ann", "--lease", "1h"];
    let holder = Process::start(shared.command("022", "?mode=0644", &lease));
    holder.next("acquired");
    holder.send(Signal::KILL);
    holder.finish();
    for has_log in [true, false] {
        for directory in [0o777, 0o755] {
            set_mode(&shared.fixture.path("shared"), directory);
            let before = shared.owners();
            assert_eq!(before.len(), if has_log { 3 } else { 1 });
            let context = format!("log: {has_log}, directory {directory:o}");
            for args in [&["ls"][..], &["show", "k"], &["--json", "ls"]] {
                let done = shared.as_nobody("", args);
                let is_shown = done.code == 0 && done.stdout.contains("ann");
                assert!(is_shown && done.stderr.is_empty(), "{context}: {done:?}");
            }
            let done = shared.as_nobody("?mode=0644", &["doctor"]);
            let line = done.stdout.lines().next().unwrap_or_default().to_owned();
            assert!(
                line.contains("this user can only read") && line.contains("mode 0644"),
                "{done:?}"
            );
            assert_eq!(done.code, 1, "{context}: {done:?}");
            assert!(!done.stdout.contains("journal"), "{context}: {done:?}");
            for (args, code) in [
                (&RUN[..], 125),
                (&["hold", "k", "--no-stdin"], 3),
                (&["elect", "k", "--", "true"], 125),
                (&["evict", "k", "--all"], 3),
                (&["schema", "--apply"], 3),
            ] {
                let done = shared.as_nobody("", args);
                assert_refused(&done, code, &["belongs to root and has mode 0644", "chmod 0664"]);
            }
            assert_eq!(shared.owners(), before, "{context}: looking creates no file");
        }
        if has_log {
            // A program that reads and closes the file moves the log into it.
            let file = rusqlite::Connection::open(shared.path("l.db")).expect("root may do that");
            let read = file.query_row("SELECT count(*) FROM claim", [], |row| row.get(0));
            assert_eq!(read, Ok(1));
        }
    }
}

#[test]
fn a_user_without_write_access_watches_changes() {
    if !is_root() {
        return;
    }
    let shared = Shared::new();
    assert_eq!(shared.as_root("?mode=0644", &RUN).code, 0);
    let mut watch = shared.command("022", "", &["--json", "watch", "w"]);
    watch.uid(NOBODY).gid(NOBODY);
    let watch = Process::start(watch);
    let hold = Process::start(shared.command("022", "", &["hold", "w"]));
    hold.next("acquired");
    watch.change("held");
    hold.release();
    watch.change("freed");
}
