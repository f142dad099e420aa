//! `tenure doctor`: everything that weakens locks, in the store and in the way it was chosen.

use tenure::Profile;
use tenure::backend::escape_control;
use tenure::inspect::{Finding, Severity};

use super::store::{ChosenStore, disconnect};
use crate::args::Global;
use crate::messages::{Failure, note, summary};
use crate::output;

const SOUND: u8 = 0;
const FINDINGS: u8 = 1;

/// Prints each finding as a line, and a summary on stderr.
pub(super) async fn doctor(global: &Global) -> Result<u8, Failure> {
    let store = ChosenStore::of(global)?;
    let own = store.findings();
    // Print the findings about the choice of the store first: a store that cannot be reached must not hide them.
    print(global, &own)?;
    if store.is_absent(global)? {
        return Ok(summarize(global, &own, 0, "the way the store was chosen"));
    }
    let client = store.connect_to_inspect().await?;
    let (notes, weak) = split_findings(client.profile());
    for text in &notes {
        note(global.quiet, text);
    }
    print(global, &weak)?;
    let examined = client.examine().await;
    disconnect(&client).await;
    let found = examined
        .map_err(|error| Failure::of(format!("cannot examine the store {}", store.masked_url), &error))?;
    print(global, &found)?;
    let all = [own, weak, found].concat();
    Ok(summarize(global, &all, notes.len(), &store.masked_url))
}

/// Prints the summary, and returns the exit code: 1 if there are findings. The `notes` about the kind of store are
/// counted in the summary, but are no findings.
fn summarize(global: &Global, findings: &[Finding], notes: usize, place: &str) -> u8 {
    let count = |severity| findings.iter().filter(|found| found.severity == severity).count();
    let counts = [
        (count(Severity::Danger), "danger", "dangers"),
        (count(Severity::Warning), "warning", "warnings"),
        (count(Severity::Note) + notes, "note", "notes"),
    ];
    let counted = counts.iter().filter(|(count, ..)| *count > 0);
    let counted: Vec<String> = counted
        .map(|(count, one, many)| format!("{count} {}", if *count == 1 { one } else { many }))
        .collect();
    let words = match (findings, notes) {
        ([], 0) => format!("nothing found in {place}"),
        ([], _) => format!("{}: nothing else found in {place}", counted.join(", ")),
        _ => format!("{}: found in {place}", counted.join(", ")),
    };
    summary(global.quiet || global.json, &words);
    if findings.is_empty() { SOUND } else { FINDINGS }
}

/// Splits a profile's findings into notes and the rest. A note holds for every store of the kind, however it is set up.
/// If it counted as a finding, `doctor` could never exit with 0 on such a store.
fn split_findings(profile: &Profile) -> (Vec<String>, Vec<Finding>) {
    let is_note = |finding: &Finding| finding.severity == Severity::Note;
    let (notes, weak): (Vec<Finding>, _) = profile.findings().into_iter().partition(is_note);
    (notes.iter().map(sentence).collect(), weak)
}

fn print(global: &Global, findings: &[Finding]) -> Result<(), Failure> {
    let line = |finding: &Finding| {
        if global.json {
            output::object(finding)
        } else {
            let line = format!("{}: {}", finding.severity, sentence(finding)).replace('\n', " ");
            format!("{}\n", escape_control(&line)).into_bytes()
        }
    };
    let lines: Vec<u8> = findings.iter().flat_map(line).collect();
    output::print(&lines)
}

fn sentence(finding: &Finding) -> String {
    format!("{}; {}", finding.what, finding.consequence)
}
