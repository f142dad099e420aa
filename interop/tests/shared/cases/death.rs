//! Leases and renewals: a holder that lives keeps its lock, and a dead one blocks no longer than its lease.

use std::time::Instant;

use rustix::process::Signal;
use tenure_interop::{Lock, Worker};

use crate::shared::examples::{Fixture as Folder, Process, tenure_command};
use crate::shared::fixture::{Fixture, LONG, PROMPT, SHORT, Setting, assert_waits, within};
use crate::shared::subject::{Kind, Renewal};

pub(crate) async fn their_death_frees_the_lock(setting: Setting) {
    let Some(worker) = Worker::start(setting.driver) else {
        return;
    };
    let Some(fixture) = setting.fixture_in(&worker, SHORT).await else {
        return;
    };
    let theirs = fixture.theirs("anna");
    connect(&theirs).await;
    theirs.lock().await.unwrap();
    let ours = fixture.ours();
    let mut waiting = tokio::spawn(async move { ours.lock().await });
    worker.kill();
    assert_waits(SHORT / 3, "Tenure", &mut waiting).await;
    let guard = within(SHORT + PROMPT, "Tenure", waiting).await.unwrap();
    guard.unwrap().unlock().await.unwrap();
}

/// Takes and frees the lock. The first call of a client connects, which takes long on a busy machine, and some clients count
/// the lease from before it.
async fn connect(client: &Lock) {
    client.lock().await.unwrap();
    client.unlock().await.unwrap();
}

pub(crate) async fn a_death_of_tenure_frees_the_lock(setting: Setting) {
    let Some(fixture) = setting.fixture(LONG).await else {
        return;
    };
    let hold = hold_of_tenure(&fixture);
    let theirs = fixture.theirs("anna");
    let mut waiting = theirs.lock();
    hold.kill();
    assert_waits(SHORT / 3, "the other client", &mut waiting).await;
    within(SHORT + PROMPT, "the other client", waiting).await.unwrap();
    theirs.unlock().await.unwrap();
}

/// A process of Tenure that holds the lock with the lease [`SHORT`].
pub(crate) fn hold_of_tenure(fixture: &Fixture) -> Hold {
    let folder = Folder::new();
    let mut command = folder.command(tenure_command());
    command.env("TENURE_URL", fixture.url());
    let verb = match fixture.subject.ours {
        Kind::Leader => "elect",
        _ => "hold",
    };
    command.args([verb, fixture.subject.key, "--lease", "3s"]);
    match fixture.subject.ours {
        Kind::Fair => _ = command.arg("--fair"),
        Kind::Write => _ = command.arg("--exclusive"),
        Kind::Permit => _ = command.args(["--permits", "1", "--of", "1"]),
        // The leader's command prints a line like that of `hold`.
        Kind::Leader => _ = command.args(["--", "sh", "-c", "echo '{\"acquired\"}'; exec tail -f /dev/null"]),
        Kind::Mutex | Kind::Multi => (),
    }
    let process = Process::start(command);
    assert!(process.line_with("{").contains("\"acquired\""));
    Hold {
        process,
        _folder: folder,
    }
}

/// A process that holds a lock.
pub(crate) struct Hold {
    process: Process,
    _folder: Folder,
}

impl Hold {
    pub(crate) fn kill(&self) {
        self.process.send(Signal::KILL);
    }
}

/// Each side holds for two leases, while the other side waits.
pub(crate) async fn both_renewals_keep_locks_beyond_the_lease(setting: Setting) {
    let Some(fixture) = setting.fixture(SHORT).await else {
        return;
    };
    let (ours, theirs) = (fixture.ours(), fixture.theirs("anna"));
    connect(&theirs).await;
    theirs.lock().await.unwrap();
    let mut waiting = tokio::spawn(async move { ours.lock().await });
    for _ in 0..12 {
        let start = Instant::now();
        assert_waits(SHORT / 6, "Tenure", &mut waiting).await;
        if fixture.subject.renewal == Renewal::ByHand {
            let is_extended = theirs.extend().await.unwrap();
            assert!(is_extended, "not extended after {:?}", start.elapsed());
        }
    }
    theirs.unlock().await.unwrap();
    let guard = within(PROMPT, "Tenure", waiting).await.unwrap().unwrap();
    let mut waiting = theirs.lock();
    assert_waits(SHORT * 2, "the other client", &mut waiting).await;
    assert!(guard.is_held());
    guard.unlock().await.unwrap();
    within(PROMPT, "the other client", waiting).await.unwrap();
    theirs.unlock().await.unwrap();
}
