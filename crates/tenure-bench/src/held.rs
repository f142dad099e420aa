//! Many locks held by one client: what the watchdog takes to keep them alive, in processor time and in memory.
//! Not here: how fast locks are taken and given back (`contest`).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use tenure::Settings;

use crate::Fallible;
use crate::cli::Holding;

/// For how many leases the locks are held.
const LEASES: u32 = 3;

/// Takes the locks, holds them for three leases, and says what that took.
pub(crate) fn run(args: &Holding) -> Fallible<()> {
    let lease = Duration::from_millis(args.lease_ms);
    // One thread: what it spends while nobody locks is the watchdog's, and the store's share of a renewal.
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?
        .block_on(hold(args.locks, lease))
}

async fn hold(locks: usize, lease: Duration) -> Fallible<()> {
    let client = tenure::connect_with("memory:", Settings::default().lease(lease)).await?;
    client.mutex("the first").lock().await?.unlock().await?;
    let mut guards = Vec::with_capacity(locks);
    let empty = resident()?;
    for n in 0..locks {
        guards.push(client.mutex(format!("order:{n:08}")).lock().await?);
    }
    let locked = resident()?;
    let (began, busy) = (Instant::now(), processor_time()?);
    // sleep: for so long the locks are held.
    tokio::time::sleep(lease * LEASES).await;
    let (time, busy) = (began.elapsed(), processor_time()?.saturating_sub(busy));
    let renewed = resident()?;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    let each = |after: u64| after.saturating_sub(empty) / locks.max(1) as u64;
    println!("{locks} locks on memory, held for {LEASES} leases of {lease:?}");
    println!("lost                                  {lost}");
    println!(
        "watchdog and store, of a core         {:.1} %",
        100.0 * busy.as_secs_f64() / time.as_secs_f64()
    );
    println!(
        "resident bytes for each, guard and all {} when locked, {} after renewals",
        each(locked),
        each(renewed)
    );
    drop(guards);
    client.close(Duration::from_secs(10)).await?;
    match lost {
        0 => Ok(()),
        lost => Err(format!("{lost} of {locks} locks were lost though nothing befell them").into()),
    }
}

/// What this process has in memory, in bytes.
fn resident() -> io::Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::Error::other("/proc/self/status has no line `VmRSS: … kB`"))
}

/// How long the threads of this process have run.
fn processor_time() -> io::Result<Duration> {
    let mut nanos = 0;
    for thread in fs::read_dir("/proc/self/task")? {
        let text = fs::read_to_string(thread?.path().join("schedstat"))?;
        nanos += text
            .split(' ')
            .next()
            .and_then(|field| field.parse::<u64>().ok())
            .ok_or_else(|| io::Error::other("a thread's schedstat does not begin with a number"))?;
    }
    Ok(Duration::from_nanos(nanos))
}
