//! Fixtures of the integration tests: a client that takes and releases locks, and child processes. A child process is
//! this test program again, started to run a single test.
#![allow(clippy::disallowed_methods, reason = "a test may panic")]

use std::ffi::{OsStr, OsString};
use std::fs;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use futures_core::Stream;
use rusqlite::Connection;
use tenure_backend::{
    AcquireReply, Backend, BackendError, Batch, Cause, Claim, ClaimId, ClaimRef, ClientId, Fairness,
    FencingToken, Finding, Grant, HolderId, LockKey, ReleaseReply, ReleaseRequest, RenewReply, RenewRequest,
    Severity,
};
use tenure_sql::sqlite::{self, Config, SqliteStore};
use tokio::runtime::{Builder, Runtime};

/// Time after which a test fails because it is stuck. Many times longer than a sync of a slow disk.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A temporary directory, and the path of a lock file in it that does not exist yet.
pub(crate) fn temp_lock_file() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("locks.db");
    (dir, path)
}

/// Path of a file that SQLite keeps beside the lock file, such as `-wal`.
pub(crate) fn sibling(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Opens a lock file with a long `busy_limit`, so that a slow disk fails no test.
pub(crate) async fn open(path: &Path) -> Result<Arc<SqliteStore>, BackendError> {
    let config = Config {
        busy_limit: DEADLINE,
        ..Config::default()
    };
    sqlite::open_with(Some(path.to_owned()), config).await
}

/// Creates a lock file with one released claim, and closes it.
pub(crate) async fn create_lock_file(path: &Path) {
    let store = open(path).await.expect("the file is made");
    let mut client = TestClient::new(store.clone());
    let claim = client.lock("k").await;
    client.unlock(&claim).await;
    store.close().await.expect("the file is closed");
}

/// Connects to the file with plain SQLite.
pub(crate) fn connect(path: impl AsRef<Path>) -> Connection {
    let file = Connection::open(path).expect("the file opens");
    file.busy_timeout(DEADLINE).expect("a time limit can be set");
    file
}

pub(crate) fn number(file: &Connection, query: &str) -> i64 {
    let found = file.query_row(query, [], |row| row.get(0));
    found.expect("the query fits the file")
}

pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime can be made")
}

/// Findings of `examine`, except those that depend on the machine of the tests: a file system in memory and an
/// old SQLite.
pub(crate) async fn findings(store: &Arc<SqliteStore>) -> Vec<(Severity, String)> {
    let findings = store.clone().examine().await.expect("the store can be examined");
    let summary = |found: Finding| {
        assert!(!found.consequence.is_empty());
        (found.severity, found.what)
    };
    let machine = ["file system in memory", "walresetbug"];
    let is_of_file = |(_, what): &(Severity, String)| !machine.iter().any(|text| what.contains(text));
    findings.into_iter().map(summary).filter(is_of_file).collect()
}

/// Polls until the condition holds; fails after [`DEADLINE`].
pub(crate) async fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < DEADLINE, "{what}: not in time");
        // sleep: the pause between two polls, until the deadline above.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

pub(crate) struct TestClient {
    pub(crate) store: Arc<SqliteStore>,
    id: ClientId,
    made: u64,
}

impl TestClient {
    pub(crate) fn new(store: Arc<SqliteStore>) -> Self {
        static CLIENTS: AtomicU64 = AtomicU64::new(0);
        let mut name = [0; 16];
        name[..4].copy_from_slice(&std::process::id().to_le_bytes());
        name[8..].copy_from_slice(&CLIENTS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        TestClient {
            store,
            id: ClientId::from_random(name),
            made: 0,
        }
    }

    /// A new claim that is not acquired yet: an unfair mutex with a lease of one minute.
    pub(crate) fn claim(&mut self, key: &str) -> Claim {
        self.made += 1;
        let key = LockKey::new(key).expect("keys of tests are valid");
        let id = ClaimId::new(self.id, self.made);
        Claim::of(ClaimRef { key, id }, Duration::from_secs(60))
    }

    /// Acquires the claim, and tries again if a slow disk made the request too late.
    pub(crate) async fn poll(&self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        loop {
            let not_after = self.store.clock().now() + Duration::from_secs(10);
            match self.store.clone().acquire(claim.clone(), not_after).await {
                Ok(AcquireReply::TooLate) => {}
                reply => return reply,
            }
        }
    }

    pub(crate) async fn acquire(
        &mut self,
        key: &str,
        change: impl FnOnce(&mut Claim),
    ) -> (Arc<Claim>, Result<AcquireReply, BackendError>) {
        let mut claim = self.claim(key);
        change(&mut claim);
        let claim = Arc::new(claim);
        let reply = self.poll(&claim).await;
        (claim, reply)
    }

    async fn granted(&mut self, key: &str) -> (Arc<Claim>, Grant) {
        match self.acquire(key, |_| {}).await {
            (claim, Ok(AcquireReply::Granted(grant))) => (claim, grant),
            (_, other) => panic!("{key} is free: {other:?}"),
        }
    }

    /// Takes a lock, which must be free.
    pub(crate) async fn lock(&mut self, key: &str) -> Arc<Claim> {
        self.granted(key).await.0
    }

    /// Takes a lock, which must be free, keeps it, and returns its fencing token.
    pub(crate) async fn token(&mut self, key: &str) -> FencingToken {
        let (_, grant) = self.granted(key).await;
        grant.tokens.expect("each grant has tokens").first()
    }

    /// Waits for a lock. Polls after each wake-up, or when the `poll_after` of the store's reply is over.
    pub(crate) async fn wait(&mut self, key: &str, fairness: Fairness) -> Arc<Claim> {
        let (claim, first) = self.acquire(key, |claim| claim.fairness = fairness).await;
        if let AcquireReply::Granted(_) = first.expect("the store answers") {
            return claim;
        }
        let wakes = self.store.clone().watch(claim.clone()).await;
        let mut wakes = wakes.expect("the store watches");
        loop {
            match self.poll(&claim).await.expect("the store answers") {
                AcquireReply::Granted(_) => return claim,
                AcquireReply::Waiting { poll_after, .. } => {
                    let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx));
                    let _ = tokio::time::timeout(poll_after, hint).await;
                }
                other => panic!("{other:?}"),
            }
        }
    }

    pub(crate) async fn try_lock(&mut self, key: &str) -> bool {
        let (_, reply) = self.acquire(key, |_| {}).await;
        matches!(reply.expect("the store answers"), AcquireReply::Granted(_))
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> RenewReply {
        let batch = Batch::from_iter([RenewRequest::of(claim)]);
        let mut renewed = self.store.clone().renew(batch).await;
        renewed.pop().expect("one renewal has one answer")
    }

    pub(crate) async fn unlock(&self, claim: &Claim) {
        self.release(claim, Cause::Unlocked, Duration::ZERO).await;
    }

    /// Evicts a holder. No claim on the key is granted during the cooldown.
    pub(crate) async fn evict(&self, claim: &Claim, cooldown: Duration) {
        self.release(claim, Cause::Evicted { by: None }, cooldown).await;
    }

    async fn release(&self, claim: &Claim, cause: Cause, cooldown: Duration) {
        let request = ReleaseRequest {
            cooldown,
            ..ReleaseRequest::of(claim, cause)
        };
        let released = self.store.clone().release(Batch::from_iter([request])).await;
        let [ReleaseReply::Done { freed, .. }] = &released[..] else {
            panic!("{released:?}")
        };
        assert_eq!(freed[..], [HolderId::Claim(claim.at.id)]);
    }
}

/// A child process that runs one test of this program. Killed on drop.
pub(crate) struct ChildProcess {
    child: Child,
    lines: mpsc::Receiver<String>,
    stdin: Option<ChildStdin>,
    /// Directory with the child's copy of this program, if another user runs it.
    program: Option<tempfile::TempDir>,
}

/// Environment variable that names the test to run in a child process.
const CHILD_TEST: &str = "TENURE_TEST_ROLE";

/// Prefix of each line that a child sends to its parent. The test harness prints its own lines without it.
const LINE_PREFIX: &str = "child: ";

/// Environment variables of a child.
pub(crate) type Env<'a> = [(&'a str, &'a dyn AsRef<OsStr>)];

pub(crate) fn spawn(test: &str, env: &Env<'_>) -> ChildProcess {
    start(this_program(), test, env, None)
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test program knows its path")
}

pub(crate) fn spawn_on(path: &Path, test: &str) -> ChildProcess {
    spawn(test, &[("FILE", &path)])
}

/// Starts a child. If this user is root, the child runs as another user, because file permissions have no effect for
/// root.
pub(crate) fn as_another_user(path: &Path, test: &str) -> ChildProcess {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return spawn_on(path, test);
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let program = dir.path().join("program");
    fs::copy(this_program(), &program).expect("programs can be copied");
    for path in [dir.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("this user owns it");
    }
    let mut child = start(program, test, &[("FILE", &path)], Some(NOBODY));
    child.program = Some(dir);
    child
}

fn start(program: PathBuf, test: &str, env: &Env<'_>, user: Option<u32>) -> ChildProcess {
    let set = |name: &str, default: &'static str| {
        let value = env.iter().find(|(set, _)| *set == name);
        value.map_or(OsStr::new(default), |(_, value)| value.as_ref())
    };
    // `ulimit -f` counts units of 512 bytes. Writes beyond the limit fail, because SIGXFSZ is ignored.
    const SET_UP: &str = "umask \"$1\"; if [ -n \"$2\" ]; then trap '' XFSZ; ulimit -f $(($2 * 2)); fi; \
                          shift 2; exec \"$@\"";
    let mut command = Command::new("env");
    let unshare = set("UNSHARE", "").to_string_lossy();
    if !unshare.is_empty() {
        command.arg("unshare").args(unshare.split(' '));
    }
    command
        .args(["sh", "-c", SET_UP, "sh"])
        .args([set("UMASK", "022"), set("KIBIBYTES", "")])
        .arg(program);
    // No other test has this name in its own.
    command.args([test, "--nocapture", "--test-threads=1"]);
    command
        .env(CHILD_TEST, test)
        .envs(env.iter().map(|(name, value)| (name, value.as_ref())));
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut child = command.spawn().expect("this program can be run again");
    let lines = read_lines(child.stdout.take().expect("its output is piped"));
    let stdin = child.stdin.take();
    ChildProcess {
        child,
        lines,
        stdin,
        program: None,
    }
}

/// Receives the lines of a child while it prints them.
fn read_lines(output: ChildStdout) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The test harness prints the name of the test before the first line, without a line break.
            if let Some((_, text)) = line.split_once(LINE_PREFIX)
                && sender.send(text.to_owned()).is_err()
            {
                return;
            }
        }
    });
    lines
}

impl ChildProcess {
    /// Waits for the next line that the child prints.
    pub(crate) fn read_line(&self) -> String {
        self.lines
            .recv_timeout(DEADLINE)
            .expect("the child prints a line in time")
    }

    pub(crate) fn write_line(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is piped");
        writeln!(stdin, "{line}").expect("the child listens");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Closes the child's input, so that a child that reads it exits, and waits for the exit.
    pub(crate) fn end(mut self) {
        self.stdin = None;
        self.child.wait().expect("the child is there");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the child is there");
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The child's side of the pipes to its parent.
pub(crate) struct ChildRole;

/// Runs the child's part of a test if this process is a child started for it. Otherwise the test does nothing.
pub(crate) fn child(test: &str, part: impl AsyncFnOnce(ChildRole)) {
    if std::env::var_os(CHILD_TEST).is_some_and(|name| name == test) {
        runtime().block_on(part(ChildRole));
    }
}

impl ChildRole {
    /// In a child process: a client of the lock file that the parent process has named.
    pub(crate) async fn client(&self) -> TestClient {
        TestClient::new(self.open().await.expect("the file opens"))
    }

    pub(crate) async fn open(&self) -> Result<Arc<SqliteStore>, BackendError> {
        open(Path::new(&self.var("FILE"))).await
    }

    pub(crate) fn var(&self, name: &str) -> OsString {
        std::env::var_os(name).expect("the parent sets what the role needs")
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self.var(name).into_string().expect("numbers are text");
        text.parse().expect("the parent sets a number")
    }

    pub(crate) fn print(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        for line in text.lines() {
            writeln!(out, "{LINE_PREFIX}{line}").expect("the parent listens");
        }
        out.flush().expect("the parent listens");
    }

    /// Reads a line from the parent. Exits when the parent has closed the pipe.
    pub(crate) fn read_line(&self) -> String {
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).expect("input can be read") == 0 {
            std::process::exit(0);
        }
        line.trim_end().to_owned()
    }
}
