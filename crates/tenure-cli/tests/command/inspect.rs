//! `ls`, `show` and `evict`: what they print, and what `evict` frees.

use crate::fixture::{Fixture, Process};

#[test]
fn ls_prints_an_object_per_key_within_prefix_and_limit() {
    let fixture = Fixture::new();
    let holds = ["a:1", "a:2", "b"].map(|key| fixture.holding(&[key]));
    let keys = |args: &[&str]| -> Vec<String> {
        let done = fixture.call(&[&["--json", "ls"], args].concat());
        assert_eq!(done.code, 0);
        let keys = done.objects();
        keys.iter()
            .map(|object| object["key"].as_str().expect("a key").to_owned())
            .collect()
    };
    assert_eq!(keys(&[]), ["a:1", "a:2", "b"]);
    assert_eq!(keys(&["a:"]), ["a:1", "a:2"]);
    assert_eq!(keys(&["c"]), [""; 0]);
    assert_eq!(keys(&["--limit", "2"]).len(), 2);
    assert!(fixture.call(&["ls", "--limit", "2"]).stderr.contains("more keys"));
    assert_eq!(fixture.call(&["ls", "--limit", "3"]).stderr, "");
    holds.into_iter().for_each(Process::release);
}

#[test]
fn ls_and_show_print_holders_and_waiters() {
    let fixture = Fixture::new();
    let first = fixture.holding(&["k", "--fair", "--label", "ann"]);
    let second = fixture.hold(&["k", "--fair", "--label", "bob"]);
    second.next("waiting");
    let list = fixture.call(&["ls"]).stdout;
    assert!(list.starts_with("KEY") && list.contains("ann"), "{list}");
    let shown = fixture.call(&["show", "k"]).stdout;
    assert!(shown.contains("ann") && shown.contains("bob"), "{shown}");
    first.release();
    second.next("acquired");
    second.release();
    let free = fixture.call(&["show", "k"]);
    assert_eq!((free.code, free.stdout.contains("\nnot held\n")), (0, true));
}

#[test]
fn a_free_key_is_shown_as_an_object_without_a_kind() {
    let fixture = Fixture::new();
    let shown = fixture.shown("k");
    assert_eq!(shown["key"], "k");
    assert!(shown["kind"].is_null());
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(0));
}

/// An operator may mistype the path, or look before the service has run. A file created then would belong to the
/// operator, perhaps to root.
#[test]
fn inspecting_creates_no_lock_file() {
    let fixture = Fixture::new();
    for verb in [&["ls"][..], &["show", "k"], &["evict", "k", "--all"], &["doctor"]] {
        for format in [&[][..], &["--json"]] {
            let done = fixture.call(&[format, verb].concat());
            // `evict` found nothing to free.
            assert_eq!(done.code, i32::from(verb[0] == "evict"), "{verb:?}: {done:?}");
            assert!(
                done.stderr.contains("there is no lock file"),
                "{verb:?}: {done:?}"
            );
        }
        let done = fixture.call_at_home(&[&["--url", "sqlite:x.db?wibble=1"], verb].concat(), &[]);
        assert_ne!(done.code, 0, "a bad option is one all the same: {done:?}");
        assert!(!fixture.path("locks.db").exists(), "{verb:?}");
    }
}

#[test]
fn an_eviction_frees_one_claim_or_all_and_says_which() {
    let fixture = Fixture::new();
    let readers = [fixture.hold(&["k", "-s"]), fixture.hold(&["k", "-s"])];
    let claims = readers
        .each_ref()
        .map(|reader| reader.next("acquired")["claim"].clone());
    let name = claims[0].as_str().expect("a claim is text");
    let freed = &fixture.call(&["--json", "evict", "k", "--claim", name]).objects()[0];
    assert_eq!(freed["freed"], serde_json::json!([name]));
    let left = &fixture.shown("k")["holders"];
    assert_eq!(
        (left.as_array().map(Vec::len), &left[0]["claim"]),
        (Some(1), &claims[1])
    );
    let text = fixture.call(&["evict", "k", "--all"]).stdout;
    assert!(
        text.contains(claims[1].as_str().expect("a claim is text")),
        "{text}"
    );
    assert!(!fixture.is_busy("k"));
    let nothing = fixture.call(&["evict", "k", "--all"]);
    assert_eq!((nothing.code, nothing.stdout.contains("nothing")), (1, true));
}

#[test]
fn a_waiter_can_be_evicted_from_the_queue() {
    let fixture = Fixture::new();
    let first = fixture.holding(&["k", "--fair"]);
    let second = fixture.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    let claim = waiting["claim"].as_str().expect("a claim is text");
    let freed = &fixture
        .call(&["--json", "evict", "k", "--claim", claim])
        .objects()[0];
    assert_eq!(freed["freed"][0], claim);
    first.release();
    // The evicted waiter enters the queue again, at its end, with another claim.
    assert_ne!(second.next("acquired")["claim"], claim);
    second.release();
}

#[test]
fn store_failures_exit_3_and_usage_errors_2_or_both_125() {
    let fixture = Fixture::new();
    let broken = fixture.break_store();
    for (args, failed, usage) in [
        (&["ls"][..], 3, 2),
        (&["show", "k"], 3, 2),
        (&["watch"], 3, 2),
        (&["evict", "k", "--all"], 3, 2),
        (&["doctor"], 3, 2),
        (&["schema", "--apply"], 3, 2),
        (&["run", "k"], 125, 125),
        (&["elect", "k"], 125, 125),
    ] {
        let command = if failed == 125 { &["--", "true"][..] } else { &[] };
        let done = fixture.call(&[args, command].concat());
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (failed, ""),
            "{args:?}: {done:?}"
        );
        assert!(
            done.stderr.starts_with("error: ") && done.stderr.contains("\n  = why: "),
            "{done:?}"
        );
        let misused = fixture.call(&[args, &["--frobnicate"], command].concat());
        assert_eq!(
            (misused.code, misused.stdout.as_str()),
            (usage, ""),
            "{args:?}: {misused:?}"
        );
    }
    assert!(std::fs::read_to_string(fixture.path("locks.db")).is_ok_and(|left| left == broken));
}

#[test]
fn ls_shows_mode_holder_token_time_left_and_waiters() {
    let fixture = Fixture::new();
    let holds = [
        fixture.hold(&["a", "--label", "ann"]),
        fixture.hold(&["b", "-s", "--label", "bob"]),
        fixture.hold(&["c", "--permits", "2", "--of", "3", "--label", "cy"]),
    ];
    let tokens = holds
        .each_ref()
        .map(|hold| hold.next("acquired")["token"].to_string());
    let text = fixture.call(&["ls"]).stdout;
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["KEY", "MODE", "HOLDER", "TOKEN", "LEFT", "WAITERS"]);
    assert_eq!(rows[1][..4], ["a", "exclusive", "ann", &tokens[0]]);
    assert_eq!(rows[2][..4], ["b", "read", "bob", &tokens[1]]);
    assert_eq!(rows[3][..5], ["c", "2", "permits", "cy", &tokens[2]]);
    assert!(rows[1][4].ends_with('s') && rows[1][5] == "0", "{text}");
}
