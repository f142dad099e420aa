//! Several of these processes run, and one works: the leader. Another takes over when it ends, dies or hangs.

mod journal;
#[path = "../../program.rs"]
mod program;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use tenure::{Client, Leader};
use tokio::time::sleep;

use journal::Journal;

/// How long the other processes wait for a dead leader. Short, so that you can watch a takeover; in production rather
/// 30 s.
const LEASE: Duration = Duration::from_secs(2);

/// Key of the lock under which a process opens the journal.
const OPENING: &str = "leader-worker:opening";

const USAGE: &str = "usage: leader-worker SPOOL [DATABASE]

While it leads, it does the tasks in the folder SPOOL, one per file, and records them in DATABASE (journal.db). The lock
store is TENURE_URL, or a SQLite file in the temporary folder.";

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let spool = PathBuf::from(args.next().ok_or("name the folder of the tasks")?);
    let journal = args.next().unwrap_or_else(|| "journal.db".to_owned());

    let asked_to_stop = stop::signals()?;
    let client = tenure::connect(&program::store_or_file("leader-worker-locks.db")).await?;
    let outcome = tokio::select! {
        outcome = stand_and_lead(&client, &spool, &journal) => outcome,
        _ = asked_to_stop => Ok(()),
    };
    // Closes the client last: this releases the lead before the process ends, and the next candidate leads at once.
    let closed = client.close(Duration::from_secs(5)).await;
    outcome.and(closed.map_err(Into::into))
}

/// Campaigns, works while it leads, and campaigns again after it has lost the lead.
async fn stand_and_lead(client: &Client, spool: &Path, journal: &str) -> Result<(), Box<dyn Error>> {
    // Processes may start at once, but only one can create the database. Without this lock, SQLite would make the
    // others fail.
    let opening = client.mutex(OPENING).lease(LEASE);
    let journal = opening
        .try_with(async |_| Ok::<_, Box<dyn Error>>(Journal::open(journal)?))
        .await?;
    let name = format!("worker {}", std::process::id());
    let election = client.election("leader-worker").lease(LEASE).label(name);
    loop {
        if let Some(label) = election.leader().await?.and_then(|leader| leader.label) {
            println!("led by {label}");
        }
        let leader = election.campaign().await?;
        println!("leading");
        // `while_held` checks the lead before each poll of the work, so a process that was stopped for too long does
        // not go on.
        match leader.while_held(work(&leader, spool, &journal)).await {
            Ok(ended) => println!("refused: {}", ended?),
            Err(lost) => println!("stopped: {lost}"),
        }
    }
}

/// Works until the journal has a task of a later leader.
async fn work(leader: &Leader, spool: &Path, journal: &Journal) -> Result<&'static str, Box<dyn Error>> {
    loop {
        if let Some(task) = next_task(spool)? {
            let name = task.file_name().unwrap_or_default().to_string_lossy();
            println!("{name}: begun");
            // This call cannot be stopped once it has begun. If the process is suspended here, only the token can
            // refuse the write.
            if !journal.record(&name, leader.token())? {
                return Ok("a later leader has worked");
            }
            fs::remove_file(&task)?;
            println!("{name}: done");
        }
        sleep(Duration::from_millis(20)).await;
    }
}

fn next_task(spool: &Path) -> io::Result<Option<PathBuf>> {
    fs::read_dir(spool)?
        .next()
        .map(|entry| Ok(entry?.path()))
        .transpose()
}
