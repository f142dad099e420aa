//! `ls`, `show` and `evict`: what they show, and what they free.

use crate::scene::Scene;

#[test]
fn a_list_has_an_object_for_each_key_and_respects_prefix_and_limit() {
    let scene = Scene::new();
    let holds: Vec<_> = ["a:1", "a:2", "b"].map(|key| scene.hold(&[key])).into();
    holds.iter().for_each(|hold| drop(hold.next("acquired")));
    let keys = |args: &[&str]| -> Vec<String> {
        let done = scene.call(&[&["--json", "ls"], args].concat());
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
    assert!(scene.call(&["ls", "--limit", "2"]).stderr.contains("more keys"));
    assert_eq!(scene.call(&["ls", "--limit", "3"]).stderr, "");
    holds.into_iter().for_each(crate::scene::Hold::release);
}

#[test]
fn people_see_who_holds_and_who_waits() {
    let scene = Scene::new();
    let first = scene.hold(&["k", "--fair", "--label", "ann"]);
    first.next("acquired");
    let second = scene.hold(&["k", "--fair", "--label", "bob"]);
    second.next("waiting");
    let list = scene.call(&["ls"]).stdout;
    assert!(list.starts_with("KEY") && list.contains("ann"), "{list}");
    let shown = scene.call(&["show", "k"]).stdout;
    assert!(shown.contains("ann") && shown.contains("bob"), "{shown}");
    first.release();
    second.next("acquired");
    second.release();
    let free = scene.call(&["show", "k"]);
    assert_eq!((free.code, free.stdout.contains("nobody holds it")), (0, true));
}

#[test]
fn a_free_key_is_shown_as_an_object_without_a_kind() {
    let scene = Scene::new();
    let shown = &scene.call(&["--json", "show", "k"]).objects()[0];
    assert_eq!(shown["key"], "k");
    assert!(shown["kind"].is_null());
    assert_eq!(shown["holders"].as_array().map(Vec::len), Some(0));
}

#[test]
fn an_eviction_frees_one_claim_or_all_and_says_which() {
    let scene = Scene::new();
    let readers = [scene.hold(&["k", "-s"]), scene.hold(&["k", "-s"])];
    let claims = readers
        .each_ref()
        .map(|reader| reader.next("acquired")["claim"].clone());
    let name = claims[0].as_str().expect("a claim is text");
    let freed = &scene.call(&["--json", "evict", "k", "--claim", name]).objects()[0];
    assert_eq!(freed["freed"], serde_json::json!([name]));
    let left = &scene.call(&["--json", "show", "k"]).objects()[0]["holders"];
    assert_eq!(
        (left.as_array().map(Vec::len), &left[0]["claim"]),
        (Some(1), &claims[1])
    );
    let text = scene.call(&["evict", "k", "--all"]).stdout;
    assert!(
        text.contains(claims[1].as_str().expect("a claim is text")),
        "{text}"
    );
    assert!(!scene.is_busy("k"));
    let nothing = scene.call(&["evict", "k", "--all"]);
    assert_eq!((nothing.code, nothing.stdout.contains("nothing")), (0, true));
}

#[test]
fn a_waiter_can_be_evicted_from_the_queue() {
    let scene = Scene::new();
    let first = scene.hold(&["k", "--fair"]);
    first.next("acquired");
    let second = scene.hold(&["k", "--fair"]);
    let waiting = second.next("waiting");
    let claim = waiting["claim"].as_str().expect("a claim is text");
    let freed = &scene.call(&["--json", "evict", "k", "--claim", claim]).objects()[0];
    assert_eq!(freed["freed"][0], claim);
    first.release();
    // It stands again, at the tail, under another claim.
    assert_ne!(second.next("acquired")["claim"], claim);
    second.release();
}

#[test]
fn a_bad_key_is_a_usage_error() {
    let scene = Scene::new();
    for args in [&["show", ""][..], &["evict", "", "--all"], &["evict", "k"]] {
        let done = scene.call(args);
        assert_eq!((done.code, done.stdout.as_str()), (2, ""), "{args:?}");
        assert!(done.stderr.starts_with("error: "), "{done:?}");
    }
}
