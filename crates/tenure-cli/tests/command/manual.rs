//! `tenure man`: the program `mandoc` checks and formats the pages.

use std::process::Command;

use tenure_servers::needs;

use crate::fixture::{Done, Fixture};

#[test]
fn every_manual_page_shows_options_and_unfilled_notes() {
    if !needs("mandoc", "mandoc") {
        return;
    }
    let fixture = Fixture::new();
    let mandoc = |args: &[&str], page: &str| {
        let file = fixture.write("page", page, 0o600);
        Done::by(Command::new("mandoc").args(args).arg(file))
    };
    let main = fixture.call(&["man"]).stdout;
    let verbs = main
        .lines()
        .filter_map(|line| line.strip_prefix("tenure\\-")?.strip_suffix("(1)"));
    // The page of tenure describes `tenure help`, which has no page of its own.
    let pages = verbs.filter(|verb| *verb != "help").map(|verb| {
        let page = fixture.call(&["man", verb]).stdout;
        assert!(
            page.starts_with(&format!(".TH TENURE-{} 1", verb.to_uppercase())),
            "{page}"
        );
        page
    });
    let pages: Vec<String> = pages.collect();
    assert_eq!(pages.len(), 11, "a page for each verb");
    for page in pages.iter().chain([&main]) {
        let lint = mandoc(&["-T", "lint", "-W", "error"], page);
        assert_eq!((lint.code, lint.stdout.as_str()), (0, ""), "{page}: {lint:?}");
        assert!(page.contains(".SH SYNOPSIS"), "{page}");
    }
    for page in [main, fixture.call(&["man", "run"]).stdout] {
        for section in ["DESCRIPTION", "EXIT STATUS", "ENVIRONMENT", "FILES", "SEE ALSO"] {
            assert!(page.contains(&format!("\n.SH {section}\n")), "{section}: {page}");
        }
        let shown = mandoc(&["-T", "ascii"], &page).stdout;
        assert!(shown.contains("\n       Not promised:\n"), "{shown}");
        assert!(shown.contains("--busy-exit"), "{shown}");
    }
}

#[test]
fn every_page_is_written_into_a_folder() {
    let fixture = Fixture::new();
    let folder = fixture.path("share/man1");
    let folder = folder.to_str().expect("a temporary path is text");
    let written = fixture.call(&["man", "--out", folder]);
    assert_eq!(
        (written.code, written.stdout.lines().count()),
        (0, 12),
        "{written:?}"
    );
    for file in written.stdout.lines() {
        let verb = file.rsplit("/tenure").next().expect("a last part");
        let verb = verb.trim_start_matches('-').trim_end_matches(".1");
        let args: Vec<&str> = ["man", verb]
            .into_iter()
            .filter(|word| !word.is_empty())
            .collect();
        let page = std::fs::read_to_string(file).expect("it was written");
        assert_eq!(page, fixture.call(&args).stdout, "{file}");
    }
    assert_eq!(fixture.call(&["man", "run", "--out", folder]).code, 2);
}

#[test]
fn the_help_of_at_least_says_that_tenure_stays() {
    for verb in ["run", "hold"] {
        let help = Fixture::new().call(&[verb, "--help"]).stdout;
        let words = help.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(words.contains("`tenure` itself ends only then"), "{verb}: {help}");
    }
}
