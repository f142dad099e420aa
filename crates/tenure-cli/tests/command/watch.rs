//! `tenure watch`: what it tells, and what ends it.

use std::process::Stdio;

use rustix::process::Signal;

use crate::scene::{Process, Scene};

#[test]
fn it_tells_what_stands_and_what_changes_as_objects() {
    let scene = Scene::new();
    let first = scene.hold(&["job:1", "--fair", "--label", "ann"]);
    let claim = first.next("acquired")["claim"].clone();
    let _other = scene.hold(&["other"]);
    let watch = scene.watch("job:");
    let held = watch.change("held");
    assert_eq!((&held["key"], &held["kind"]), (&"job:1".into(), &"mutex".into()));
    assert_eq!(
        (&held["holders"][0]["claim"], &held["holders"][0]["label"]),
        (&claim, &"ann".into())
    );
    let second = scene.hold(&["job:1", "--fair", "--label", "bob"]);
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

#[test]
fn people_get_a_line_for_each_change() {
    let scene = Scene::new();
    let hold = scene.holding(&["k", "--label", "ann"]);
    let watch = scene.start(&["watch"]);
    let held = watch.line().expect("a line");
    assert!(
        held.starts_with("held ") && held.contains(" k  by ann (exclusive, token "),
        "{held}"
    );
    hold.release();
    assert!(watch.line().expect("a line").starts_with("freed "));
    watch.send(Signal::TERM);
    assert_eq!(watch.ends(0).stderr, "");
}

#[test]
fn it_ends_quietly_when_nobody_reads_it_even_if_nothing_changes() {
    let scene = Scene::new();
    for changes in [false, true] {
        let mut watch = scene.command(&["watch"]).spawn().expect("the command starts");
        drop(watch.stdout.take());
        let _hold = changes.then(|| scene.holding(&["k"]));
        Process::of(watch).ends(0);
    }
}

#[test]
fn an_output_that_is_a_file_is_no_reason_to_end() {
    let scene = Scene::new();
    let file = std::fs::File::create(scene.path("out")).expect("the folder is ours");
    let mut command = scene.command(&["watch"]);
    let watch = command.stdout(Stdio::from(file)).spawn();
    let mut watch = Process::of(watch.expect("it starts"));
    let hold = scene.holding(&["k"]);
    assert!(scene.lines("out", 1)[0].starts_with("held"));
    hold.release();
    assert!(scene.lines("out", 2)[1].starts_with("freed"));
    assert!(!watch.has_ended());
}
