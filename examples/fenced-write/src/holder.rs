//! The process of one holder: acquires the lock, prints the token, and writes when it reads a line from stdin.

use std::error::Error;
use std::io::stdin;
use std::path::Path;
use std::time::Duration;

use crate::ledger::{Ledger, Writer};

/// Lease of the lock, short so that the demonstration is short. The watchdog renews it while the process runs.
const LEASE: Duration = Duration::from_secs(2);

/// Runs a holder: prints `held TOKEN` when it has the lock. After a line on stdin it writes `balance`, and prints
/// `written` or `refused: …`. At the end of stdin it releases the lock.
pub fn hold(folder: &Path, writer: Writer, balance: i64) -> Result<(), Box<dyn Error>> {
    let locks = format!("sqlite:{}", folder.join("locks.db").display());
    let client = tenure::blocking::connect(&locks)?;
    let ledger = Ledger::open(&folder.join("ledger.db"))?;
    let guard = client.mutex("account:alice").lease(LEASE).lock()?;
    let token = guard.token().ok_or("this store has no fencing tokens")?;
    println!("held {token}");

    let mut told = String::new();
    if stdin().read_line(&mut told)? > 0 {
        // Does not check the lock again: it could be lost between the check and the write.
        match ledger.write(writer, token, balance) {
            Ok(()) => println!("written"),
            Err(error) => println!("refused: {error}"),
        }
        while stdin().read_line(&mut told)? > 0 {}
    }
    drop(guard);
    Ok(client.close(LEASE)?)
}
