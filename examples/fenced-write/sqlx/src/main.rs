//! Tells the story of a paused holder, once for each way to write; its processes are this program again.
//! Not here: the story, the table and the holder.

#[path = "../../../program.rs"]
mod program;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use fenced_write_sqlx::{Ledger, Writer, hold, play};

#[tokio::main]
async fn main() -> ExitCode {
    program::end(run().await)
}

async fn run() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            for writer in Writer::ALL {
                tell(writer).await?;
            }
            Ok(())
        }
        ["hold", folder, writer, balance] => hold(Path::new(folder), writer.parse()?, balance.parse()?).await,
        _ => Err("fenced-write-sqlx takes no arguments".into()),
    }
}

async fn tell(writer: Writer) -> Result<(), Box<dyn Error>> {
    println!("The writer is {}.", writer.name());
    let folder = tempfile::tempdir()?;
    let ledger = Ledger::create(&folder.path().join("ledger.db"), writer).await?;
    let program = fs::canonicalize(env::current_exe()?)?;
    let holder = |balance: i64| {
        let mut command = Command::new(&program);
        command.arg("hold").arg(folder.path());
        command.args([writer.name(), &balance.to_string()]);
        command
    };
    play(holder, |event| println!("  {event}"))?;
    println!("  The balance is {}.\n", ledger.balance().await?);
    Ok(())
}
