//! `tenure doctor`: everything that weakens locks, in the store and in the way it was chosen.

use serde::Serialize;
use tenure::backend::escape_control;
use tenure::{Finding, Profile, Severity};

use super::store::{Chosen, leave};
use crate::args::Global;
use crate::output;
use crate::words::{Failure, note, note_as_is};

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
    if store.is_absent(global)? {
        return Ok(if own.is_empty() { SOUND } else { FINDINGS });
    }
    let client = store.connect(None).await?;
    let (notes, weak) = by_nature(client.profile());
    for said in &notes {
        note(global.quiet, said);
    }
    print(global, &weak)?;
    let examined = client.examine().await;
    leave(&client).await;
    let found =
        examined.map_err(|error| Failure::of(format!("cannot examine the store {}", store.shown), &error))?;
    print(global, &found)?;
    if [own, weak, found].iter().any(|findings| !findings.is_empty()) {
        return Ok(FINDINGS);
    }
    if !global.json {
        let nothing = if notes.is_empty() {
            "nothing"
        } else {
            "nothing else"
        };
        let words = format!("{nothing} weakens the locks in {}", store.shown);
        note_as_is(global.quiet, &words);
    }
    Ok(SOUND)
}

/// What is good to know of every such store, and what is a finding. A note is no finding here: nobody could mend it by
/// setting up the store differently, so a sound one would never be told from others.
fn by_nature(profile: &Profile) -> (Vec<String>, Vec<Finding>) {
    let is_note = |finding: &Finding| finding.severity == Severity::Note;
    let (notes, weak): (Vec<Finding>, _) = profile.findings().into_iter().partition(is_note);
    (notes.iter().map(sentence).collect(), weak)
}

fn print(global: &Global, findings: &[Finding]) -> Result<(), Failure> {
    let line = |finding: &Finding| {
        let severity = finding.severity.to_string();
        if global.json {
            let (what, consequence) = (&finding.what, &finding.consequence);
            output::object(&Found {
                severity,
                what,
                consequence,
            })
        } else {
            let line = format!("{severity}: {}", sentence(finding)).replace('\n', " ");
            format!("{}\n", escape_control(&line)).into_bytes()
        }
    };
    let lines: Vec<u8> = findings.iter().flat_map(line).collect();
    output::print(&lines)
}

fn sentence(finding: &Finding) -> String {
    format!("{}; {}", finding.what, finding.consequence)
}
