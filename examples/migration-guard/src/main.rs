//! A replica that starts: it migrates the database, or waits until another replica has, and only then is ready.

#[path = "../../program.rs"]
mod program;
mod steps;
#[path = "../../stop.rs"]
mod stop;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use tenure::{Client, Guard};

use steps::Database;

const USAGE: &str = "usage: migration-guard FOLDER [DATABASE [MAX_WAIT]]

Applies the .sql files of FOLDER to DATABASE in the order of their names, or waits for MAX_WAIT (1m) until another process
has. DATABASE is a SQLite file (shop.db) or postgres://USER:PASSWORD@HOST/NAME. The lock store is TENURE_URL; by default it
is the PostgreSQL database itself, or a SQLite file in the temporary folder.";

#[tokio::main]
async fn main() -> ExitCode {
    match start().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("not started: {}", program::words(&*error));
            ExitCode::FAILURE
        }
    }
}

async fn start() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let mut args = std::env::args().skip(1);
    let folder: PathBuf = args.next().ok_or("name the folder of the migrations")?.into();
    let database = args.next().unwrap_or_else(|| "shop.db".to_owned());
    let max_wait = tenure::parse_duration(&args.next().unwrap_or_else(|| "1m".to_owned()))?;

    let asked_to_stop = stop::signals()?;
    let store = lock_store(&database).await?;
    let database = Database::open(&database).await?;
    let client = tenure::connect(&store).await?;
    let outcome = tokio::select! {
        outcome = migrate(&client, &database, &folder, max_wait) => outcome,
        signal = asked_to_stop => Err(signal.into()),
    };
    if outcome.is_ok() {
        println!("ready");
        // A real replica would serve here.
    }
    // The last step closes the client, which releases its locks. Otherwise they would stay until their leases end.
    let closed = client.close(Duration::from_secs(5)).await;
    outcome.and(closed.map_err(Into::into))
}

/// The URL of the lock store. In a PostgreSQL database without one this makes the table of the locks.
async fn lock_store(database: &str) -> Result<String, tenure::Error> {
    if program::named_store().is_some() || !steps::is_postgres(database) {
        return Ok(program::store_or_file("migration-guard-locks.db"));
    }
    let and = if database.contains('?') { '&' } else { '?' };
    let store = format!("{database}{and}layout=version");
    tenure::create_schema(&store).await?;
    Ok(store)
}

/// Waits while another replica migrates, checks under the lock which steps are left, and applies them.
async fn migrate(
    client: &Client,
    database: &Database,
    folder: &Path,
    max_wait: Duration,
) -> Result<(), Box<dyn Error>> {
    // If the migrating replica dies, the next one migrates after this lease. Short, so that it can be watched.
    let lock = client.mutex("migration").lease(Duration::from_secs(2));
    let waiting = lock.lock_within(max_wait).on_waiting(|_| println!("waiting"));
    let guard = waiting.await?;
    guard.while_held(apply(&guard, database, folder)).await??;
    guard.unlock().await?;
    Ok(())
}

async fn apply(guard: &Guard, database: &Database, folder: &Path) -> Result<(), Box<dyn Error>> {
    database.prepare().await?;
    for file in steps::files(folder)? {
        let name = steps::name(&file);
        if database.has(&name).await? {
            println!("{name}: done before");
            continue;
        }
        println!("{name}: running");
        // At each await that waits, `while_held` ends a migrator that has lost the lock. This one may not wait, and a
        // migrator may be paused here, so it checks the lock before the step.
        let sql = tokio::fs::read_to_string(&file).await?;
        guard.check()?;
        database.apply(&name, &sql, guard.token()).await?;
        println!("{name}: done");
    }
    Ok(())
}
