//! Many locks held by one client: what the watchdog takes to keep them alive, in processor time, in memory, and in
//! commands to the server.
//! Not here: how fast locks are taken and given back (`contest`).

use std::fs;
use std::io;
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use redis::aio::MultiplexedConnection;
use tenure::{Client, Guard, Profile, Settings};

use crate::Fallible;
use crate::cli::Holding;
use crate::client::scripts::connect;
use crate::plan::{Store, name};
use crate::site::{Ground, Site, check};
use crate::willing::Willing;

/// For how many leases the locks are held.
const LEASES: u32 = 3;

/// How many locks are asked for at once of a server, which would be slow otherwise. Elsewhere it is one at a time, so that
/// no more is in memory than is held.
const AT_ONCE: usize = 256;

/// How many locks one command must renew at the least, in the mean.
const A_COMMAND: u64 = 500;

/// Takes the locks, holds them for three leases, and says what that took.
pub(crate) fn run(args: &Holding) -> Fallible<()> {
    check(args.store)?;
    let site = Site::make(args.store, &Ground::near(std::env::temp_dir()))?;
    // One thread: what it spends while nobody locks is the watchdog's, and the client's share of a renewal.
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?
        .block_on(hold(args, &site))
}

async fn hold(args: &Holding, site: &Site) -> Fallible<()> {
    let (locks, lease) = (args.locks, Duration::from_millis(args.lease_ms));
    let url = &*site.place.url;
    let settings = Settings::default().lease(lease);
    let client = tenure::connect_with(url, settings.clone()).await?;
    client.mutex("the first").lock().await?.unlock().await?;
    let mut server = match args.store {
        Store::Redis => Some(connect(url).await?),
        Store::Memory | Store::Sqlite => None,
    };
    let empty = resident()?;
    let at_once = if server.is_some() { AT_ONCE } else { 1 };
    let guards = take(&client, locks, at_once).await?;
    let locked = resident()?;
    if let Some(server) = &mut server {
        redis::cmd("CONFIG").arg("RESETSTAT").exec_async(server).await?;
    }
    let busy = busy_for(lease * LEASES).await?;
    let renewals = match &mut server {
        Some(server) => Some(Renewals::counted_by(server).await?),
        None => None,
    };
    let renewed = resident()?;
    let lost = guards.iter().filter(|guard| !guard.is_held()).count();
    let each = |after: u64| after.saturating_sub(empty) / locks.max(1) as u64;
    println!(
        "{locks} locks on {}, held for {LEASES} leases of {lease:?}",
        name(args.store)
    );
    println!("lost                                    {lost}");
    println!("the client, with its part of the store  {busy:.1} % of a core");
    println!(
        "resident bytes for each, guard and all  {} when locked, {} after renewals",
        each(locked),
        each(renewed)
    );
    if let Some(renewals) = &renewals {
        println!("renewal commands, as the server says    {}", renewals.commands);
        println!(
            "locks renewed by each, in the mean      {:.0}",
            renewals.by_each()
        );
        println!(
            "server's time for each command          {:.0} µs",
            renewals.us_each
        );
    }
    drop(guards);
    client.close(Duration::from_secs(10)).await?;
    let alone = watchdog_alone(client.profile(), settings, locks, lease).await?;
    println!("its watchdog, over a store without cost {alone:.1} % of a core");
    if lost > 0 {
        return Err(format!("{lost} of {locks} locks were lost though nothing befell them").into());
    }
    match renewals {
        Some(renewals) if locks as u64 >= A_COMMAND && renewals.by_each() < A_COMMAND as f64 => {
            Err(format!("a command renewed fewer than {A_COMMAND} locks in the mean").into())
        }
        _ => Ok(()),
    }
}

/// What it takes to keep so many locks over a store that costs nothing, in percent of a core.
async fn watchdog_alone(like: &Profile, settings: Settings, locks: usize, lease: Duration) -> Fallible<f64> {
    let client = Client::new(Willing::like(like), settings);
    let guards = take(&client, locks, 1).await?;
    let busy = busy_for(lease * LEASES).await?;
    drop(guards);
    client.close(Duration::from_secs(10)).await?;
    Ok(busy)
}

/// How much of a core this process takes in the mean while nothing is done but renewing, in percent.
async fn busy_for(time: Duration) -> Fallible<f64> {
    let (began, before) = (Instant::now(), processor_time()?);
    // sleep: for so long the locks are held.
    tokio::time::sleep(time).await;
    let busy = processor_time()?.saturating_sub(before);
    Ok(100.0 * busy.as_secs_f64() / began.elapsed().as_secs_f64())
}

/// Locks so many keys, so many at a time.
async fn take(client: &Client, locks: usize, at_once: usize) -> Fallible<Vec<Guard>> {
    let mut guards = Vec::with_capacity(locks);
    while guards.len() < locks {
        let next = guards.len()..locks.min(guards.len() + at_once);
        let batch = next.map(|n| client.mutex(format!("order:{n:08}")).lock());
        guards.extend(try_join_all(batch).await?);
    }
    Ok(guards)
}

/// What the server counted since it was last told to begin anew, while nothing was done but renewing.
struct Renewals {
    commands: u64,
    locks: u64,
    us_each: f64,
}

impl Renewals {
    async fn counted_by(server: &mut MultiplexedConnection) -> Fallible<Self> {
        let stats: String = redis::cmd("INFO").arg("commandstats").query_async(server).await?;
        // Whatever a renewal is: the script looks once for each lock that it keeps alive.
        Ok(Renewals {
            commands: stat(&stats, "evalsha", "calls")? as u64,
            locks: stat(&stats, "hexists", "calls")? as u64,
            us_each: stat(&stats, "evalsha", "usec_per_call")?,
        })
    }

    fn by_each(&self) -> f64 {
        self.locks as f64 / self.commands as f64
    }
}

/// A figure of a line such as `cmdstat_evalsha:calls=9,usec=4500,usec_per_call=500.00,…`.
fn stat(stats: &str, command: &str, figure: &str) -> Fallible<f64> {
    let line = stats.lines().find_map(|line| {
        line.strip_prefix("cmdstat_")?
            .strip_prefix(command)?
            .strip_prefix(':')
    });
    let value = line.and_then(|line| {
        let mut fields = line.split(',').filter_map(|field| field.split_once('='));
        fields.find(|(name, _)| *name == figure)?.1.parse().ok()
    });
    value.ok_or_else(|| format!("the server counted no `{command}`").into())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_statistics_are_read_by_command_and_figure() {
        let stats = "# Commandstats\r\n\
            cmdstat_evalsha_ro:calls=1,usec=2,usec_per_call=2.00\r\n\
            cmdstat_evalsha:calls=9,usec=4500,usec_per_call=500.25,rejected_calls=0,failed_calls=0\r\n";
        assert_eq!(stat(stats, "evalsha", "calls").unwrap(), 9.0);
        assert_eq!(stat(stats, "evalsha", "usec_per_call").unwrap(), 500.25);
        assert!(stat(stats, "hexists", "calls").is_err());
    }
}
