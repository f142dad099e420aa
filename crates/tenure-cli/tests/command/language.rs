//! What the command says of itself and to whom: labels, verbosity, JSON on every verb, and no password anywhere.

use crate::scene::{Done, Scene};

#[test]
fn the_default_label_names_the_user_also_where_the_environment_does_not() {
    let scene = Scene::new();
    let label = |name: Option<&str>| {
        let script = r#"exec "$TENURE" --url "$STORE" --json ls"#;
        let mut command = scene.command(&["run", "k", "--", "sh", "-c", script]);
        command
            .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
            .env("STORE", scene.url());
        for variable in ["USER", "LOGNAME", "USERNAME"] {
            match name {
                Some(name) => command.env(variable, name),
                None => command.env_remove(variable),
            };
        }
        let listed = &Done::by(&mut command).objects()[0];
        listed["holders"][0]["label"]
            .as_str()
            .expect("a label")
            .to_owned()
    };
    let user = Done::by(std::process::Command::new("id").arg("-un")).stdout;
    let user = user.trim_end();
    for (label, user) in [
        (label(Some("ann")), "ann"),
        (label(None), user),
        (label(Some("")), user),
    ] {
        let (name, place) = label.split_once('@').expect("user@host:pid");
        let (host, pid) = place.rsplit_once(':').expect("user@host:pid");
        assert_eq!(name, user);
        assert!(!host.is_empty() && pid.parse::<u32>().is_ok(), "{label}");
    }
}

#[test]
fn a_loss_is_told_once_and_verbosely_with_the_librarys_own_words() {
    let scene = Scene::new();
    let told = |flag: &[&str]| {
        let mut hold = scene.command(&[flag, &["hold", "k", "--lease", "1s", "--no-stdin"]].concat());
        let hold = crate::scene::Process::of(hold.spawn().expect("it starts"));
        crate::scene::wait_for("the lock", || {
            scene.call(&["--json", "ls", "k"]).objects().len() == 1
        });
        scene.evict("k");
        let done = hold.finish();
        assert_eq!(done.code, 4, "{done:?}");
        done.stderr.lines().filter(|line| line.contains("lost")).count()
    };
    assert_eq!(told(&[]), 1);
    assert_eq!(told(&["-q"]), 1, "what went wrong is never hushed up");
    assert_eq!(told(&["-v"]), 2);
}

#[test]
fn whoever_evicts_cannot_write_to_the_terminal_of_the_holder() {
    let scene = Scene::new();
    for verb in [
        &["hold", "k", "--no-stdin", "--lease", "1s"][..],
        &["run", "k", "--lease", "1s", "--", "sleep", "600"],
    ] {
        let holder = scene.start(verb);
        crate::scene::wait_for("the lock", || {
            scene.call(&["--json", "ls", "k"]).objects().len() == 1
        });
        let mut evict = scene.command(&["evict", "k", "--all"]);
        evict
            .env("USER", "e\u{1b}[2Jvil\nerror: forged\u{202e}")
            .env("LOGNAME", "");
        assert!(evict.status().expect("it starts").success());
        let told = holder.finish().stderr;
        assert_eq!(told.lines().count(), 1, "{told}");
        assert!(
            told.contains("by e\\u{1b}[2Jvil\\nerror: forged\\u{202e}@"),
            "{told}"
        );
    }
}

#[test]
fn a_password_appears_nowhere_wherever_its_url_stands() {
    let scene = Scene::new();
    let urls = ["s3cr3t", "s3cr'3t", "s3cr 3t", "s3cr@3t:x", "s3cr%203t"]
        .map(|secret| format!("redis://u:{secret}@127.0.0.1:1/0"));
    // A colon was forgotten.
    for url in urls
        .into_iter()
        .chain(["redis://s3cr3t@127.0.0.1:1/0".to_owned()])
    {
        let file = scene.write("url", &url, 0o600);
        let file = file.to_str().expect("text");
        for args in [
            &["--url", &url, "run", "k", "--", "true"][..],
            &["-v", "--url", &url, "ls"],
            &["--url-file", file, "ls"],
            &["--url-file", &url, "ls"],
            &["--url", &url, "hold", "k", "--no-stdin"],
            &["--json", "--url", &url, "watch"],
            &["--url", &url, "doctor"],
            &["--url", &url, "schema", "--apply"],
            &["--url", &url, "elect", "k", "--", "true"],
            &["ls", "--limit", &url],
            &["run", "k", "--lease", &url, "--", "true"],
            &[&url],
            &[&url, "run"],
            &["completions", &url],
            &["man", &url],
        ] {
            let done = scene.call_at_home(args, &[]);
            let said = done.stdout + &done.stderr;
            assert!(done.code != 0 && !said.contains("s3cr"), "{args:?}: {said}");
        }
        let done = scene.call_at_home(&["ls"], &[("TENURE_URL", &url)]);
        assert!(done.code != 0 && !done.stderr.contains("s3cr"), "{done:?}");
    }
}

/// What looks like a URL and is none: our own words, and a key.
#[test]
fn advice_and_keys_are_said_whole() {
    let scene = Scene::new();
    let done = scene.call_at_home(&["--url", "redis://nop@127.0.0.1:1", "ls"], &[]);
    let advice = "write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for the default user's";
    assert!(done.stderr.contains(advice), "{done:?}");
    assert!(
        done.stderr.contains("the store redis://***@127.0.0.1:1\n"),
        "{done:?}"
    );
    let key = "https://shop.example:8080/order@7";
    let hold = scene.holding(&[key]);
    for args in [
        &["hold", key, "-n", "--no-stdin"][..],
        &["run", key, "-n", "--", "true"],
    ] {
        let done = scene.call(args);
        assert!(done.code != 0 && done.stderr.contains(key), "{args:?}: {done:?}");
    }
    hold.release();
}

#[test]
fn a_text_that_is_too_long_for_a_key_is_not_repeated_whole() {
    let scene = Scene::new();
    let long = "k".repeat(10_000);
    for args in [
        &["run", &long, "--", "true"][..],
        &["hold", &long, "--no-stdin"],
        &["elect", &long, "--", "true"],
        &["show", &long],
        &["ls", &long],
        &["evict", &long, "--all"],
    ] {
        let done = scene.call(args);
        assert!(
            done.stderr.contains("kkk") && done.stderr.len() < 500,
            "{args:?}: {done:?}"
        );
    }
}
