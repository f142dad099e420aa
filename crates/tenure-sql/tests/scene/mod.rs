//! What the tests of files and processes have in common: a client that takes and frees locks, and child processes
//! that are this test program run again for one test.
#![allow(dead_code, reason = "each test program uses its part")]

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
use tenure_sql::{Config, SqlStore, sqlite};
use tokio::runtime::{Builder, Runtime};

/// How long anything may take before a test counts as stuck: many times what a disk that stalls takes for a sync.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A directory of its own, and a lock file's path in it.
pub(crate) fn scratch() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let path = dir.path().join("locks.db");
    (dir, path)
}

/// A file beside the lock file, such as its `-wal`.
pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

/// Opens a file, and waits longer for other processes than users would: a disk that stalls is no test's matter.
pub(crate) async fn open(path: &Path) -> Result<Arc<SqlStore>, BackendError> {
    let config = Config {
        busy_limit: DEADLINE,
        ..Config::default()
    };
    sqlite::open_with(Some(path.to_owned()), config).await
}

/// The file by other means than a store.
pub(crate) fn connect(path: impl AsRef<Path>) -> Connection {
    let file = Connection::open(path).expect("the file opens");
    file.busy_timeout(DEADLINE).expect("a time limit can be set");
    file
}

/// What a query for one number finds in a file.
pub(crate) fn number(file: &Connection, query: &str) -> i64 {
    let found = file.query_row(query, [], |row| row.get(0));
    found.expect("the query fits the file")
}

pub(crate) fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_time().build();
    runtime.expect("a runtime can be made")
}

/// What weakens the locks of a store, but for what the machine is to blame for: the place where these tests keep their
/// files may be in memory, and its SQLite may be old.
pub(crate) async fn findings(store: &Arc<SqlStore>) -> Vec<(Severity, String)> {
    let findings = store.clone().examine().await.expect("the store can be examined");
    let told = |found: Finding| {
        assert!(!found.consequence.is_empty());
        (found.severity, found.what)
    };
    let machine = ["file system in memory", "walresetbug"];
    let here = |(_, what): &(Severity, String)| !machine.iter().any(|text| what.contains(text));
    findings.into_iter().map(told).filter(here).collect()
}

/// Looks until something is so.
pub(crate) async fn until(what: &str, mut so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !so() {
        assert!(start.elapsed() < DEADLINE, "{what}: not in time");
        // sleep: between two looks, within the deadline above.
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// One client of a store.
pub(crate) struct Client {
    pub(crate) store: Arc<SqlStore>,
    id: ClientId,
    made: u64,
}

impl Client {
    pub(crate) fn new(store: Arc<SqlStore>) -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let mut name = [0; 16];
        name[..4].copy_from_slice(&std::process::id().to_le_bytes());
        name[8..].copy_from_slice(&MADE.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        Client {
            store,
            id: ClientId::from_random(name),
            made: 0,
        }
    }

    /// A claim that has not been asked for: an unfair mutex for a minute.
    pub(crate) fn claim(&mut self, key: &str) -> Claim {
        self.made += 1;
        let key = LockKey::new(key).expect("keys of tests are sound");
        let id = ClaimId::new(self.id, self.made);
        Claim::of(ClaimRef { key, id }, Duration::from_secs(60))
    }

    /// Asks, and asks again if the disk took so long that the store did not place the claim any more.
    pub(crate) async fn poll(&self, claim: &Arc<Claim>) -> Result<AcquireReply, BackendError> {
        loop {
            let not_after = self.store.clock().now() + Duration::from_secs(10);
            match self.store.clone().acquire(claim.clone(), not_after).await {
                Ok(AcquireReply::TooLate) => {}
                standing => return standing,
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
        let standing = self.poll(&claim).await;
        (claim, standing)
    }

    async fn granted(&mut self, key: &str) -> (Arc<Claim>, Grant) {
        match self.acquire(key, |_| {}).await {
            (claim, Ok(AcquireReply::Granted(grant))) => (claim, grant),
            (_, other) => panic!("{key} is free: {other:?}"),
        }
    }

    /// Takes a lock that is free.
    pub(crate) async fn lock(&mut self, key: &str) -> Arc<Claim> {
        self.granted(key).await.0
    }

    /// Takes a lock that is free, and keeps it.
    pub(crate) async fn token(&mut self, key: &str) -> FencingToken {
        let (_, grant) = self.granted(key).await;
        grant.tokens.expect("each grant has tokens").first()
    }

    /// Takes a lock as soon as it can be had.
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
        let (_, standing) = self.acquire(key, |_| {}).await;
        matches!(standing.expect("the store answers"), AcquireReply::Granted(_))
    }

    pub(crate) async fn renew(&self, claim: &Claim) -> RenewReply {
        let batch = Batch::from_iter([RenewRequest::of(claim)]);
        let mut renewed = self.store.clone().renew(batch).await;
        renewed.pop().expect("one renewal has one answer")
    }

    pub(crate) async fn unlock(&self, claim: &Claim) {
        self.release(claim, Cause::Unlocked, Duration::ZERO).await;
    }

    /// Evicts a holder, so that nobody is granted the key for that time.
    pub(crate) async fn evict(&self, claim: &Claim, cooldown: Duration) {
        self.release(claim, Cause::Evicted { by: None }, cooldown).await;
    }

    async fn release(&self, claim: &Claim, cause: Cause, cooldown: Duration) {
        let departure = ReleaseRequest {
            cooldown,
            ..ReleaseRequest::of(claim, cause)
        };
        let released = self.store.clone().release(Batch::from_iter([departure])).await;
        let [ReleaseReply::Done { freed, .. }] = &released[..] else {
            panic!("{released:?}")
        };
        assert_eq!(freed[..], [HolderId::Claim(claim.at.id)]);
    }
}

/// A child process that runs one test of this program in its own role. It is killed when it is dropped.
pub(crate) struct Other {
    child: Child,
    lines: mpsc::Receiver<String>,
    stdin: Option<ChildStdin>,
    /// The directory of a copy of the program, if it runs one.
    program: Option<tempfile::TempDir>,
}

/// Tells a child from the test's own run.
const ROLE: &str = "TENURE_TEST_ROLE";

/// Marks what a child says among what its test harness prints.
const MARK: &str = "child: ";

/// What a child finds in its environment.
pub(crate) type Env<'a> = [(&'a str, &'a dyn AsRef<OsStr>)];

pub(crate) fn spawn(test: &str, env: &Env<'_>) -> Other {
    start(this_program(), test, env, None)
}

fn this_program() -> PathBuf {
    std::env::current_exe().expect("a test program knows its path")
}

/// Starts a child for that file.
pub(crate) fn spawn_on(path: &Path, test: &str) -> Other {
    spawn(test, &[("FILE", &path)])
}

/// Runs a child as another user, for whom permissions count: they do not count for root.
pub(crate) fn as_another_user(path: &Path, test: &str) -> Other {
    const NOBODY: u32 = 65_534;
    if !rustix::process::geteuid().is_root() {
        return spawn_on(path, test);
    }
    let dir = tempfile::tempdir().expect("a temporary directory can be made");
    let program = dir.path().join("program");
    fs::copy(this_program(), &program).expect("programs can be copied");
    for path in [dir.path(), &program] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("it is ours");
    }
    let mut other = start(program, test, &[("FILE", &path)], Some(NOBODY));
    other.program = Some(dir);
    other
}

fn start(program: PathBuf, test: &str, env: &Env<'_>, user: Option<u32>) -> Other {
    let set = |name: &str, default: &'static str| {
        let value = env.iter().find(|(set, _)| *set == name);
        value.map_or(OsStr::new(default), |(_, value)| value.as_ref())
    };
    // The unit of the limit is 512 bytes. A write beyond it fails, since the signal is ignored.
    const SET_UP: &str = "umask \"$1\"; if [ -n \"$2\" ]; then trap '' XFSZ; ulimit -f $(($2 * 2)); fi; \
                          if [ -n \"$3\" ]; then mount --bind \"$3\" /proc/sys/kernel/random/boot_id || exit; fi; \
                          shift 3; exec \"$@\"";
    let mut command = Command::new("env");
    let unshare = set("UNSHARE", "").to_string_lossy();
    if !unshare.is_empty() {
        command.arg("unshare").args(unshare.split(' '));
    }
    command
        .args(["sh", "-c", SET_UP, "sh"])
        .args([set("UMASK", "022"), set("KIBIBYTES", ""), set("BOOT_ID", "")])
        .arg(program);
    command.args([test, "--exact", "--nocapture", "--test-threads=1"]);
    command
        .env(ROLE, test)
        .envs(env.iter().map(|(name, value)| (name, value.as_ref())));
    command
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    if let Some(user) = user {
        command.uid(user).gid(user);
    }
    let mut child = command.spawn().expect("this program can be run again");
    let lines = listen(child.stdout.take().expect("its output is piped"));
    let stdin = child.stdin.take();
    Other {
        child,
        lines,
        stdin,
        program: None,
    }
}

/// What a child says, line by line, as it says it.
fn listen(output: ChildStdout) -> mpsc::Receiver<String> {
    let (said, lines) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            // The harness prints the test's name without a line break before the first word.
            if let Some((_, word)) = line.split_once(MARK)
                && said.send(word.to_owned()).is_err()
            {
                return;
            }
        }
    });
    lines
}

impl Other {
    /// The next line that the child says.
    pub(crate) fn line(&self) -> String {
        self.lines
            .recv_timeout(DEADLINE)
            .expect("the child says something in time")
    }

    pub(crate) fn tell(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("its input is piped");
        writeln!(stdin, "{line}").expect("the child listens");
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends a child that listens, and waits until it has closed its files.
    pub(crate) fn end(mut self) {
        self.stdin = None;
        self.child.wait().expect("the child is there");
    }

    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).expect("the child is there");
    }
}

impl Drop for Other {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of a child process.
pub(crate) struct Role;

/// Plays the part of a child, if this process was started for that test; a plain run of the test does nothing.
pub(crate) fn child(test: &str, part: impl AsyncFnOnce(Role)) {
    if std::env::var_os(ROLE).is_some_and(|role| role == test) {
        runtime().block_on(part(Role));
    }
}

impl Role {
    /// A client of the file that the parent names.
    pub(crate) async fn client(&self) -> Client {
        Client::new(self.open().await.expect("the file opens"))
    }

    pub(crate) async fn open(&self) -> Result<Arc<SqlStore>, BackendError> {
        open(Path::new(&self.var("FILE"))).await
    }

    pub(crate) fn var(&self, name: &str) -> OsString {
        std::env::var_os(name).expect("the parent sets what the role needs")
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self.var(name).into_string().expect("numbers are text");
        text.parse().expect("the parent sets a number")
    }

    pub(crate) fn say(&self, text: &str) {
        let mut out = std::io::stdout().lock();
        for line in text.lines() {
            writeln!(out, "{MARK}{line}").expect("the parent listens");
        }
        out.flush().expect("the parent listens");
    }

    /// Waits for a line from the parent; the end of its output ends the child.
    pub(crate) fn listen(&self) -> String {
        let mut line = String::new();
        if std::io::stdin().read_line(&mut line).expect("input can be read") == 0 {
            std::process::exit(0);
        }
        line.trim_end().to_owned()
    }
}
