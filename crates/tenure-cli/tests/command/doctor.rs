//! `tenure doctor`: what it finds, in the store and around it.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tenure_servers::{Disk, Redis, needs};

use crate::scene::{Done, Scene};

fn findings(done: &Done) -> Vec<&str> {
    done.stdout.lines().collect()
}

#[test]
fn where_nothing_is_wrong_it_prints_nothing_and_exits_0() {
    let scene = Scene::new();
    let done = scene.call(&["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert!(
        done.stderr
            .ends_with("nothing found in the way the store was chosen\n"),
        "{done:?}"
    );
    scene.call(&["run", "k", "--", "true"]);
    let done = scene.call(&["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert_eq!(done.stderr, format!("nothing found in {}\n", scene.url()));
    let quiet = scene.call(&["-q", "doctor"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    let json = scene.call(&["--json", "doctor"]);
    assert_eq!((json.code, json.stdout + &json.stderr), (0, String::new()));
}

#[test]
fn each_finding_is_a_line_with_its_consequence_and_exits_1() {
    let scene = Scene::new();
    scene.call(&["run", "k", "--", "true"]);
    fs::set_permissions(scene.path("locks.db"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let done = scene.call(&["doctor"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.is_empty());
    for line in findings(&done) {
        assert!(line.starts_with("danger: other users can write "), "{line}");
        assert!(line.contains("; they can free or take every lock"), "{line}");
    }
    assert!(
        done.stderr.contains("danger") && done.stderr.ends_with(&format!(": found in {}\n", scene.url()))
    );
    let json = scene.call(&["--json", "doctor"]);
    assert_eq!(json.stderr, "");
    assert_eq!((json.code, json.objects().len()), (1, findings(&done).len()));
    for found in json.objects() {
        assert_eq!(found["severity"], "danger");
        assert!(
            found["what"].is_string() && found["consequence"].is_string(),
            "{found}"
        );
    }
}

#[test]
fn a_second_store_of_this_user_is_found_once_and_told_on_stderr_by_every_verb() {
    let scene = Scene::new();
    let call = |args: &[&str]| {
        let state = scene.path("state").display().to_string();
        scene.call_at_home(args, &[("XDG_STATE_HOME", &state)])
    };
    assert_eq!(call(&["--url", "sqlite:", "doctor"]).code, 0);
    scene.call_at_home(&["-q", "run", "k", "--", "true"], &[]);
    let done = call(&["doctor"]);
    assert_eq!((done.code, findings(&done).len()), (1, 1), "{done:?}");
    let other = scene.path("home/.local/state/tenure").display().to_string();
    assert!(
        done.stdout.contains(&other) && done.stdout.contains("XDG_STATE_HOME"),
        "{done:?}"
    );
    assert!(call(&["run", "k", "--", "true"]).stderr.contains(&other));
    assert_eq!(call(&["-q", "run", "k", "--", "true"]).stderr, "");
}

#[test]
fn what_is_wrong_with_the_url_is_told_even_if_the_store_cannot_be_used() {
    let scene = Scene::new();
    let file = scene.write("url", "redis://u:s3cr3t@127.0.0.1:1", 0o644);
    let file = file.to_str().expect("text");
    for (args, word) in [
        (["--url", "redis://u:s3cr3t@127.0.0.1:1", "doctor"], "`ps`"),
        (["--url-file", file, "doctor"], "0644"),
    ] {
        let done = scene.call_at_home(&args, &[]);
        assert!(done.code == 2 || done.code == 3, "{done:?}");
        assert!(
            findings(&done).len() == 1 && done.stdout.contains(word),
            "{done:?}"
        );
        assert!(!format!("{done:?}").contains("s3cr3t"), "{done:?}");
    }
}

#[test]
fn what_every_store_of_a_kind_risks_is_a_note_before_what_is_wrong_with_this_one() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let scene = Scene::new();
    let examine = |server: &Redis, flags: &[&str]| {
        let url = server.url();
        let args = [&["--url", &url], flags, &["doctor"]].concat();
        scene.call_at_home(&args, &[])
    };
    let sound = Redis::start_on(Disk::EveryWrite, None).expect("it starts");
    let done = examine(&sound, &[]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    let said: Vec<&str> = done.stderr.lines().collect();
    assert!(
        said.len() == 2 && said[0].starts_with("note: redis may give a lock to another"),
        "{done:?}"
    );
    assert!(said[0].contains("clock is set forward") && said[0].contains("a replica takes over"));
    assert!(
        said[1].starts_with("1 note: nothing else found in redis:"),
        "{done:?}"
    );
    let quiet = examine(&sound, &["-q"]);
    assert_eq!((quiet.code, quiet.stdout + &quiet.stderr), (0, String::new()));
    let forgetful = Redis::start_on(Disk::Nothing, None).expect("it starts");
    let done = examine(&forgetful, &[]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(done.stdout.contains("append-only file is off"), "{done:?}");
    let summary = done.stderr.lines().last().expect("a summary");
    assert!(
        summary.ends_with(&format!(", 1 note: found in {}", forgetful.url())),
        "{done:?}"
    );
}
