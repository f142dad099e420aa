//! `tenure doctor`: everything that weakens locks, in the store and in the way it was chosen.
//! It looks and repairs nothing; what is found is `store_findings`' and the library's.

use serde::Serialize;
use tenure::Finding;

use super::store::{Chosen, leave};
use crate::args::Global;
use crate::output;
use crate::words::{Failure, note};

const SOUND: u8 = 0;
const FINDINGS: u8 = 1;

/// A finding, for programs.
#[derive(Serialize)]
struct Found<'a> {
    severity: String,
    what: &'a str,
    consequence: &'a str,
}

/// Prints what it finds, a line each.
pub(super) async fn doctor(global: &Global) -> Result<u8, Failure> {
    let store = Chosen::of(global)?;
    let own = store.findings();
    // Before the store is touched: one that cannot be reached does not hide them.
    print(global, &own)?;
    let client = store.connect(None).await?;
    let examined = client.examine().await;
    leave(&client).await;
    let mut found =
        examined.map_err(|error| Failure::of(format!("cannot examine the store {}", store.shown), &error))?;
    // The library knows of a second embedded store too.
    let other = store.other_store();
    found.retain(|finding| other.as_ref().is_none_or(|other| !finding.what.contains(other)));
    print(global, &found)?;
    if own.is_empty() && found.is_empty() {
        if !global.json {
            note(
                global.quiet,
                &format!("nothing weakens the locks in {}", store.shown),
            );
        }
        return Ok(SOUND);
    }
    Ok(FINDINGS)
}

fn print(global: &Global, findings: &[Finding]) -> Result<(), Failure> {
    let line = |finding: &Finding| {
        let Finding {
            severity,
            what,
            consequence,
        } = finding;
        if global.json {
            output::object(&Found {
                severity: severity.to_string(),
                what,
                consequence,
            })
        } else {
            let line = format!("{severity}: {what}; {consequence}").replace('\n', " ");
            format!("{line}\n").into_bytes()
        }
    };
    let lines: Vec<u8> = findings.iter().flat_map(line).collect();
    output::print(&lines)
}
