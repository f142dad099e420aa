//! `tenure watch`: what it tells, and what ends it.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use rustix::process::Signal;

use crate::scene::{Scene, wait_for};

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
    watch.process.send(Signal::INT);
    watch.says_nothing_more();
    let done = watch.finish();
    assert_eq!((done.code, done.stderr.as_str()), (0, ""));
}

#[test]
fn people_get_a_line_for_each_change() {
    let scene = Scene::new();
    let hold = scene.holding(&["k", "--label", "ann"]);
    let mut watch = scene.command(&["watch"]).spawn().expect("the command starts");
    let mut lines = BufReader::new(watch.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    let held = next();
    assert!(
        held.starts_with("held ") && held.contains(" k  by ann (exclusive, token "),
        "{held}"
    );
    hold.release();
    assert!(next().starts_with("freed "));
    crate::scene::send(i32::try_from(watch.id()).expect("small"), Signal::TERM);
    assert_eq!(watch.wait().expect("it is our child").code(), Some(0));
    let stderr = std::io::read_to_string(watch.stderr.take().expect("piped")).expect("text");
    assert_eq!(stderr, "");
}

#[test]
fn it_ends_quietly_when_nobody_reads_it_even_if_nothing_changes() {
    let scene = Scene::new();
    for changes in [false, true] {
        let mut watch = scene.command(&["watch"]).spawn().expect("the command starts");
        drop(watch.stdout.take());
        let _hold = changes.then(|| scene.holding(&["k"]));
        wait_for("the end of the watch", || {
            watch.try_wait().expect("it is our child").is_some()
        });
        assert_eq!(watch.wait().expect("it is our child").code(), Some(0));
    }
}

#[test]
fn an_output_that_is_a_file_is_no_reason_to_end() {
    let scene = Scene::new();
    let file = std::fs::File::create(scene.path("out")).expect("the folder is ours");
    let mut command = scene.command(&["watch"]);
    let mut watch = command.stdout(Stdio::from(file)).spawn().expect("it starts");
    let hold = scene.holding(&["k"]);
    assert!(scene.lines("out", 1)[0].starts_with("held"));
    hold.release();
    assert!(scene.lines("out", 2)[1].starts_with("freed"));
    assert!(watch.try_wait().expect("it is our child").is_none());
    watch.kill().expect("it is our child");
    watch.wait().expect("it is our child");
}
