//! What programs read is explained to people: every field of every object stands in its verb's `--help` and page.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::Value;

use crate::scene::Scene;

/// The names of all fields, also of the objects within.
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

/// The words at the beginning of indented lines: what is explained there.
fn explained(text: &str) -> Vec<&str> {
    let indented = text.lines().filter(|line| line.starts_with("  "));
    indented
        .filter_map(|line| line.split_whitespace().next())
        .collect()
}

/// `also_in` is the verb whose help explains the rest.
fn assert_explained(scene: &Scene, verb: &str, objects: &[Value], also_in: &str) {
    let help = |verb: &str| scene.call(&[verb, "--help"]).stdout;
    let page = |verb: &str| scene.call(&["man", verb]).stdout;
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

/// What the verb prints with `--json`: one object.
fn printed(scene: &Scene, args: &[&str]) -> Vec<Value> {
    let done = scene.call(&[args, &["--json"]].concat());
    assert_eq!((done.code, done.objects().len()), (0, 1), "{args:?}: {done:?}");
    done.objects()
}

#[test]
fn every_field_of_what_is_looked_at_is_in_the_help() {
    let scene = Scene::new();
    let _first = scene.holding(&["k", "--fair"]);
    let second = scene.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    for args in [&["ls"][..], &["show", "k"]] {
        let objects = printed(&scene, args);
        assert!(objects[0]["waiters"][0].is_object(), "{objects:?}");
        assert_explained(&scene, args[0], &objects, args[0]);
    }
    assert_explained(&scene, "watch", &[scene.watch("").change("held")], "show");
    let claim = waiting["claim"].as_str().expect("a claim is text");
    let evicted = printed(&scene, &["evict", "k", "--claim", claim]);
    assert_explained(&scene, "evict", &evicted, "evict");
}

#[test]
fn every_field_of_what_is_told_of_the_store_and_the_command_is_in_the_help() {
    let scene = Scene::new();
    for args in [
        &["schema"][..],
        &["schema", "--apply"],
        &["completions", "bash"],
        &["man"],
    ] {
        let objects = printed(&scene, args);
        assert_explained(&scene, args[0], &objects, args[0]);
    }
    fs::set_permissions(scene.path("locks.db"), fs::Permissions::from_mode(0o666)).expect("it is ours");
    let findings = scene.call(&["--json", "doctor"]).objects();
    assert_explained(&scene, "doctor", &findings, "doctor");
}

#[test]
fn every_event_of_a_hold_and_every_field_of_it_is_in_the_help() {
    let scene = Scene::new();
    let first = scene.hold(&["k"]);
    let several = scene.hold(&["a", "b"]);
    let mut events = vec![first.next("acquired"), several.next("acquired")];
    let wait = |args: &[&str], names: &[&str]| -> Vec<Value> {
        let hold = scene.hold(args);
        names.iter().map(|name| hold.next(name)).collect()
    };
    events.extend(wait(&["k", "-n"], &["busy"]));
    events.extend(wait(&["k", "-w", "100ms"], &["waiting", "timeout"]));
    let mut cancelled = scene.hold(&["k"]);
    events.push(cancelled.next("waiting"));
    cancelled.close_stdin();
    events.push(cancelled.next("cancelled"));
    events.extend(wait(&["m", "--max-hold", "1s"], &["acquired", "lost"]));
    let mut given_back = scene.hold(&["r"]);
    events.push(given_back.next("acquired"));
    given_back.close_stdin();
    events.push(given_back.next("released"));
    let broken = Scene::new();
    broken.break_store();
    events.push(broken.hold(&["k"]).next("error"));
    assert_explained(&scene, "hold", &events, "hold");
    let help = scene.call(&["hold", "--help"]).stdout;
    for event in &events {
        let name = event["event"].as_str().expect("a word");
        assert!(explained(&help).contains(&name), "{name} is missing in\n{help}");
    }
}
