//! Tests how a command ends: no process that the command started outlives it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tenure_cli::guardian::{Deadline, Launch, now, send_stdin};

use crate::fixture::{FAR, Fixture, Process, alive, assert_dead, send, stat_field, wait_for};
use crate::trials;

trials![
    a_command_starts_only_before_its_deadline,
    a_command_does_not_start_once_its_deadline_is_waived,
    term_and_kill_come_at_their_times,
    the_last_deadline_stops_the_command,
    a_loss_sends_term_and_then_kill,
    descendants_outside_the_group_get_term_too,
    descendants_are_killed_when_the_command_ends,
    descendants_outside_the_group_die_at_the_deadline,
    everything_dies_at_once_when_tenure_is_killed,
    everything_dies_at_the_deadline_while_tenure_is_stopped,
    a_command_that_keeps_forking_is_ended,
    orphans_are_reaped_while_the_command_runs,
    a_guardian_without_a_command_exits_with_tenure,
    a_stub_of_another_parent_never_runs_the_command,
    a_stub_that_died_while_it_waited_is_replaced,
    a_stub_that_reads_slowly_still_becomes_the_command,
    a_stub_that_reads_too_slowly_never_becomes_the_command,
    the_guardian_survives_signals_of_a_terminal,
];

/// A script that starts processes outside the command's group in three ways (setsid, double fork, new group), and
/// writes its own process id and then theirs to the file `pids`.
pub(crate) const ESCAPE: &str = "setsid sleep 600 & a=$!; (setsid sh -c 'sleep 600 & echo $! > daemon' &); \
    while ! [ -s daemon ]; do sleep 0.01; done; timeout 600 sleep 600 & \
    echo $$ $a $(cat daemon) $! > pids";

fn a_command_starts_only_before_its_deadline() {
    for words in [&[][..], &["term=0", "kill=60000"], &["term=0", "kill=0"]] {
        let fixture = Fixture::new();
        let outcome = fixture.start(words, &["touch", "ran"]).finish();
        assert!(
            outcome.stderr.contains("not started TooLate"),
            "{}",
            outcome.stderr
        );
        assert!(!fixture.path("ran").exists(), "{words:?}");
    }
}

/// A command that may run on without its lock must have begun with it.
fn a_command_does_not_start_once_its_deadline_is_waived() {
    let fixture = Fixture::new();
    let (mut ours, guardian, _) = guardian_with_stub(&fixture);
    let (arm, launch) = (arm(FAR_AWAY), launch(&["touch", "ran"]));
    writeln!(ours, "{arm}\"Waive\"\n{{\"Start\":{launch}}}\n\"Go\"").expect("it is sent");
    let reports: Vec<String> = BufReader::new(ours).lines().map_while(Result::ok).collect();
    assert_eq!(reports, ["\"Refused\""]);
    assert_eq!(guardian.finish().code, 0);
    assert!(!fixture.path("ran").exists());
}

fn term_and_kill_come_at_their_times() {
    let fixture = Fixture::new();
    let begun = Instant::now();
    let run = fixture.shell(
        &["ready=0", "term=500", "kill=3000"],
        "trap 'echo term >> log' TERM; echo $$ > pids; touch ready; while :; do sleep 0.02; done",
    );
    let pids = fixture.pids("pids", 1);
    run.wait_for_line("ready");
    let ready = Instant::now();
    run.wait_for_line("TermSent(Deadline)");
    let (termed, of_term) = (begun.elapsed(), ready.elapsed());
    run.finish().assert_ended(137, "Some(Deadline)");
    let (killed, of_kill) = (begun.elapsed(), ready.elapsed());
    assert!(termed >= Duration::from_millis(500), "{termed:?}");
    assert!(killed >= Duration::from_millis(3000), "{killed:?}");
    // The upper bounds allow for a busy machine, but not for a guardian that missed its deadline.
    assert!(of_term < Duration::from_millis(3000), "{of_term:?}");
    assert!(of_kill < Duration::from_millis(6000), "{of_kill:?}");
    assert_eq!(
        std::fs::read_to_string(fixture.path("log")).expect("the trap has run"),
        "term\n"
    );
    assert_dead(&pids);
}

fn the_last_deadline_stops_the_command() {
    let hears_term = "trap 'touch log' TERM; touch ready; while :; do sleep 0.02; done";
    for (deadline, words, script, code, stopped_by) in [
        (
            "without grace",
            &["ready=0", "term=500", "kill=500"][..],
            hears_term,
            137,
            "Some(Deadline)",
        ),
        (
            "moved on",
            &["term=3000", "kill=4000", "renew=100"],
            "sleep 5; exit 3",
            3,
            "None",
        ),
        (
            "moved back",
            &["ready=0", "term=600000", "kill=600000", "back=300"],
            hears_term,
            137,
            "Some(Deadline)",
        ),
        (
            "waived",
            &["term=3000", "kill=3000", "waive=1"],
            "sleep 4; exit 4",
            4,
            "None",
        ),
    ] {
        let fixture = Fixture::new();
        let outcome = fixture.shell(words, script).finish();
        outcome.assert_ended(code, stopped_by);
        assert!(
            !outcome.stderr.contains("TermSent"),
            "{deadline}: {}",
            outcome.stderr
        );
        assert!(!fixture.path("log").exists(), "{deadline}");
    }
}

fn a_loss_sends_term_and_then_kill() {
    let fixture = Fixture::new();
    let script = "trap 'echo term >> log' TERM; touch ready; while :; do sleep 0.02; done";
    let words = ["ready=0", "stop=300", "grace=3000"];
    let run = fixture.shell(&[&FAR[..], &words].concat(), script);
    run.finish().assert_ended(137, "Some(Lost)");
    assert_eq!(
        std::fs::read_to_string(fixture.path("log")).expect("the trap has run"),
        "term\n"
    );
    let fixture = Fixture::new();
    let polite = fixture.shell(
        &[&FAR[..], &["ready=0", "stop=300", "grace=60000"]].concat(),
        "trap 'exit 5' TERM; touch ready; while :; do sleep 0.02; done",
    );
    assert_eq!(polite.finish().code, 5);
}

fn descendants_outside_the_group_get_term_too() {
    let fixture = Fixture::new();
    let away = "trap 'touch got_term; exit' TERM; echo $$ > away; while :; do sleep 0.02; done";
    let script = format!(
        "setsid sh -c \"{}\" & trap : TERM; echo $$ > pids; \
         while ! [ -s away ]; do sleep 0.02; done; touch ready; while :; do sleep 0.02; done",
        away.replace('$', "\\$")
    );
    let run = fixture.shell(
        &[&FAR[..], &["ready=0", "stop=100", "grace=60000"]].concat(),
        &script,
    );
    let leader = fixture.pids("pids", 1)[0];
    fixture.pids("away", 1);
    run.wait_for_line("TermSent(Lost)");
    fixture.wait_for_file("got_term");
    assert!(alive(leader), "the grace has not ended");
}

/// R24: no descendant outlives the command.
fn descendants_are_killed_when_the_command_ends() {
    let fixture = Fixture::new();
    let run = fixture.shell(&FAR, &format!("{ESCAPE}; exit 6"));
    run.finish().assert_ended(6, "None");
    assert_dead(&fixture.pids("pids", 4)[1..]);
}

/// R24: at the deadline, descendants outside the command's process group die too.
fn descendants_outside_the_group_die_at_the_deadline() {
    let fixture = Fixture::new();
    let run = fixture.shell(
        &["ready=0", "term=2500", "kill=3000"],
        &format!("trap : TERM; {ESCAPE}; touch ready; while :; do wait; done"),
    );
    let pids = fixture.pids("pids", 4);
    assert!(pids.iter().all(|&pid| alive(pid)), "the deadline has not come");
    assert_eq!(run.finish().code, 137);
    assert_dead(&pids);
}

/// R24: descendants die with `tenure`, even if the guardian has no deadline (`waive`).
fn everything_dies_at_once_when_tenure_is_killed() {
    for words in [FAR.to_vec(), [&FAR[..], &["waive=1"]].concat()] {
        let fixture = Fixture::new();
        let run = fixture.shell(&words, &format!("trap : TERM; {ESCAPE}; wait"));
        let guardian = run.wait_for_line("guardian");
        let mut pids = fixture.pids("pids", 4);
        pids.push(guardian);
        run.send(Signal::KILL);
        wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    }
}

fn everything_dies_at_the_deadline_while_tenure_is_stopped() {
    let fixture = Fixture::new();
    let begun = Instant::now();
    let run = fixture.shell(
        &["ready=0", "term=1000", "kill=1500", "renew=100"],
        &format!("trap : TERM; {ESCAPE}; touch ready; while :; do wait; done"),
    );
    let pids = fixture.pids("pids", 4);
    run.wait_for_line("ready");
    run.send(Signal::STOP);
    let stopped = begun.elapsed();
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    let took = begun.elapsed();
    run.send(Signal::CONT);
    assert!(
        took < stopped + Duration::from_millis(1500) + Duration::from_millis(3000),
        "{took:?} after {stopped:?}"
    );
    run.finish().assert_ended(137, "Some(Deadline)");
}

fn a_command_that_keeps_forking_is_ended() {
    // Every process of the command has this marker among its arguments, so the test can count them.
    let marker = format!("600.{}", std::process::id());
    for script in [
        // Each process leaves the group, and the shell never stops starting others.
        format!("touch ready; while :; do setsid sleep {marker} & done"),
        // Each process starts the next in a new session and ends, so that no process id lives for long.
        format!("sh ./{marker}; touch ready; exec sleep 600"),
    ] {
        let fixture = Fixture::new();
        fixture.write(&marker, &format!("setsid sh ./{marker} & exit 0"), 0o600);
        let run = fixture.shell(&["ready=0", "term=1200", "kill=1200"], &script);
        fixture.wait_for_file("ready");
        assert_eq!(run.finish().code, 137);
        assert_eq!(running(&marker), 0, "{script}");
    }
}

/// Counts the processes with this word among their arguments.
fn running(word: &str) -> usize {
    let entries = std::fs::read_dir("/proc").expect("/proc is there").flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    lines
        .filter(|line| {
            String::from_utf8_lossy(line)
                .split('\0')
                .any(|arg| arg.ends_with(word))
        })
        .count()
}

fn orphans_are_reaped_while_the_command_runs() {
    let fixture = Fixture::new();
    let run = fixture.shell(&FAR, "(sleep 0.1 & echo $! > orphan); exec sleep 600");
    run.wait_for_line("started");
    let orphan = fixture.pids("orphan", 1)[0];
    wait_for("the orphan's burial", || {
        !std::path::Path::new(&format!("/proc/{orphan}")).exists()
    });
}

fn a_guardian_without_a_command_exits_with_tenure() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let guardian = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg0("tenure-guardian")
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn();
    drop(ours);
    let guardian = Process::of(guardian.expect("the guardian starts"));
    assert_eq!(guardian.finish().code, 0);
}

fn a_stub_of_another_parent_never_runs_the_command() {
    let fixture = Fixture::new();
    let stub = |parent: u32| {
        let (mut ours, theirs) = UnixStream::pair().expect("a socket pair");
        // The command line and the input are sent before the stub starts, so that the stub does not wait for them.
        let launch = launch(&["touch", "ran"]);
        ours.write_all(&(launch.len() as u64).to_ne_bytes())
            .and_then(|()| ours.write_all(launch.as_bytes()))
            .expect("it is sent");
        let input = File::open("/dev/null").expect("the null device");
        send_stdin(&ours, input.as_fd()).expect("it is sent");
        let stub = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .arg0("tenure-stub")
            .arg(parent.to_string())
            .current_dir(fixture.folder.path())
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .spawn();
        Process::of(stub.expect("the stub starts")).exit_code();
        let mut error = Vec::new();
        // The read may fail after it has received the stub's error: if the stub ends without having read all of its
        // standard input (a socket), the kernel resets the connection.
        let _ = ours.read_to_end(&mut error);
        assert_ne!(
            fixture.path("ran").exists(),
            !error.is_empty(),
            "an error or the command"
        );
        error.is_empty()
    };
    let mut gone = Command::new("true").spawn().expect("true starts");
    gone.wait().expect("our child");
    assert!(!stub(gone.id()), "the parent had died");
    assert!(stub(std::process::id()), "the parent is alive");
}

/// Returns the command to start as JSON, the form in which the guardian and the stub receive it.
fn launch(argv: &[&str]) -> String {
    let argv = argv.iter().map(Into::into).collect();
    serde_json::to_string(&Launch::new(argv, Vec::new())).expect("JSON")
}

/// Time until a deadline that no test reaches.
const FAR_AWAY: Duration = Duration::from_secs(600);

/// Returns the order that sets a deadline, after which the guardian starts no command.
fn arm(after: Duration) -> String {
    let term_at = now() + after;
    let deadline = Deadline {
        term_at,
        kill_at: term_at + Duration::from_secs(60),
    };
    let deadline = serde_json::to_string(&deadline).expect("JSON");
    format!("{{\"Arm\":{deadline}}}\n")
}

/// Starts a guardian. Returns the socket to it, the guardian, and the process id of its stub.
fn guardian_with_stub(fixture: &Fixture) -> (UnixStream, Process, i32) {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let limit = Some(Duration::from_secs(60));
    ours.set_read_timeout(limit)
        .and_then(|()| ours.set_write_timeout(limit))
        .expect("it is ours");
    let guardian = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg0("tenure-guardian")
        .current_dir(fixture.folder.path())
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn()
        .expect("the guardian starts");
    let input = File::open("/dev/null").expect("the null device");
    send_stdin(&ours, input.as_fd()).expect("it is sent");
    let children = format!("/proc/{0}/task/{0}/children", guardian.id());
    let stub = || {
        let children = std::fs::read_to_string(&children).unwrap_or_default();
        children.trim().parse::<i32>().ok()
    };
    // Before its first sleep the stub may not have asked to die with the guardian.
    let name = |pid| std::fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let is_ready = |pid| name(pid).starts_with("tenure-stub") && stat_field(pid, 0).as_deref() == Some("S");
    wait_for("the stub", || stub().is_some_and(is_ready));
    let stub = stub().expect("the guardian has a child");
    (ours, Process::of(guardian), stub)
}

/// A stopped stub, which is killed when the test ends.
struct StoppedStub(i32);

impl Drop for StoppedStub {
    fn drop(&mut self) {
        // An error means that the stub has ended.
        let _ = rustix::process::kill_process(Pid::from_raw(self.0).expect("not zero"), Signal::KILL);
    }
}

/// Stops the stub, and sends its guardian a command line that fills the stub's socket, and `Go`. Waits until the guardian
/// has read both.
fn start_with_a_stopped_stub() -> (Fixture, BufReader<UnixStream>, Process, StoppedStub) {
    let fixture = Fixture::new();
    let (ours, guardian, stub) = guardian_with_stub(&fixture);
    send(stub, Signal::STOP);
    let stub = StoppedStub(stub);
    let (mut full, _other) = UnixStream::pair().expect("a socket pair");
    full.set_nonblocking(true).expect("it is ours");
    full.write_all(&[0; 8]).expect("there is space");
    let space = full.write(&vec![0; 1 << 20]).expect("there is space");
    let rest = space - launch(&["touch", "ran", ""]).len();
    // Each byte takes four characters of JSON, such as `120,`; the last one three.
    let long = "x".repeat((rest + 1) / 4);
    let start = launch(&["touch", "ran", &long]);
    let mut reports = BufReader::new(ours);
    let orders = format!("{}{{\"Start\":{start}}}\n\"Go\"\n", arm(FAR_AWAY));
    reports
        .get_mut()
        .write_all(orders.as_bytes())
        .expect("it is sent");
    let mut spawned = String::new();
    reports.read_line(&mut spawned).expect("a report");
    assert!(spawned.contains("Spawned"), "{spawned}");
    let state = || stat_field(guardian.pid().cast_signed(), 0);
    wait_for("the guardian's sleep", || state().as_deref() == Some("S"));
    (fixture, reports, guardian, stub)
}

fn a_stub_that_reads_slowly_still_becomes_the_command() {
    let (fixture, _reports, guardian, stub) = start_with_a_stopped_stub();
    send(stub.0, Signal::CONT);
    fixture.wait_for_file("ran");
    assert_eq!(guardian.finish().code, 0);
}

fn a_stub_that_reads_too_slowly_never_becomes_the_command() {
    let (fixture, mut reports, guardian, stub) = start_with_a_stopped_stub();
    let order = arm(Duration::ZERO);
    reports.get_mut().write_all(order.as_bytes()).expect("it is sent");
    let reports: Vec<String> = reports.lines().map(|line| line.expect("a report")).collect();
    assert_eq!(
        reports.last().map(String::as_str),
        Some("\"Refused\""),
        "{reports:?}"
    );
    assert_eq!(guardian.finish().code, 0);
    wait_for("the stub's end", || !alive(stub.0));
    assert!(!fixture.path("ran").exists());
}

fn a_stub_that_died_while_it_waited_is_replaced() {
    let fixture = Fixture::new();
    let (mut ours, guardian, dead) = guardian_with_stub(&fixture);
    send(dead, Signal::KILL);
    wait_for("the stub's end", || !alive(dead));
    writeln!(
        ours,
        "{}{{\"Start\":{}}}\n\"Go\"",
        arm(FAR_AWAY),
        launch(&["touch", "ran"])
    )
    .expect("it is sent");
    fixture.wait_for_file("ran");
    assert_eq!(guardian.finish().code, 0);
}

fn the_guardian_survives_signals_of_a_terminal() {
    let fixture = Fixture::new();
    let run = fixture.start(&FAR, &["cat"]);
    let guardian = run.wait_for_line("guardian");
    run.wait_for_line("started");
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::TSTP,
        Signal::USR1,
        Signal::USR2,
        Signal::TTIN,
        Signal::TTOU,
    ] {
        send(guardian, signal);
    }
    let outcome = run.finish();
    assert_eq!(outcome.code, 0, "{}", outcome.stderr);
    assert!(!outcome.stderr.contains("GuardianDied"), "{}", outcome.stderr);
}
