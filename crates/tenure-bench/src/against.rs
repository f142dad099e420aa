//! Runs the same workloads with two builds of this program, in alternating rounds, and compares their rates.
//!
//! Each round of a build is a new process, which runs `full --rounds 1 --json FILE` for one workload on one store. So
//! an old build without the verb `against` can take part. The process repeats a round that was disturbed by the host
//! of this virtual machine.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Deserialize;

use crate::Fallible;
use crate::cli::{Against, FULL, Selection};
use crate::plan::{Client, Pairing, Store, Workload, left_out, name, pairings};
use crate::report::{table, thousands};
use crate::site;
use crate::stats::{NO_CONCLUSION, Ratio, median, ratio};
use crate::stolen::{CoresTime, part};

/// A row fails if the upper bound of its ratio (new rate to old rate) is below this.
const SLOWER: f64 = 0.9;

/// Exit code of a build that does not know the workload, store or client.
const USAGE: i32 = 2;

const HEAD: [&str; 7] = [
    "workload",
    "store",
    "client",
    "old/s",
    "new/s",
    "new beside old",
    "",
];

/// Rates of two builds in the same row (workload, store and client): one rate for each build and round.
struct Compared {
    workload: Workload,
    store: Store,
    client: Client,
    old: Vec<f64>,
    new: Vec<f64>,
}

impl Compared {
    fn ratio(&self) -> Option<Ratio> {
        ratio(&self.new, &self.old)
    }

    fn is_slower(&self) -> bool {
        self.ratio().is_some_and(|ratio| ratio.high < SLOWER)
    }

    fn cells(&self) -> Vec<String> {
        vec![
            name(self.workload),
            name(self.store),
            name(self.client),
            thousands(median(&self.old)),
            thousands(median(&self.new)),
            self.ratio()
                .map_or(NO_CONCLUSION.to_owned(), |ratio| ratio.to_string()),
            if self.is_slower() { "slower" } else { "" }.to_owned(),
        ]
    }
}

/// Compares this build to the old one at `args.program`.
///
/// # Errors
/// The new build is slower in a row of the table than `SLOWER` allows, or a build failed.
pub(crate) fn run(args: &Against) -> Fallible<()> {
    let selection = &args.selection;
    let (mut made, mut notes) = pairings(&selection.workloads, &selection.stores, selection.distance);
    for pairing in &mut made {
        pairing.only(&[Client::Tenure, Client::TenureNoLocalHandover]);
        site::check(pairing.store)?;
    }
    let new = std::env::current_exe()?;
    let before = CoresTime::now();
    let mut rows = Vec::new();
    for pairing in &made {
        let &Pairing { workload, store, .. } = pairing;
        eprintln!("{} on {} …", name(workload), name(store));
        match alternate([&args.program, &new], pairing, selection)? {
            Some(compared) => rows.extend(compared),
            None => notes.push(left_out(workload, store, "the old build does not have it")),
        }
    }
    let cells: Vec<_> = rows.iter().map(Compared::cells).collect();
    print!("{}", table(&HEAD, &cells));
    for note in notes {
        println!("\n{note}");
    }
    let stolen = 100.0 * part(before, CoresTime::now());
    println!(
        "\nThe host took {stolen:.1} % of the cores' time. Both builds repeat a round that it disturbed."
    );
    match rows.iter().filter(|row| row.is_slower()).count() {
        0 => Ok(()),
        count => {
            Err(format!("{count} rows are slower: below {SLOWER} times the old rate with both bounds").into())
        }
    }
}

/// Runs all rounds of a pairing (a workload, a store and clients) with both builds. Returns `None` if the old build
/// does not know one of these.
fn alternate(
    programs: [&Path; 2],
    pairing: &Pairing,
    selection: &Selection,
) -> Fallible<Option<Vec<Compared>>> {
    let rates = |program| round(program, pairing, selection);
    // This round does not count. It shows whether the old build can take part, and warms the disk's caches.
    if rates(programs[0])?.is_none() {
        return Ok(None);
    }
    let row = |&client: &Client| Compared {
        workload: pairing.workload,
        store: pairing.store,
        client,
        old: Vec::new(),
        new: Vec::new(),
    };
    let mut rows: Vec<Compared> = pairing.clients.iter().map(row).collect();
    for number in 0..selection.rounds.unwrap_or(FULL.rounds) {
        for is_new in order(number) {
            let program = programs[usize::from(is_new)];
            let rates = rates(program)?.ok_or_else(|| format!("{} did not run", program.display()))?;
            for (row, rate) in rows.iter_mut().zip(rates) {
                if is_new {
                    row.new.push(rate)
                } else {
                    row.old.push(rate)
                }
            }
        }
    }
    Ok(Some(rows))
}

/// The order of the builds in a round; `true` is the new one. They take turns to run first.
fn order(round: u32) -> [bool; 2] {
    let new_first = round % 2 == 1;
    [new_first, !new_first]
}

/// Runs one round of a build. Returns a rate for each client of the pairing; `None` if the build does not know the
/// workload, the store or a client, or measured no rate for one of the clients.
fn round(program: &Path, pairing: &Pairing, selection: &Selection) -> Fallible<Option<Vec<f64>>> {
    #[derive(Deserialize)]
    struct Row {
        client: String,
        rate_per_s: f64,
    }
    let folder = tempfile::tempdir()?;
    let json: PathBuf = folder.path().join("rows.json");
    let clients: Vec<String> = pairing.clients.iter().copied().map(name).collect();
    let mut command = Command::new(program);
    command.args(["full", "--rounds", "1", "--client", &clients.join(",")]);
    command.args(["--workload", &name(pairing.workload)]);
    command.args(["--store", &name(pairing.store)]);
    command.args(["--distance", &name(selection.distance)]);
    command.arg("--json").arg(&json);
    if let Some(dir) = &selection.dir {
        command.arg("--dir").arg(dir);
    }
    if let Some(round_ms) = selection.round_ms {
        command.args(["--round-ms", &round_ms.to_string()]);
    }
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", program.display()))?;
    if output.status.code() == Some(USAGE) {
        return Ok(None);
    }
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed ({}):\n{said}", program.display(), output.status).into());
    }
    let text = std::fs::read_to_string(json)?;
    let rows: Vec<Row> = text.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let rate_of = |client: &String| Some(rows.iter().find(|row| row.client == *client)?.rate_per_s);
    Ok(clients.iter().map(rate_of).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compared(new: &[f64]) -> Compared {
        Compared {
            workload: Workload::Solo,
            store: Store::Memory,
            client: Client::Tenure,
            old: vec![100.0; new.len()],
            new: new.to_vec(),
        }
    }

    #[test]
    fn a_row_is_slower_if_both_bounds_are_below_nine_tenths() {
        assert!(compared(&[89.0, 70.0, 80.0]).is_slower());
        assert!(!compared(&[91.0, 70.0, 80.0]).is_slower());
        assert!(!compared(&[100.0, 120.0, 95.0]).is_slower());
    }

    #[test]
    fn a_rate_of_zero_allows_no_conclusion() {
        let row = Compared {
            old: vec![0.0],
            ..compared(&[0.0])
        };
        assert!(!row.is_slower());
        assert_eq!(row.cells()[5], "no conclusion");
    }

    #[test]
    fn the_builds_alternate_in_running_first() {
        assert_eq!([order(0), order(1)], [[false, true], [true, false]]);
    }
}
