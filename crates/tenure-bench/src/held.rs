//! Measures one client that holds many locks: memory per lock, and processor time for their renewal.

use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use tenure::{Guard, Settings};

use crate::Fallible;
use crate::cli::Holding;
use crate::plan::{Client, Distance, name};
use crate::site::{Site, Sites, check};

/// Number of leases for which the locks are held.
const LEASES: u32 = 3;

/// Acquires the locks, holds them for three leases, and prints the cost.
///
/// # Errors
/// A lock was lost, or a request failed.
pub(crate) fn run(args: &Holding) -> Fallible<()> {
    check(args.store)?;
    // One thread: while the locks are held, it only renews them.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(hold(args))
}

async fn hold(args: &Holding) -> Fallible<()> {
    let sites = Sites::prepare(std::env::temp_dir(), Distance::Near)?;
    let site = Site::make(args.store, Client::Tenure, &sites).await?;
    let (locks, lease) = (args.locks, Duration::from_millis(args.lease_ms));
    let client = tenure::connect_with(&site.location.url, Settings::default().lease(lease)).await?;
    client.mutex("the first").lock().await?.unlock().await?;
    let empty = resident()?;
    let mut guards: Vec<Guard> = Vec::with_capacity(locks);
    // One after the other: the tasks of a join would leave holes between the locks, which the system's allocator does not
    // fill.
    for n in 0..locks {
        guards.push(client.mutex(format!("order:{n:08}")).lock().await?);
    }
    let locked = resident()?;
    let (began, before) = (Instant::now(), processor_time()?);
    // sleep: the time for which the locks are held.
    tokio::time::sleep(lease * LEASES).await;
    let busy = processor_time()?.saturating_sub(before).as_secs_f64() / began.elapsed().as_secs_f64();
    let each = |after: u64| after.saturating_sub(empty) / locks.max(1) as u64;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    println!(
        "{locks} locks on {}, held for {LEASES} leases of {lease:?}",
        name(args.store)
    );
    println!("lost                                    {lost}");
    println!(
        "the client, with its part of the store  {:.1} % of a core",
        100.0 * busy
    );
    println!(
        "resident bytes for each, guard and all  {} when locked, {} after renewals",
        each(locked),
        each(resident()?)
    );
    drop(guards);
    client.close(Duration::from_secs(10)).await?;
    match lost {
        0 => Ok(()),
        _ => Err(format!("{lost} of {locks} locks were lost without a fault").into()),
    }
}

/// Resident memory of this process, in bytes.
fn resident() -> Fallible<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm")?;
    let resident: u64 = pages.split(' ').nth(1).unwrap_or_default().parse()?;
    Ok(resident * rustix::param::page_size() as u64)
}

/// Processor time of all threads of this process.
fn processor_time() -> Fallible<Duration> {
    Ok(clock_gettime(ClockId::ProcessCPUTime).try_into()?)
}
