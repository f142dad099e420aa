//! `tenure watch`: what it prints, and how it ends.

use std::process::Stdio;

use rustix::process::Signal;

use crate::fixture::{Fixture, Process};

#[test]
fn watch_prints_the_present_state_and_changes_as_objects() {
    let fixture = Fixture::new();
    let first = fixture.hold(&["job:1", "--fair", "--label", "ann"]);
    let claim = first.next("acquired")["claim"].clone();
    let _other = fixture.hold(&["other"]);
    let watch = fixture.watch("job:");
    let held = watch.change("held");
    assert_eq!((&held["key"], &held["kind"]), (&"job:1".into(), &"mutex".into()));
    assert_eq!(
        (&held["holders"][0]["claim"], &held["holders"][0]["label"]),
        (&claim, &"ann".into())
    );
    let second = fixture.hold(&["job:1", "--fair", "--label", "bob"]);
    second.next("waiting");
    assert_eq!(watch.change("waiters")["waiters"][0]["label"], "bob");
    first.release();
    second.next("acquired");
    assert_eq!(watch.change("holders")["holders"][0]["label"], "bob");
    second.release();
    let freed = watch.change("freed");
    assert_eq!(
        (&freed["key"], &freed["holders"]),
        (&"job:1".into(), &serde_json::json!([]))
    );
    watch.send(Signal::INT);
    assert_eq!(watch.ends(0).stderr, "");
}

/// Checks the time with which a line begins, and returns the rest.
fn words(line: String) -> String {
    let (time, rest) = line.split_once("  ").expect("a time and words");
    let form: String = time
        .chars()
        .map(|c| if c.is_ascii_digit() { '9' } else { c })
        .collect();
    assert_eq!(form, "9999-99-99T99:99:99Z", "{line}");
    rest.to_owned()
}

#[test]
fn watch_prints_a_line_for_each_change() {
    let fixture = Fixture::new();
    let hold = fixture.holding(&["k", "--label", "ann"]);
    let watch = fixture.start(&["watch"]);
    let held = words(watch.line().expect("a line"));
    assert!(
        held.starts_with("held ") && held.contains(" k  by ann (exclusive, token "),
        "{held}"
    );
    hold.release();
    assert!(words(watch.line().expect("a line")).starts_with("freed "));
    watch.send(Signal::TERM);
    assert_eq!(watch.ends(0).stderr, "");
}

#[test]
fn watch_ends_without_an_error_when_its_output_is_closed() {
    let fixture = Fixture::new();
    for changes in [false, true] {
        let mut watch = fixture.command(&["watch"]).spawn().expect("the command starts");
        drop(watch.stdout.take());
        let _hold = changes.then(|| fixture.holding(&["k"]));
        Process::of(watch).ends(0);
    }
}

#[test]
fn watch_goes_on_when_its_output_is_a_file() {
    let fixture = Fixture::new();
    let file = std::fs::File::create(fixture.path("out")).expect("the folder is ours");
    let mut command = fixture.command(&["watch"]);
    let watch = command.stdout(Stdio::from(file)).spawn();
    let mut watch = Process::of(watch.expect("it starts"));
    let hold = fixture.holding(&["k"]);
    assert!(words(fixture.lines("out", 1)[0].clone()).starts_with("held"));
    hold.release();
    assert!(words(fixture.lines("out", 2)[1].clone()).starts_with("freed"));
    assert!(!watch.has_ended());
}
