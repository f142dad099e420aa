//! Demonstrates what happens to the write of a holder that was paused for too long, once for each [`Writer`], i.e.
//! with and without fencing. Each holder is a process of this program.

#[path = "../../program.rs"]
mod program;

use std::error::Error;
use std::path::Path;
use std::process::{Command, ExitCode};
use std::{env, fs};

use fenced_write::{Ledger, Writer, hold, play};

const USAGE: &str = "usage: fenced-write

Shows what happens to the write of a holder that was paused for longer than its lease, with and without fencing tokens.";

fn main() -> ExitCode {
    program::end(run())
}

fn run() -> Result<(), Box<dyn Error>> {
    if program::has_printed(USAGE) {
        return Ok(());
    }
    let arguments: Vec<String> = env::args().skip(1).collect();
    match &arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Writer::ALL.into_iter().try_for_each(tell),
        ["hold", folder, writer, balance] => hold(Path::new(folder), writer.parse()?, balance.parse()?),
        _ => Err("fenced-write takes no arguments".into()),
    }
}

fn tell(writer: Writer) -> Result<(), Box<dyn Error>> {
    println!("The writer is {}.", writer.name());
    let folder = tempfile::tempdir()?;
    let ledger = Ledger::create(&folder.path().join("ledger.db"), writer)?;
    let program = fs::canonicalize(env::current_exe()?)?;
    let holder = |balance: i64| {
        let mut command = Command::new(&program);
        command.arg("hold").arg(folder.path());
        command.args([writer.name(), &balance.to_string()]);
        command
    };
    play(holder, |event| println!("  {event}"));
    println!("  The balance is {}.\n", ledger.balance()?);
    Ok(())
}
