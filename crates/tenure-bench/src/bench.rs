//! A whole run: measures the requested comparisons one by one, and writes the results.

use std::fs::File;
use std::io::Write;
use std::time::Duration;

use tenure_servers::is_installed;

use crate::Fallible;
use crate::cli::{Measuring, Pace};
use crate::contest::Disturbed;
use crate::plan::{Client, Pairing, name, pairings};
use crate::row::Row;
use crate::site::Sites;
use crate::{contest, report, site};

/// The tools that build clients in Java.
const JAVA: &[&str] = &["mvn", "javac"];

/// The tools that build clients in other languages.
const TOOLS: [(Client, &[&str]); 3] = [
    (Client::Redisson, JAVA),
    (Client::Curator, JAVA),
    (Client::Go, &["go"]),
];

pub(crate) fn run(args: &Measuring, usual: Pace) -> Fallible<()> {
    let selection = &args.selection;
    let (pace, distance) = (selection.pace(usual), selection.distance);
    let (mut made, mut notes) = pairings(&selection.workloads, &selection.stores, distance);
    let left_out: Vec<Client> = TOOLS
        .into_iter()
        .filter(|(_, tools)| !tools.iter().copied().all(is_installed))
        .map(|(client, tools)| {
            let (client_name, tools) = (name(client), tools.join("` and `"));
            notes.push(format!(
                "{client_name} is left out: it needs `{tools}`, which `cargo xtask setup` brings."
            ));
            client
        })
        .collect();
    for pairing in &mut made {
        pairing.only(&args.clients);
        pairing.clients.retain(|client| !left_out.contains(client));
    }
    for pairing in &made {
        site::check(pairing.store)?;
    }
    // Created before the measurement, so that a file that cannot be written is reported at once.
    let json = args.json.as_ref().map(File::create).transpose()?;
    let root = selection.dir.clone().unwrap_or_else(std::env::temp_dir);
    // Before any other thread starts: new threads inherit this thread's set of cores, which `prepare` may reduce.
    let sites = Sites::prepare(root, distance)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (rows, disturbed) = runtime.block_on(async {
        tokio::select! {
            measured = measure(&made, pace, args, &sites) => measured,
            // Dropping `measure` kills its processes and removes its folders.
            _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
        }
    })?;
    if let Some(file) = json {
        write_json(file, &rows)?;
    }
    print!("{}", report::section(&rows, notes, disturbed, pace, distance));
    Ok(())
}

async fn measure(
    made: &[Pairing],
    pace: Pace,
    args: &Measuring,
    sites: &Sites,
) -> Fallible<(Vec<Row>, Disturbed)> {
    let section = Duration::from_micros(args.section_us);
    let (mut rows, mut disturbed) = (Vec::new(), Disturbed::default());
    for pairing in made {
        eprintln!("{} on {} …", name(pairing.workload), name(pairing.store));
        rows.extend(contest::hold(pairing, pace, section, sites, &mut disturbed).await?);
    }
    Ok((rows, disturbed))
}

fn write_json(mut file: File, rows: &[Row]) -> Fallible<()> {
    for row in rows {
        serde_json::to_writer(&file, row)?;
        file.write_all(b"\n")?;
    }
    Ok(())
}
