//! The text of messages: labels, verbosity, JSON of every verb, and no password anywhere.

use crate::fixture::{Done, Fixture};

#[test]
fn the_default_label_names_the_user_without_an_environment() {
    let fixture = Fixture::new();
    let label = |name: Option<&str>| {
        let script = r#"exec "$TENURE" --url "$STORE" --json ls"#;
        let mut command = fixture.command(&["run", "k", "--", "sh", "-c", script]);
        command
            .env("TENURE", env!("CARGO_BIN_EXE_tenure"))
            .env("STORE", fixture.url());
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
fn a_loss_is_printed_once_and_with_verbose_twice() {
    let fixture = Fixture::new();
    let count_lines = |flag: &[&str]| {
        let mut hold = fixture.command(&[flag, &["hold", "k", "--lease", "3s", "--no-stdin"]].concat());
        let hold = crate::fixture::Process::of(hold.spawn().expect("it starts"));
        crate::fixture::wait_for("the lock", || {
            fixture.call(&["--json", "ls", "k"]).objects().len() == 1
        });
        fixture.evict("k");
        let done = hold.finish();
        assert_eq!(done.code, 4, "{done:?}");
        done.stderr.lines().filter(|line| line.contains("lost")).count()
    };
    assert_eq!(count_lines(&[]), 1);
    assert_eq!(count_lines(&["-q"]), 1, "-q keeps warnings");
    assert_eq!(count_lines(&["-v"]), 2);
}

#[test]
fn verbose_tells_of_the_grant_and_the_release() {
    let fixture = Fixture::new();
    for verb in ["run", "elect"] {
        let done = fixture.call(&["-v", verb, "k", "--", "true"]);
        let notes: Vec<&str> = done
            .stderr
            .lines()
            .filter(|line| line.starts_with("note: "))
            .collect();
        let [acquired, released] = notes.as_slice() else {
            panic!("{done:?}")
        };
        assert!(acquired.starts_with("note: acquired \"k\" after "), "{done:?}");
        assert!(acquired.contains(", with token "), "{done:?}");
        assert_eq!(*released, "note: released \"k\"");
    }
    let several = fixture.call(&["-v", "run", "a", "b", "--", "true"]).stderr;
    assert!(several.contains("acquired \"a\", \"b\" after "), "{several}");
    assert!(several.contains(", with tokens "), "{several}");
    let mut hold = fixture.hold(&["-v", "k"]);
    hold.close_stdin();
    let hold = hold.finish().stderr;
    assert!(hold.contains("note: acquired \"k\" after "), "{hold}");
    assert!(fixture.call(&["run", "k", "--", "true"]).stderr.is_empty());
}

#[test]
fn the_label_of_an_evictor_is_escaped_for_the_holder() {
    let fixture = Fixture::new();
    for verb in [
        &["hold", "k", "--no-stdin", "--lease", "3s"][..],
        &["run", "k", "--lease", "3s", "--", "sleep", "600"],
    ] {
        let holder = fixture.start(verb);
        crate::fixture::wait_for("the lock", || {
            fixture.call(&["--json", "ls", "k"]).objects().len() == 1
        });
        let mut evict = fixture.command(&["evict", "k", "--all"]);
        evict
            .env("USER", "e\u{1b}[2Jvil\nerror: forged\u{202e}")
            .env("LOGNAME", "");
        assert!(evict.status().expect("it starts").success());
        let printed = holder.finish().stderr;
        assert_eq!(printed.lines().count(), 1, "{printed}");
        assert!(
            printed.contains("by e\\u{1b}[2Jvil\\nerror: forged\\u{202e}@"),
            "{printed}"
        );
    }
}

#[test]
fn no_output_shows_the_password_of_a_url() {
    let fixture = Fixture::new();
    let urls = ["s3cr3t", "s3cr'3t", "s3cr 3t", "s3cr@3t:x", "s3cr%203t"]
        .map(|secret| format!("redis://u:{secret}@127.0.0.1:1/0"));
    for url in urls
        .into_iter()
        // The password stands in the place of the user name, without a colon before it.
        .chain(["redis://s3cr3t@127.0.0.1:1/0".to_owned()])
    {
        let file = fixture.write("url", &url, 0o600);
        let file = file.to_str().expect("text");
        // `elect` tries for 30 s to connect, so it gets a URL that it refuses.
        let no_database = format!("{url}x");
        for args in [
            &["--url", &url, "run", "k", "-n", "--", "true"][..],
            &["-v", "--url", &url, "ls"],
            &["--url-file", file, "ls"],
            &["--url-file", &url, "ls"],
            &["--url", &url, "hold", "k", "-n", "--no-stdin"],
            &["--json", "--url", &url, "watch"],
            &["--url", &url, "doctor"],
            &["--url", &url, "schema", "--apply"],
            &["--url", &no_database, "elect", "k", "--", "true"],
            &["ls", "--limit", &url],
            &["run", "k", "--lease", &url, "--", "true"],
            &[&url],
            &[&url, "run"],
            &["completions", &url],
            &["man", &url],
        ] {
            let done = fixture.call_at_home(args, &[]);
            let printed = done.stdout + &done.stderr;
            assert!(done.code != 0 && !printed.contains("s3cr"), "{args:?}: {printed}");
        }
        let done = fixture.call_at_home(&["ls"], &[("TENURE_URL", &url)]);
        assert!(done.code != 0 && !done.stderr.contains("s3cr"), "{done:?}");
    }
}

/// The command's own advice, and keys that look like URLs with a password, are printed in full.
#[test]
fn advice_and_keys_are_printed_unmasked() {
    let fixture = Fixture::new();
    let done = fixture.call_at_home(&["--url", "redis://nop@127.0.0.1:1", "ls"], &[]);
    let advice = "write `redis://USER:PASSWORD@HOST`, or `redis://:PASSWORD@HOST` for the default user's";
    assert!(done.stderr.contains(advice), "{done:?}");
    assert!(
        done.stderr.contains("the store redis://***@127.0.0.1:1\n"),
        "{done:?}"
    );
    let key = "https://shop.example:8080/order@7";
    let hold = fixture.holding(&[key]);
    for args in [
        &["hold", key, "-n", "--no-stdin"][..],
        &["run", key, "-n", "--", "true"],
    ] {
        let done = fixture.call(args);
        assert!(done.code != 0 && done.stderr.contains(key), "{args:?}: {done:?}");
    }
    hold.release();
}

#[test]
fn a_text_too_long_for_a_key_is_shortened() {
    let fixture = Fixture::new();
    let long = "k".repeat(10_000);
    for args in [
        &["run", &long, "--", "true"][..],
        &["hold", &long, "--no-stdin"],
        &["elect", &long, "--", "true"],
        &["show", &long],
        &["ls", &long],
        &["evict", &long, "--all"],
    ] {
        let done = fixture.call(args);
        assert!(
            done.stderr.contains("kkk") && done.stderr.len() < 500,
            "{args:?}: {done:?}"
        );
    }
}
