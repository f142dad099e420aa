//! `tenure man`, read by those who read manual pages.

use std::io::Write;
use std::process::{Command, Stdio};

use tenure_servers::needs;

use crate::scene::{Done, Scene};

/// A filter's output for a page.
fn read_by(program: &str, args: &[&str], page: &str) -> Done {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("it is installed");
    let mut stdin = child.stdin.take().expect("piped");
    let page = page.to_owned();
    let writer = std::thread::spawn(move || stdin.write_all(page.as_bytes()));
    let done = Done::of(child.wait_with_output().expect("it is our child"));
    writer.join().expect("no panic").expect("it reads to the end");
    done
}

#[test]
fn every_page_is_sound_and_shows_the_options_and_the_notes_line_by_line() {
    if !needs("mandoc", "mandoc") {
        return;
    }
    let scene = Scene::new();
    let main = scene.call(&["man"]).stdout;
    let verbs = main
        .lines()
        .filter_map(|line| line.strip_prefix("tenure\\-")?.strip_suffix("(1)"));
    let pages: Vec<String> = verbs.map(|verb| scene.call(&["man", verb]).stdout).collect();
    assert_eq!(pages.len(), 11, "a page for each verb");
    for page in pages.iter().chain([&main]) {
        let lint = read_by("mandoc", &["-T", "lint", "-W", "error"], page);
        assert_eq!((lint.code, lint.stdout.as_str()), (0, ""), "{page}: {lint:?}");
        assert!(
            page.starts_with(".TH TENURE") && page.contains(".SH SYNOPSIS"),
            "{page}"
        );
    }
    let run = read_by("mandoc", &["-T", "ascii"], &scene.call(&["man", "run"]).stdout).stdout;
    assert!(run.contains("\n       Not promised:\n"), "{run}");
}
