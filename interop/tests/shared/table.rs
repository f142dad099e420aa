//! A table of clients and cases in docs/interop.md.

use std::fs;
use std::path::{Path, PathBuf};

use super::cases::Case;
use super::subject::Subject;

/// A table with a column for each kind of lock, and a row for each case.
pub(crate) struct Table {
    pub(crate) name: &'static str,
    pub(crate) subjects: &'static [Subject],
    pub(crate) cases: &'static [Case],
}

fn page() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/interop.md")
}

impl Table {
    /// Returns whether the page has the table of the present cases.
    pub(crate) fn is_up_to_date(&self) -> bool {
        let text = fs::read_to_string(page()).expect("the page can be read");
        text == self.replaced_in(&text)
    }

    /// Replaces the table of the page.
    pub(crate) fn write(&self) {
        let text = fs::read_to_string(page()).expect("the page can be read");
        fs::write(page(), self.replaced_in(&text)).expect("the page can be written");
    }

    fn replaced_in(&self, text: &str) -> String {
        let name = self.name;
        let beginning = format!("<!-- The table of {name} is written by `cargo xtask interop-table`. -->\n");
        let end = format!("<!-- End of the table of {name}. -->\n");
        let (before, rest) = text
            .split_once(&beginning)
            .expect("the page says where the table begins");
        let (_, after) = rest.split_once(&end).expect("the page says where the table ends");
        format!("{before}{beginning}{}{end}{after}", self.rows())
    }

    fn rows(&self) -> String {
        let mut rows = vec![
            self.row("", |subject| subject.name.to_owned()),
            self.row("---", |_| "---".to_owned()),
        ];
        rows.push(self.row("tested with", |subject| {
            let names: Vec<_> = subject.drivers.iter().map(|driver| driver.name()).collect();
            names.join(", ")
        }));
        rows.extend(self.cases.iter().map(|case| {
            self.row(case.shows, |subject| {
                let mut drivers = subject.drivers.to_vec();
                drivers.retain(|driver| (case.is_about)(subject, *driver));
                match drivers[..] {
                    [] => String::new(),
                    [only] if subject.drivers.len() > 1 => {
                        format!("{}, {}", (case.cell)(subject), only.name())
                    }
                    _ => (case.cell)(subject),
                }
            })
        }));
        rows.concat()
    }

    fn row(&self, first: &str, cell: impl Fn(&Subject) -> String) -> String {
        let cells: Vec<_> = self.subjects.iter().map(cell).collect();
        format!("| {first} | {} |\n", cells.join(" | "))
    }
}
