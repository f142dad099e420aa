//! A day in a shop, over and over: workers that lock, wait, give up, lose and release.

use std::time::Duration;

use tenure::{Client, Error, Guard, LockKey, ReleaseTarget};
use tokio::time::{sleep, timeout};

/// So short that renewals are seen at work; a real one is rather the default, 30 s.
const LEASE: Duration = Duration::from_secs(2);

/// Runs until one of its workers meets a fault.
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

/// Three of these wait for one another: most of their locks are passed on in memory.
async fn clerk(client: &Client) -> Result<(), Error> {
    let till = client.mutex("till");
    loop {
        let guard = till.lock().await?;
        sleep(Duration::from_millis(2)).await;
        guard.unlock().await?;
        sleep(Duration::from_millis(5)).await;
    }
}

/// Has no time: asks once, waits a little, or goes away in the middle.
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
            Err(fault) => return Err(fault),
        }
        if let Ok(locked) = timeout(a_moment, ledger.lock()).await {
            give_back(locked?).await?;
        }
        sleep(Duration::from_millis(50)).await;
    }
}

/// Holds for so long that the lease is renewed, until the auditor comes.
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

/// Takes the ledger away from whoever has it.
async fn auditor(client: &Client) -> Result<(), Error> {
    let ledger = ReleaseTarget::All(LockKey::new("ledger")?);
    loop {
        sleep(LEASE + LEASE / 2).await;
        client.evict(ledger.clone()).await?;
    }
}

/// The auditor may have come at the last moment.
async fn give_back(guard: Guard) -> Result<(), Error> {
    match guard.unlock().await {
        Err(Error::Lost(_)) => Ok(()),
        given_back => given_back,
    }
}
