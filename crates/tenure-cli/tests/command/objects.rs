//! Every field of every JSON object is explained in the `--help` and the manual page of its verb.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::fixture::Fixture;

/// Returns the names of all fields, including those of nested objects.
fn fields(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(fields).collect(),
        Value::Object(object) => object
            .iter()
            .flat_map(|(name, value)| [vec![name.clone()], fields(value)].concat())
            .collect(),
        _ => Vec::new(),
    }
}

/// Returns the first words of indented lines, which are the fields that the text explains.
fn explained(text: &str) -> Vec<&str> {
    let indented = text.lines().filter(|line| line.starts_with("  "));
    indented
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// Asserts that the help of `verb` and the help of the verb `also_in` together explain all fields of the objects, and
/// that their two manual pages do so too.
fn assert_explained(fixture: &Fixture, verb: &str, objects: &[Value], also_in: &str) {
    let help = |verb: &str| fixture.call(&[verb, "--help"]).stdout;
    let page = |verb: &str| fixture.call(&["man", verb]).stdout;
    let (own, other, page) = (help(verb), help(also_in), page(verb) + &page(also_in));
    let known = [explained(&own), explained(&other)].concat();
    assert!(!objects.is_empty());
    for field in objects.iter().flat_map(fields) {
        assert!(
            known.contains(&field.as_str()),
            "{verb}: {field} is missing in\n{own}"
        );
        assert!(page.contains(&field), "{verb}: {field} is missing in\n{page}");
    }
}

/// Runs the verb with `--json`, and returns the objects that it printed.
fn printed(fixture: &Fixture, args: &[&str]) -> Vec<Value> {
    let done = fixture.call(&[args, &["--json"]].concat());
    assert_eq!((done.code, done.objects().len()), (0, 1), "{args:?}: {done:?}");
    done.objects()
}

#[test]
fn the_help_of_inspecting_verbs_explains_every_field() {
    let fixture = Fixture::new();
    let _first = fixture.holding(&["k", "--fair"]);
    let second = fixture.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    for args in [&["ls"][..], &["show", "k"]] {
        let objects = printed(&fixture, args);
        assert!(objects[0]["waiters"][0].is_object(), "{objects:?}");
        assert_explained(&fixture, args[0], &objects, args[0]);
    }
    assert_explained(&fixture, "watch", &[fixture.watch("").change("held")], "show");
    let claim = waiting["claim"].as_str().expect("a claim is text");
    let evicted = printed(&fixture, &["evict", "k", "--claim", claim]);
    assert_explained(&fixture, "evict", &evicted, "evict");
}

#[test]
fn the_help_of_the_other_verbs_explains_every_field() {
    let fixture = Fixture::new();
    for args in [
        &["schema"][..],
        &["schema", "--apply"],
        &["completions", "bash"],
        &["man"],
    ] {
        let objects = printed(&fixture, args);
        assert_explained(&fixture, args[0], &objects, args[0]);
    }
    fs::set_permissions(fixture.path("locks.db"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let findings = fixture.call(&["--json", "doctor"]).objects();
    assert_explained(&fixture, "doctor", &findings, "doctor");
}

#[test]
fn the_help_of_hold_explains_every_event_and_field() {
    let fixture = Fixture::new();
    let first = fixture.hold(&["k", "--lease", "6s"]);
    let several = fixture.hold(&["a", "b"]);
    let mut events = vec![
        first.next("acquired"),
        first.next("renewed"),
        several.next("acquired"),
    ];
    let wait = |args: &[&str], names: &[&str]| -> Vec<Value> {
        let hold = fixture.hold(args);
        names.iter().map(|name| hold.next(name)).collect()
    };
    events.extend(wait(&["k", "-n"], &["busy"]));
    events.extend(wait(&["k", "-w", "2s"], &["waiting", "timeout"]));
    let mut cancelled = fixture.hold(&["k"]);
    events.push(cancelled.next("waiting"));
    cancelled.close_stdin();
    events.push(cancelled.next("cancelled"));
    events.extend(wait(&["m", "--max-hold", "1s"], &["acquired", "lost"]));
    let mut given_back = fixture.hold(&["r"]);
    events.push(given_back.next("acquired"));
    given_back.close_stdin();
    events.push(given_back.next("released"));
    let broken = Fixture::new();
    broken.break_store();
    events.push(broken.hold(&["k"]).next("error"));
    assert_explained(&fixture, "hold", &events, "hold");
    let help = fixture.call(&["hold", "--help"]).stdout;
    for event in &events {
        let name = event["event"].as_str().expect("a word");
        assert!(explained(&help).contains(&name), "{name} is missing in\n{help}");
    }
}
