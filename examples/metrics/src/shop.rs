//! A simulated shop, whose workers lock, wait, give up, lose and release locks, over and over.

use std::time::Duration;

use tenure::{Client, Error, Guard, LockKey, ReleaseTarget};
use tokio::time::{sleep, timeout};

/// Lease short enough for frequent renewals; in production rather the default of 30 s.
const LEASE: Duration = Duration::from_secs(2);

/// Runs the workers until one of them has an error.
pub(crate) async fn open(client: &Client) -> Result<(), Error> {
    tokio::try_join!(
        clerk(client),
        clerk(client),
        clerk(client),
        customer(client),
        accountant(client),
        auditor(client),
    )?;
    Ok(())
}

/// A clerk. Three of them compete for the till, so most of its locks are handed over in memory.
async fn clerk(client: &Client) -> Result<(), Error> {
    let till = client.mutex("till");
    loop {
        let guard = till.lock().await?;
        sleep(Duration::from_millis(2)).await;
        guard.unlock().await?;
        sleep(Duration::from_millis(5)).await;
    }
}

/// A customer in a hurry. In each round, tries the ledger's lock once, then waits for it for at most 20 ms, then drops a
/// waiting future after 20 ms.
async fn customer(client: &Client) -> Result<(), Error> {
    let ledger = client.mutex("ledger");
    let a_moment = Duration::from_millis(20);
    loop {
        if let Some(guard) = ledger.try_lock().await? {
            give_back(guard).await?;
        }
        match ledger.lock_within(a_moment).await {
            Ok(guard) => give_back(guard).await?,
            Err(Error::Timeout) => {}
            // A store that is slow for a moment. The customer comes again.
            Err(error) if error.is_transient() => {}
            Err(fault) => return Err(fault),
        }
        if let Ok(locked) = timeout(a_moment, ledger.lock()).await {
            give_back(locked?).await?;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Holds the ledger's lock for several renewals, until the auditor evicts it.
async fn accountant(client: &Client) -> Result<(), Error> {
    let ledger = client.mutex("ledger").lease(LEASE);
    loop {
        let guard = ledger.lock().await?;
        match guard.while_held(sleep(2 * LEASE)).await {
            Ok(()) => give_back(guard).await?,
            Err(lost) => println!("the accountant stops: {lost}"),
        }
    }
}

/// Evicts all holders of the ledger every 3 s.
async fn auditor(client: &Client) -> Result<(), Error> {
    let ledger = ReleaseTarget::All(LockKey::new("ledger")?);
    loop {
        sleep(LEASE + LEASE / 2).await;
        client.evict(ledger.clone()).await?;
    }
}

/// Unlocks. A lost lock is no error here: the auditor may just have evicted the holder.
async fn give_back(guard: Guard) -> Result<(), Error> {
    match guard.unlock().await {
        Err(Error::Lost(_)) => Ok(()),
        given_back => given_back,
    }
}
