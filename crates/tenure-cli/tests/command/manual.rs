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
    let pages = verbs.map(|verb| {
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
        let shown = mandoc(&["-T", "ascii"], &page).stdout;
        assert!(shown.contains("\n       Not promised:\n"), "{shown}");
        assert!(shown.contains("--busy-exit"), "{shown}");
    }
}
