//! The table of clients and cases in docs/interop.md.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cases::CASES;
use crate::subject::SUBJECTS;

const BEGINNING: &str = "<!-- The table is written by `cargo xtask interop-table`. -->\n";
const END: &str = "<!-- End of the table. -->\n";

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/interop.md")
}

/// Returns whether the page has the table of the present cases.
pub(crate) fn is_up_to_date() -> bool {
    let text = fs::read_to_string(page()).expect("the page can be read");
    text == with_table(&text)
}

/// Replaces the table of the page.
pub(crate) fn write() {
    let text = fs::read_to_string(page()).expect("the page can be read");
    fs::write(page(), with_table(&text)).expect("the page can be written");
}

fn with_table(text: &str) -> String {
    let (before, rest) = text
        .split_once(BEGINNING)
        .expect("the page says where the table begins");
    let (_, after) = rest.split_once(END).expect("the page says where the table ends");
    format!("{before}{BEGINNING}{}{END}{after}", table())
}

/// A row for each case, and a column for each kind of lock.
fn table() -> String {
    let mut rows = vec![
        row("", |subject| subject.name.to_owned()),
        row("---", |_| "---".to_owned()),
    ];
    rows.push(row("tested with", |subject| {
        let names: Vec<_> = subject.drivers.iter().map(|driver| driver.name()).collect();
        names.join(", ")
    }));
    rows.extend(CASES.iter().map(|case| {
        row(case.shows, |subject| {
            let mut drivers = subject.drivers.to_vec();
            drivers.retain(|driver| (case.is_about)(subject, *driver));
            match drivers[..] {
                [] => String::new(),
                [only] if subject.drivers.len() > 1 => format!("{}, {}", (case.cell)(subject), only.name()),
                _ => (case.cell)(subject),
            }
        })
    }));
    rows.concat()
}

fn row(first: &str, cell: impl Fn(&crate::subject::Subject) -> String) -> String {
    let cells: Vec<_> = SUBJECTS.iter().map(cell).collect();
    format!("| {first} | {} |\n", cells.join(" | "))
}
