//! `tenure run`: exit codes, environment, waiting, signals, and how long the lock is kept.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tenure_servers::{Redis, needs};

use crate::fixture::{Done, Fixture, Process, wait_for};

#[test]
fn the_exit_code_is_the_commands_or_128_plus_the_signal() {
    let fixture = Fixture::new();
    assert_eq!(fixture.call(&["run", "k", "--", "true"]).code, 0);
    assert_eq!(fixture.shell(&["k"], "exit 7").finish().code, 7);
    assert_eq!(fixture.shell(&["k"], "kill -TERM $$").finish().code, 143);
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_command_that_cannot_start_exits_126_or_127_and_releases() {
    let fixture = Fixture::new();
    fixture.write("plain", "x", 0o600);
    fixture.write("script", "#!/nonexistent/interpreter\n", 0o755);
    for (program, code) in [
        ("/nonexistent/program", 127),
        ("no-such-program-anywhere", 127),
        ("", 127),
        ("./plain", 126),
        ("./script", 126),
        ("/", 126),
    ] {
        let done = fixture.call(&["run", "k", "--", program]);
        assert_eq!(done.code, code, "{done:?}");
        assert!(done.stderr.contains(program), "{done:?}");
    }
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_busy_lock_exits_124_or_busy_exit_without_running() {
    let fixture = Fixture::new();
    let hold = fixture.holding(&["k"]);
    let run = |options: &[&str]| fixture.shell(&[&["k"], options].concat(), "touch ran").finish();
    let busy = run(&["-n"]);
    assert!(busy.code == 124 && busy.stderr.contains("busy"), "{busy:?}");
    let cron = run(&["-n", "-E", "0"]);
    assert_eq!(
        (cron.code, cron.stderr.as_str()),
        (0, ""),
        "with --busy-exit 0 nothing is printed"
    );
    let began = Instant::now();
    assert_eq!(run(&["-w", "2s", "--busy-exit", "9"]).code, 9);
    assert!(began.elapsed() >= Duration::from_secs(2));
    assert!(!fixture.path("ran").exists());
    hold.release();
}

#[test]
fn a_free_lock_is_taken_however_short_the_wait_is() {
    let fixture = Fixture::new();
    let run = |wait| fixture.call(&["run", "k", "-w", wait, "--", "true"]);
    for wait in ["0s", "1ms"] {
        let done = run(wait);
        assert_eq!(done.code, 0, "{done:?}");
    }
    let hold = fixture.holding(&["k"]);
    assert_eq!(run("0s").code, 124);
    hold.release();
}

#[test]
fn a_busy_multi_lock_reports_one_of_its_keys_as_busy() {
    let fixture = Fixture::new();
    let hold = fixture.holding(&["w1"]);
    let printed = |args: &[&str], words: &str| {
        let stderr = fixture.start(args).finish().stderr;
        assert!(stderr.contains(words), "{args:?}: {stderr}");
    };
    let (all, alone) = (r#"one of "a", "w1", "b""#, r#""w1""#);
    for (options, run, held) in [
        (&["-n"][..], "busy: ", "busy: "),
        (&["-w", "1s"], "not free within --wait: ", ""),
    ] {
        for (keys, names) in [(&["a", "w1", "b"][..], all), (&["w1"], alone)] {
            let args = [keys, options].concat();
            printed(
                &[&["run"], &args[..], &["--", "true"]].concat(),
                &format!("{run}{names};"),
            );
            printed(
                &[&["hold", "--no-stdin"], &args[..]].concat(),
                &format!("note: {held}{names}"),
            );
        }
    }
    hold.release();
}

#[test]
fn the_command_sees_its_lock_and_the_store_without_a_password() {
    let fixture = Fixture::new();
    let script = r#"printf '%s|%s|%s|%s|%s' "$TENURE_KEY" "$TENURE_TOKEN" "$TENURE_CLAIM" "$TENURE_STORE" "$TENURE_URL""#;
    for verb in ["run", "elect"] {
        let mut command = fixture.command(&[verb, "k", "--", "sh", "-c", script]);
        command.env("TENURE_URL", "redis://u:s3cr3t@nowhere/0");
        let text = Done::by(&mut command).stdout;
        let values: Vec<&str> = text.split('|').collect();
        assert_eq!((values[0], values[3]), ("k", fixture.url().as_str()));
        assert!(values[1].parse::<u64>().is_ok_and(|token| token > 0), "{text}");
        assert!(values[2].contains(':'), "{text}");
        assert_eq!(values[4], "redis://u:s3cr3t@nowhere/0", "it passes through");
    }
}

#[test]
fn a_multi_lock_gives_the_command_one_value_per_line() {
    let fixture = Fixture::new();
    let script = r#"printf '%s|%s|%s' "$TENURE_KEY" "$TENURE_TOKEN" "$TENURE_CLAIM""#;
    let done = fixture.shell(&["b", "a"], script).finish();
    let values: Vec<Vec<&str>> = done
        .stdout
        .split('|')
        .map(|value| value.lines().collect())
        .collect();
    assert_eq!(values[0], ["b", "a"]);
    assert_eq!((values[1].len(), values[2].len()), (2, 2), "{done:?}");
    assert_ne!(values[2][0], values[2][1]);
}

#[test]
fn nothing_of_ours_goes_to_stdout() {
    let fixture = Fixture::new();
    for words in [&["-v", "run"][..], &["--json", "run"], &["--json", "-v", "elect"]] {
        let done = fixture.call(&[words, &["k", "--", "echo", "mine"]].concat());
        assert_eq!(done.stdout, "mine\n", "{words:?}");
        let refused = fixture.call(&[words, &["", "--", "true"]].concat());
        assert_eq!((refused.code, refused.stdout.as_str()), (125, ""), "{words:?}");
    }
}

/// TERM is due a grace before the end of the lease.
#[test]
fn a_command_runs_with_the_longest_lease() {
    let fixture = Fixture::new();
    for grace in [&[][..], &["--grace", "2000h"]] {
        for verb in ["run", "elect"] {
            let lease = [verb, "k", "--lease", "8760h"];
            let done = fixture.call(&[&lease[..], grace, &["--", "echo", "ran"]].concat());
            assert_eq!((done.code, done.stdout.as_str()), (0, "ran\n"), "{done:?}");
        }
    }
}

/// If `run` reported a failing store as a busy lock, a user would wait for a holder, and cron would see a success if it
/// runs `run --busy-exit 0`.
#[test]
fn a_store_that_does_not_answer_exits_125_not_124() {
    let fixture = Fixture::new();
    assert_eq!(fixture.call(&["run", "k", "--", "true"]).code, 0);
    let blocked = fixture.block();
    let short = fixture.start(&["run", "l", "-w", "1500ms", "-E", "0", "--", "touch", "ran"]);
    let hold = fixture.hold(&["m", "-w", "1500ms"]);
    let done = fixture.call(&["run", "k", "-w", "7s", "-E", "0", "--", "touch", "ran"]);
    let short = short.finish();
    assert_eq!(short.code, 125, "{short:?}");
    assert!(short.stderr.contains("did not answer within"), "{short:?}");
    hold.next("waiting");
    hold.next("error");
    assert_eq!(hold.finish().code, 3);
    drop(blocked);
    assert_eq!(done.code, 125, "{done:?}");
    let warnings = done.stderr.matches("the store cannot grant the lock now").count();
    assert_eq!(warnings, 1, "{done:?}");
    assert!(done.stderr.contains("kept busy"), "{done:?}");
    assert!(done.stderr.contains("cannot lock \"k\""), "{done:?}");
    assert!(!fixture.path("ran").exists());
}

#[test]
fn a_signal_while_waiting_withdraws_without_running() {
    let fixture = Fixture::new();
    for (signal, code) in [
        (Signal::INT, 130),
        (Signal::TERM, 143),
        (Signal::HUP, 129),
        (Signal::QUIT, 131),
    ] {
        let hold = fixture.holding(&["k", "--fair"]);
        let waiter = fixture.start(&["run", "k", "--fair", "--", "touch", "ran"]);
        let waiters = || fixture.shown("k")["waiters"].as_array().map(Vec::len);
        wait_for("the waiter in the queue", || waiters() == Some(1));
        waiter.send(signal);
        assert_eq!(waiter.finish().code, code);
        assert_eq!(waiters(), Some(0), "nothing is left behind");
        hold.release();
    }
    assert!(!fixture.path("ran").exists());
}

#[test]
fn signals_are_forwarded_to_the_group_or_the_command_alone() {
    let fixture = Fixture::new();
    // The command and a child in its group write the signals that they receive to a file. Both end when the file `end`
    // appears.
    let listener = "for s in INT TERM HUP QUIT USR1 USR2; do trap \"echo $0 $s >> received\" $s; done; \
        touch $0; while [ ! -e end ]; do sleep 0.02; done; exit 6";
    let script = format!("sh -c '{listener}' child & exec sh -c '{listener}' command");
    let run = fixture.shell(&["k"], &script);
    fixture.wait_for_file("child");
    fixture.wait_for_file("command");
    let lines = || {
        let text = std::fs::read_to_string(fixture.path("received"));
        text.unwrap_or_default()
            .lines()
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    // Of the signals that `tenure` finds together with the report of the start, USR2 alone does not cancel the start.
    wait_for("the start", || {
        run.send(Signal::USR2);
        !lines().is_empty()
    });
    let received = |count| {
        let others = || lines().into_iter().filter(|line| line != "command USR2");
        wait_for("a signal", || others().count() >= count);
        others().collect::<Vec<_>>()
    };
    let mut count = 0;
    for (signal, name, of_group) in [
        (Signal::TERM, "TERM", true),
        (Signal::USR1, "USR1", false),
        (Signal::HUP, "HUP", true),
        // The child does not react to INT and QUIT: a shell without job control starts background processes with these
        // signals ignored.
        (Signal::INT, "INT", false),
        (Signal::QUIT, "QUIT", false),
    ] {
        run.send(signal);
        count += if of_group { 2 } else { 1 };
        let lines = received(count);
        assert_eq!(lines.len(), count, "{lines:?}");
        assert!(lines.contains(&format!("command {name}")), "{lines:?}");
        assert_eq!(lines.contains(&format!("child {name}")), of_group, "{lines:?}");
    }
    fixture.write("end", "", 0o600);
    assert_eq!(run.finish().code, 6);
}

#[test]
fn descendants_are_killed_before_the_lock_is_released() {
    let fixture = Fixture::new();
    let script = "(setsid sleep 600 & echo $! > pid); exit 6";
    assert_eq!(fixture.shell(&["k"], script).finish().code, 6);
    crate::fixture::assert_dead(&fixture.pids("pid", 1));
    assert!(!fixture.is_busy("k"));
}

#[test]
fn an_unconfirmed_release_warns_and_keeps_the_exit_code() {
    let fixture = Fixture::new();
    let script = "touch ready; while [ ! -e end ]; do sleep 0.02; done; exit 6";
    let run = fixture.shell(&["k", "--lease", "3s"], script);
    fixture.wait_for_file("ready");
    let blocked = fixture.block();
    let began = Instant::now();
    fixture.write("end", "", 0o600);
    let done = run.finish();
    assert_eq!(done.code, 6, "{done:?}");
    assert!(
        done.stderr
            .contains("warning: the store has not confirmed the release"),
        "{done:?}"
    );
    assert!(
        began.elapsed() < Duration::from_millis(4500),
        "{:?}: no longer than the lease",
        began.elapsed()
    );
    drop(blocked);
}

#[test]
fn a_refused_release_is_reported_with_the_stores_reason() {
    if !needs("redis-server", "redis-server") {
        return;
    }
    let fixture = Fixture::new();
    let redis = Redis::start().expect("the server starts");
    let script = "touch ready; while [ ! -e end ]; do sleep 0.02; done; exit 6";
    let url = redis.url();
    let mut run = fixture.at_home(&[
        "--url", &url, "run", "k", "--lease", "3s", "--", "sh", "-c", script,
    ]);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let run = Process::of(run.expect("the command starts"));
    fixture.wait_for_file("ready");
    redis
        .ask(&["CONFIG", "SET", "min-replicas-to-write", "1"])
        .expect("the server answers");
    fixture.write("end", "", 0o600);
    let done = run.finish();
    assert_eq!(done.code, 6, "{done:?}");
    assert!(done.stderr.contains("has not confirmed the release"), "{done:?}");
    assert!(done.stderr.contains("replicas"), "{done:?}");
}

#[test]
fn an_unreachable_store_stops_the_command_before_its_lease_ends() {
    let fixture = Fixture::new();
    let run = fixture.shell(
        &["k", "--lease", "6s", "--grace", "2s"],
        "echo $$ > pid; exec sleep 600",
    );
    let pids = fixture.pids("pid", 1);
    let _blocked = fixture.block();
    let began = Instant::now();
    wait_for("the end of the command", || !crate::fixture::alive(pids[0]));
    assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
    let done = run.finish();
    assert_eq!(done.code, 123, "{done:?}");
}

#[test]
fn a_counter_under_one_lock_or_several_is_exact() {
    let several = [["a", "b", "c"], ["c", "b", "a"], ["b", "c", "a"], ["a", "c", "b"]];
    let several: Vec<&[&str]> = several.iter().map(<[_; 3]>::as_slice).collect();
    for (orders, rounds) in [(vec![&["k"][..]], 24), (several, 3)] {
        let fixture = Fixture::new();
        fixture.write("counter", "0\n", 0o600);
        let script = "n=$(cat counter); sleep 0.02; echo $((n + 1)) > counter";
        let all = orders.repeat(rounds);
        let runs: Vec<_> = all.iter().map(|keys| fixture.shell(keys, script)).collect();
        for run in runs {
            assert_eq!(run.finish().code, 0);
        }
        assert_eq!(fixture.lines("counter", 1), [all.len().to_string()], "{orders:?}");
    }
}

#[test]
fn at_least_keeps_the_lock_after_the_command_has_ended() {
    let fixture = Fixture::new();
    let began = Instant::now();
    let run = fixture.shell(&["k", "--at-least", "4s"], "touch ran; exit 6");
    fixture.wait_for_file("ran");
    assert!(fixture.is_busy("k"));
    assert_eq!(run.finish().code, 6);
    assert!(began.elapsed() >= Duration::from_secs(4));
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_signal_ends_the_wait_of_at_least_and_frees_the_lock() {
    let fixture = Fixture::new();
    let run = fixture.shell(&["k", "--at-least", "10m"], "echo $$ > pid; exit 6");
    let pid = fixture.pids("pid", 1)[0];
    wait_for("the command's end", || !crate::fixture::alive(pid));
    // If `tenure` has not noticed the end yet, it forwards the signal, and does not wait either.
    run.send(Signal::TERM);
    assert_eq!(run.finish().code, 6);
    assert!(!fixture.is_busy("k"));
}

#[test]
fn a_signal_that_ends_the_command_ends_the_wait_of_at_least_too() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let fixture = Fixture::new();
        let run = fixture.shell(&["k", "--at-least", "10m"], "echo $$ > pid; exec sleep 600");
        fixture.pids("pid", 1);
        run.send(signal);
        assert_eq!(run.finish().code, code);
        assert!(!fixture.is_busy("k"));
    }
}

#[test]
fn term_ends_the_wait_of_at_least_after_a_quit_that_the_command_survived() {
    let fixture = Fixture::new();
    let script = "trap 'touch quit' QUIT; echo $$ > pid; while :; do sleep 0.02; done";
    let run = fixture.shell(&["k", "--at-least", "10m"], script);
    fixture.pids("pid", 1);
    run.send(Signal::QUIT);
    fixture.wait_for_file("quit");
    run.send(Signal::TERM);
    assert_eq!(run.finish().code, 143);
    assert!(!fixture.is_busy("k"));
}

#[test]
fn bad_input_exits_125_or_2_with_a_reason() {
    let fixture = Fixture::new();
    let long = "x".repeat(201);
    for (args, code) in [
        (&["run", "", "--", "true"][..], 125),
        (&["run", &long, "--", "true"], 125),
        (&["run", "a\nb", "--", "true"], 125),
        (&["run", "k", "k", "--", "true"], 125),
        (&["elect", "", "--", "true"], 125),
        (&["elect", "chair"], 125),
        (&["hold", "", "--no-stdin"], 2),
        (&["show", ""], 2),
        (&["evict", "", "--all"], 2),
        (&["evict", "k"], 2),
    ] {
        let done = fixture.call(args);
        assert_eq!(
            (done.code, done.stdout.as_str()),
            (code, ""),
            "{args:?}: {done:?}"
        );
        assert!(done.stderr.starts_with("error: "), "{args:?}: {done:?}");
        assert!(!done.stderr.contains("panicked"), "{args:?}: {done:?}");
    }
    assert!(!fixture.path("locks.db").exists(), "no store was touched");
}
