//! `tenure doctor`: its findings about the store and about the way it was chosen.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use tenure_servers::{Disk, Redis, needs};

use crate::fixture::{Done, Fixture};

/// A fixture in the folder of the build, which is usually on a disk. `doctor` would report a store in memory, where temporary
/// files may be.
fn on_a_disk() -> Fixture {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR"));
    Fixture {
        folder: folder.expect("a folder"),
    }
}

fn findings(done: &Done) -> Vec<&str> {
    done.stdout.lines().collect()
}

#[test]
fn doctor_without_findings_prints_a_summary_and_exits_0() {
    let fixture = on_a_disk();
    let done = fixture.call(&["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert!(
        done.stderr
            .ends_with("nothing found in the way the store was chosen\n"),
        "{done:?}"
    );
    fixture.call(&["run", "k", "--", "true"]);
    let done = fixture.call(&["doctor"]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    assert_eq!(done.stderr, format!("nothing found in {}\n", fixture.url()));
    let quiet = fixture.call(&["-q", "doctor"]);
    assert_eq!((quiet.code, quiet.stderr.as_str()), (0, ""));
    let json = fixture.call(&["--json", "doctor"]);
    assert_eq!((json.code, json.stdout + &json.stderr), (0, String::new()));
}

#[test]
fn doctor_prints_each_finding_with_its_consequence_and_exits_1() {
    let fixture = on_a_disk();
    fixture.call(&["run", "k", "--", "true"]);
    fs::set_permissions(fixture.path("locks.db"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let done = fixture.call(&["doctor"]);
    assert_eq!(done.code, 1, "{done:?}");
    assert!(!done.stdout.is_empty());
    for line in findings(&done) {
        assert!(line.starts_with("danger: other users can write "), "{line}");
        assert!(line.contains("; they can free or take every lock"), "{line}");
    }
    assert!(
        done.stderr.contains("danger") && done.stderr.ends_with(&format!(": found in {}\n", fixture.url()))
    );
    let json = fixture.call(&["--json", "doctor"]);
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
fn a_second_embedded_store_is_one_finding_and_a_note() {
    let fixture = on_a_disk();
    let call = |args: &[&str]| {
        let state = fixture.path("state").display().to_string();
        fixture.call_at_home(args, &[("XDG_STATE_HOME", &state)])
    };
    assert_eq!(call(&["--url", "sqlite:", "doctor"]).code, 0);
    fixture.call_at_home(&["-q", "run", "k", "--", "true"], &[]);
    let done = call(&["doctor"]);
    assert_eq!((done.code, findings(&done).len()), (1, 1), "{done:?}");
    let other = fixture.path("home/.local/state/tenure").display().to_string();
    assert!(
        done.stdout.contains(&other) && done.stdout.contains("XDG_STATE_HOME"),
        "{done:?}"
    );
    assert!(call(&["run", "k", "--", "true"]).stderr.contains(&other));
    assert_eq!(call(&["-q", "run", "k", "--", "true"]).stderr, "");
}

#[test]
fn url_findings_are_printed_even_if_the_store_is_unusable() {
    let fixture = Fixture::new();
    let file = fixture.write("url", "redis://u:s3cr3t@127.0.0.1:1", 0o644);
    let file = file.to_str().expect("text");
    for (args, word) in [
        (["--url", "redis://u:s3cr3t@127.0.0.1:1", "doctor"], "`ps`"),
        (["--url-file", file, "doctor"], "0644"),
    ] {
        let done = fixture.call_at_home(&args, &[]);
        assert!(done.code == 2 || done.code == 3, "{done:?}");
        assert!(
            findings(&done).len() == 1 && done.stdout.contains(word),
            "{done:?}"
        );
        assert!(!format!("{done:?}").contains("s3cr3t"), "{done:?}");
    }
}

#[test]
fn a_risk_of_every_store_of_the_kind_is_a_note() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let fixture = Fixture::new();
    let examine = |server: &Redis, flags: &[&str]| {
        let url = server.url();
        let args = [&["--url", &url], flags, &["doctor"]].concat();
        fixture.call_at_home(&args, &[])
    };
    let sound = Redis::start_on(Disk::EveryWrite, None).expect("it starts");
    let done = examine(&sound, &[]);
    assert_eq!((done.code, done.stdout.as_str()), (0, ""), "{done:?}");
    let stderr: Vec<&str> = done.stderr.lines().collect();
    assert!(
        stderr.len() == 2 && stderr[0].starts_with("note: redis may give a lock to another"),
        "{done:?}"
    );
    assert!(stderr[0].contains("clock is set forward") && stderr[0].contains("a replica takes over"));
    assert!(
        stderr[1].starts_with("1 note: nothing else found in redis:"),
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
