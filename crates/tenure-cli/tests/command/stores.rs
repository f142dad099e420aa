//! Which store the binary chooses for a command line.

use std::fs;

use crate::fixture::{Done, Fixture};

/// Runs a command with these options and variables, and returns its `TENURE_STORE`.
fn store(fixture: &Fixture, options: &[&str], env: &[(&str, &str)]) -> String {
    let run = ["-q", "run", "k", "--", "sh", "-c", "printf %s \"$TENURE_STORE\""];
    let done = fixture.call_at_home(&[options, &run].concat(), env);
    assert_eq!(done.code, 0, "{done:?}");
    done.stdout
}

#[test]
fn options_come_before_the_variable_and_the_variable_before_the_file() {
    let fixture = Fixture::new();
    let url = |name: &str| format!("sqlite:{}", fixture.path(name).display());
    fixture.write(
        "home/.config/tenure/url",
        &format!("# of this user\n\n{}\nignored\n", url("config.db")),
        0o600,
    );
    let file = fixture.write("file", &url("file.db"), 0o600);
    let file = file.to_str().expect("text");
    let env: &[_] = &[("TENURE_URL", &*url("variable.db"))];
    for (options, env, name) in [
        (&[][..], &[][..], "config.db"),
        (&[], env, "variable.db"),
        (&["--url-file", file], env, "file.db"),
        (&["--url", &url("option.db")], env, "option.db"),
    ] {
        assert_eq!(store(&fixture, options, env), url(name));
    }
    fs::remove_file(fixture.path("home/.config/tenure/url")).expect("it is there");
    let folder = fixture.path("home/.local/state/tenure");
    assert_eq!(
        store(&fixture, &[], &[]),
        format!("sqlite:{}/locks.db", folder.display())
    );
}

/// A command that changes its directory and runs `tenure` there must find the same locks.
#[test]
fn the_command_gets_the_absolute_path_of_a_lock_file() {
    let fixture = Fixture::new();
    let folder = fs::canonicalize(fixture.path(".")).expect("it is there");
    assert_eq!(
        store(&fixture, &["--url", "sqlite:l.db"], &[]),
        format!("sqlite:{}/l.db", folder.display())
    );
    assert!(
        folder.join("l.db").exists(),
        "a path begins where the command runs"
    );
    fixture.write("home/.config/tenure/url", "sqlite:l.db", 0o600);
    let done = fixture.call_at_home(&["run", "k", "--", "true"], &[]);
    assert_eq!(done.code, 125, "{done:?}");
    assert!(done.stderr.contains("write an absolute path"), "{done:?}");
}

/// The limit is set by `ulimit -f`, as for the accounts of a shared machine.
#[test]
fn a_file_size_limit_is_reported_as_an_error() {
    let fixture = Fixture::new();
    let mut limited = std::process::Command::new("sh");
    let tenure = fixture.at_home(&[]);
    let script = "ulimit -f 0; exec \"$0\" -q --url sqlite:x.db run k -- touch ran";
    limited.args(["-c", script]).arg(tenure.get_program());
    let done = Done::by(limited.current_dir(fixture.path(".")));
    assert_eq!(done.code, 125, "{done:?}");
    assert!(done.stderr.contains("x.db failed: check its disk"), "{done:?}");
    assert!(!fixture.path("ran").exists());
}

#[test]
fn without_home_the_user_database_is_asked() {
    let fixture = Fixture::new();
    let done = Done::by(fixture.at_home(&["schema"]).env_remove("HOME"));
    assert_eq!(done.code, 0, "{done:?}");
    assert!(done.stderr.contains(".local/state/tenure"), "{done:?}");
}

#[test]
fn an_empty_tenure_url_is_a_usage_error() {
    let fixture = Fixture::new();
    let empty: &[_] = &[("TENURE_URL", "")];
    let done = fixture.call_at_home(&["-q", "run", "k", "--", "touch", "ran"], empty);
    assert_eq!(done.code, 125, "{done:?}");
    assert!(done.stderr.contains("TENURE_URL holds no URL"), "{done:?}");
    assert_eq!(fixture.call_at_home(&["ls"], empty).code, 2);
    assert!(!fixture.path("ran").exists() && !fixture.path("home").exists());
}

#[test]
fn a_current_directory_that_was_removed_is_named_as_the_cause() {
    let fixture = Fixture::new();
    let tenure = fixture.at_home(&[]);
    let mut removed = std::process::Command::new("sh");
    let script = "mkdir gone && cd gone && rmdir ../gone && exec \"$0\" -q --url sqlite:x.db run k -- true";
    removed.arg("-c").arg(script).arg(tenure.get_program());
    let done = Done::by(removed.current_dir(fixture.path(".")));
    assert_eq!(done.code, 125, "{done:?}");
    assert!(
        done.stderr.contains("the current directory has been removed"),
        "{done:?}"
    );
}

/// `ulimit -n` limits the descriptors, as in a server that has used up its own.
#[test]
fn a_lack_of_descriptors_is_reported_as_such() {
    let fixture = Fixture::new();
    let tenure = fixture.at_home(&[]);
    // With fewer, the system cannot load the program.
    for limit in 4..24 {
        let mut limited = std::process::Command::new("sh");
        let script = format!("ulimit -n {limit}; exec \"$0\" -q --url sqlite:x.db run k -- true");
        limited.arg("-c").arg(script).arg(tenure.get_program());
        let done = Done::by(limited.current_dir(fixture.path(".")));
        assert!([0, 125, 126].contains(&done.code), "{limit}: {done:?}");
        assert!(!done.stderr.contains("is not there"), "{limit}: {done:?}");
    }
}

/// Only root can hide /proc, in a mount namespace of its own. Other users see that the option is refused.
#[test]
fn without_proc_the_message_says_to_mount_it() {
    let fixture = Fixture::new();
    let tenure = fixture.at_home(&[]);
    let mut hidden = std::process::Command::new("unshare");
    let script = "mount -t tmpfs none /proc && exec \"$0\" -q --url sqlite:x.db run k -- touch ran";
    hidden
        .args(["--mount", "sh", "-c", script])
        .arg(tenure.get_program());
    let done = Done::by(hidden.current_dir(fixture.path(".")));
    if rustix::process::geteuid().is_root() {
        assert_eq!(done.code, 125, "{done:?}");
        assert!(
            done.stderr.contains("/proc/self/exe is not there: mount /proc"),
            "{done:?}"
        );
    }
    assert!(!fixture.path("ran").exists(), "{done:?}");
}

/// With `sudo -E`, other programs root's files in the user's home. Only root can test this.
#[test]
fn root_leaves_no_file_in_another_users_home() {
    let fixture = Fixture::new();
    let home = fixture.path("home");
    fs::create_dir(&home).expect("the folder is ours");
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(&home, Some(65_534), None).expect("root may do that");
        let done = fixture.call_at_home(&["-q", "run", "k", "--", "touch", "ran"], &[]);
        assert_eq!(done.code, 125, "{done:?}");
        assert!(done.stderr.contains("sudo -H"), "{done:?}");
        assert!(!fixture.path("ran").exists());
    }
    assert_eq!(fs::read_dir(&home).expect("it is there").count(), 0);
}

#[test]
fn sqlite_paths_are_percent_decoded_up_to_the_query() {
    let fixture = Fixture::new();
    let folder = fixture.folder.path().display().to_string();
    store(
        &fixture,
        &["--url", &format!("sqlite:{folder}/a%20b%3Fc.db")],
        &[],
    );
    assert!(fixture.path("a b?c.db").exists());
    for (query, words) in [("wibble=1", "layout"), ("layout=redisson", "claims")] {
        let url = format!("sqlite:{folder}/x.db?{query}");
        let done = fixture.call_at_home(&["--url", &url, "run", "k", "--", "true"], &[]);
        assert_eq!(done.code, 125, "{done:?}");
        assert!(done.stderr.contains(words), "the known ones are listed: {done:?}");
        assert_eq!(fixture.call_at_home(&["--url", &url, "ls"], &[]).code, 2);
    }
    assert!(!fixture.path("x.db").exists());
}

#[test]
fn an_unusable_url_is_reported_with_its_source() {
    let fixture = Fixture::new();
    let file = fixture.write("home/.config/tenure/url", "# our store\nnonsense\n", 0o600);
    let file = file.display().to_string();
    let (gone, in_file) = (
        "redis://u:s3cr3t@127.0.0.1:1",
        format!("the URL in {file} cannot be used"),
    );
    for (options, url, words) in [
        (&[][..], None, &*in_file),
        (&["--url-file", &file], None, &in_file),
        (&[], Some("nonsense"), "the URL in TENURE_URL cannot be used"),
        (&["--url", "nonsense"], None, "the URL in --url cannot be used"),
        (&[], Some(gone), "as TENURE_URL names it\n"),
    ] {
        let env: Vec<(&str, &str)> = url.map(|url| ("TENURE_URL", url)).into_iter().collect();
        let done = fixture.call_at_home(&[options, &["ls"]].concat(), &env);
        assert!(done.code == 2 || done.code == 3, "{done:?}");
        assert!(done.stderr.contains(words), "{words} is missing in {done:?}");
        assert!(!done.stderr.contains("s3cr3t"), "{done:?}");
    }
}

#[test]
fn a_password_among_the_options_is_not_shown() {
    let fixture = Fixture::new();
    for url in [
        "redis://h:6379?auth=s3cr3t",
        "redis://h?credentials=s3cr3t",
        "redis://h?pin=s3cr3t",
        "sqlite:?api-key=s3cr3t",
        "sqlite:x.db?pin=s3cr3t",
    ] {
        for verb in [&["ls"][..], &["doctor"], &["run", "k", "--", "true"]] {
            let done = fixture.call_at_home(&[&["--url", url], verb].concat(), &[]);
            assert!([2, 125].contains(&done.code), "{done:?}");
            assert!(!format!("{done:?}").contains("s3cr3t"), "{done:?}");
        }
    }
}

#[test]
fn the_helpers_never_carry_the_url_in_their_arguments() {
    let fixture = Fixture::new();
    let script = "for pid in $PPID $(cut -d' ' -f4 /proc/$PPID/stat); do tr '\\0' ' ' < /proc/$pid/cmdline; echo; done";
    let url = fixture.url();
    let done = fixture.call_at_home(
        &["-q", "run", "k", "--", "sh", "-c", script],
        &[("TENURE_URL", &url)],
    );
    let lines: Vec<&str> = done.stdout.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("tenure-guardian"),
        "{done:?}"
    );
    assert!(!done.stdout.contains("locks.db"), "{done:?}");
}

#[test]
fn the_memory_store_is_refused() {
    let fixture = Fixture::new();
    for (url, verb, code) in [
        ("memory:", &["run", "k", "--", "true"][..], 125),
        ("memory:", &["ls"], 2),
        ("Memory:", &["watch"], 2),
        ("memory", &["doctor"], 2),
    ] {
        let done = fixture.call_at_home(&[&["--url", url], verb].concat(), &[]);
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.stderr.contains("lock nothing"), "{done:?}");
    }
}
