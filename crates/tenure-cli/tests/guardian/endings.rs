//! How a command ends, and that nothing it started outlives it.

use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::scene::{FAR, Scene, alive, assert_dead, send, wait_for};
use crate::trials;

trials![
    the_exit_code_is_the_commands_or_128_and_the_signal,
    a_program_that_is_not_there_is_told_from_one_that_cannot_run,
    nothing_starts_without_an_armed_deadline,
    nothing_starts_after_its_deadline,
    term_comes_at_its_time_and_kill_at_its_own,
    a_deadline_without_grace_sends_no_term,
    a_renewed_deadline_does_not_end_the_command,
    a_deadline_that_moves_back_ends_the_command_then,
    a_waived_deadline_never_comes,
    a_loss_sends_term_and_then_kill,
    descendants_that_left_the_group_hear_term_too,
    what_the_command_leaves_behind_is_killed,
    escapees_die_at_the_deadline,
    everything_dies_at_once_when_tenure_is_killed,
    everything_dies_when_tenure_is_killed_even_if_waived,
    everything_dies_at_its_deadline_while_tenure_is_stopped,
    a_process_that_keeps_forking_is_ended,
    a_chain_of_forks_is_ended,
    orphans_are_reaped_while_the_command_runs,
    a_guardian_without_a_command_leaves_with_tenure,
    a_stub_whose_parent_is_not_the_guardian_never_runs_the_command,
    signals_reach_the_group_or_the_leader_as_asked,
    the_guardian_is_deaf_to_what_a_terminal_sends,
];

/// Leaves by setsid, by a double fork and by a group of its own, and writes all four process ids.
pub(crate) const ESCAPE: &str = "setsid sleep 600 & a=$!; (setsid sh -c 'sleep 600 & echo $! > daemon' &); \
    while ! [ -s daemon ]; do sleep 0.01; done; timeout 600 sleep 600 & \
    echo $$ $a $(cat daemon) $! > pids";

fn the_exit_code_is_the_commands_or_128_and_the_signal() {
    let scene = Scene::new();
    assert_eq!(scene.start(&FAR, &["true"]).finish().code, Some(0));
    assert_eq!(scene.shell(&FAR, "exit 7").finish().code, Some(7));
    assert_eq!(scene.shell(&FAR, "kill -TERM $$").finish().code, Some(143));
}

fn a_program_that_is_not_there_is_told_from_one_that_cannot_run() {
    let scene = Scene::new();
    std::fs::write(scene.path("plain"), "x").expect("the folder is ours");
    std::fs::write(scene.path("script"), "#!/nonexistent/interpreter\n").expect("the folder is ours");
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(scene.path("script"), mode).expect("the folder is ours");
    let code = |program: &str| scene.start(&FAR, &[program]).finish().code;
    assert_eq!(code("/nonexistent/program"), Some(127));
    assert_eq!(code("no-such-program-anywhere"), Some(127));
    assert_eq!(code("./plain"), Some(126));
    assert_eq!(code("./script"), Some(126));
    assert_eq!(code("/"), Some(126));
}

fn nothing_starts_without_an_armed_deadline() {
    let scene = Scene::new();
    let outcome = scene.start(&[], &["touch", "ran"]).finish();
    assert!(outcome.told.contains("not started TooLate"), "{}", outcome.told);
    assert!(!scene.path("ran").exists());
}

fn nothing_starts_after_its_deadline() {
    let scene = Scene::new();
    let outcome = scene.start(&["term=0", "kill=60000"], &["touch", "ran"]).finish();
    assert!(outcome.told.contains("not started TooLate"), "{}", outcome.told);
    assert!(!scene.path("ran").exists());
}

fn term_comes_at_its_time_and_kill_at_its_own() {
    let scene = Scene::new();
    let begun = Instant::now();
    let mut run = scene.shell(
        &["term=500", "kill=1000"],
        "trap 'echo term >> log' TERM; echo $$ > pids; while :; do sleep 0.02; done",
    );
    let pids = scene.pids("pids", 1);
    run.told("Terming(Deadline)");
    let termed = begun.elapsed();
    run.told("Killing(Deadline)");
    let killed = begun.elapsed();
    let outcome = run.finish();
    // The upper bounds leave room for a busy machine, not for a guardian that forgot.
    assert!((500..1000).contains(&termed.as_millis()), "{termed:?}");
    assert!((1000..2000).contains(&killed.as_millis()), "{killed:?}");
    assert_eq!(
        std::fs::read_to_string(scene.path("log")).expect("TERM was heard"),
        "term\n"
    );
    assert_eq!(outcome.code, Some(137));
    assert!(
        outcome.told.contains("stopped_by: Some(Deadline)"),
        "{}",
        outcome.told
    );
    assert_dead(&pids);
}

fn a_deadline_without_grace_sends_no_term() {
    let scene = Scene::new();
    let run = scene.shell(
        &["term=500", "kill=500"],
        "trap 'touch log' TERM; while :; do sleep 0.02; done",
    );
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137));
    assert!(
        !outcome.told.contains("Terming") && !scene.path("log").exists(),
        "{}",
        outcome.told
    );
}

fn a_renewed_deadline_does_not_end_the_command() {
    let scene = Scene::new();
    let run = scene.shell(&["term=400", "kill=800", "renew=100"], "sleep 1.5; exit 3");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(3), "{}", outcome.told);
    assert!(!outcome.told.contains("ming("), "{}", outcome.told);
}

fn a_deadline_that_moves_back_ends_the_command_then() {
    let scene = Scene::new();
    let run = scene.shell(&[&FAR[..], &["back=300"]].concat(), "exec sleep 600");
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137), "{}", outcome.told);
    assert!(
        outcome.told.contains("stopped_by: Some(Deadline)"),
        "{}",
        outcome.told
    );
}

fn a_waived_deadline_never_comes() {
    let scene = Scene::new();
    let run = scene.shell(&["term=300", "kill=400", "waive=1"], "sleep 1; exit 4");
    assert_eq!(run.finish().code, Some(4));
}

fn a_loss_sends_term_and_then_kill() {
    let scene = Scene::new();
    let script = "trap 'echo term >> log' TERM; while :; do sleep 0.02; done";
    let outcome = scene
        .shell(&[&FAR[..], &["stop=300", "grace=300"]].concat(), script)
        .finish();
    assert_eq!(outcome.code, Some(137));
    assert!(
        outcome.told.contains("stopped_by: Some(Lost)"),
        "{}",
        outcome.told
    );
    assert_eq!(
        std::fs::read_to_string(scene.path("log")).expect("TERM was heard"),
        "term\n"
    );
    let polite = scene.shell(
        &[&FAR[..], &["stop=300", "grace=60000"]].concat(),
        "trap 'exit 5' TERM; while :; do sleep 0.02; done",
    );
    assert_eq!(polite.finish().code, Some(5));
}

fn descendants_that_left_the_group_hear_term_too() {
    let scene = Scene::new();
    let away = "trap 'touch heard; exit' TERM; echo $$ > away; while :; do sleep 0.02; done";
    let script = format!(
        "setsid sh -c \"{}\" & trap : TERM; echo $$ > pids; while :; do sleep 0.02; done",
        away.replace('$', "\\$")
    );
    let mut run = scene.shell(&[&FAR[..], &["stop=700", "grace=60000"]].concat(), &script);
    let leader = scene.pids("pids", 1)[0];
    scene.pids("away", 1);
    run.told("Terming(Lost)");
    scene.wait_for_file("heard");
    assert!(alive(leader), "the grace has not ended");
}

/// R24: grandchildren do not linger.
fn what_the_command_leaves_behind_is_killed() {
    let scene = Scene::new();
    let run = scene.shell(&FAR, &format!("{ESCAPE}; exit 6"));
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(6));
    assert!(outcome.told.contains("stopped_by: None"), "{}", outcome.told);
    assert_dead(&scene.pids("pids", 4)[1..]);
}

/// R24: nor do those that left the group.
fn escapees_die_at_the_deadline() {
    let scene = Scene::new();
    let run = scene.shell(
        &["term=1200", "kill=1500"],
        &format!("trap : TERM; {ESCAPE}; while :; do wait; done"),
    );
    let pids = scene.pids("pids", 4);
    assert!(pids.iter().all(|&pid| alive(pid)), "the deadline has not come");
    assert_eq!(run.finish().code, Some(137));
    assert_dead(&pids);
}

/// R24: the children die with the tool.
fn everything_dies_at_once_when_tenure_is_killed() {
    let scene = Scene::new();
    let mut run = scene.shell(&FAR, &format!("trap : TERM; {ESCAPE}; wait"));
    let guardian = run.told("guardian");
    let mut pids = scene.pids("pids", 4);
    pids.push(guardian);
    send(run.pid(), Signal::KILL);
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
}

fn everything_dies_when_tenure_is_killed_even_if_waived() {
    let scene = Scene::new();
    let run = scene.shell(&["waive=1"], &format!("{ESCAPE}; wait"));
    let pids = scene.pids("pids", 4);
    send(run.pid(), Signal::KILL);
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
}

fn everything_dies_at_its_deadline_while_tenure_is_stopped() {
    let scene = Scene::new();
    let begun = Instant::now();
    let run = scene.shell(
        &["term=1000", "kill=1500", "renew=100"],
        &format!("trap : TERM; {ESCAPE}; while :; do wait; done"),
    );
    let pids = scene.pids("pids", 4);
    send(run.pid(), Signal::STOP);
    let stopped = begun.elapsed();
    wait_for("the end of all", || !pids.iter().any(|&pid| alive(pid)));
    let took = begun.elapsed();
    send(run.pid(), Signal::CONT);
    assert!(
        took < stopped + Duration::from_millis(1500) + Duration::from_millis(1000),
        "{took:?} after {stopped:?}"
    );
    let outcome = run.finish();
    assert_eq!(outcome.code, Some(137));
    assert!(
        outcome.told.contains("stopped_by: Some(Deadline)"),
        "{}",
        outcome.told
    );
}

fn a_process_that_keeps_forking_is_ended() {
    let scene = Scene::new();
    // Each leaves the group, and there is always another on its way; the marker finds them all.
    let marker = format!("600.{}", std::process::id());
    let script = format!("touch begun; while :; do setsid sleep {marker} & done");
    let run = scene.shell(&["term=1200", "kill=1200"], &script);
    scene.wait_for_file("begun");
    assert_eq!(run.finish().code, Some(137));
    assert_eq!(running(&marker), 0);
}

fn a_chain_of_forks_is_ended() {
    let scene = Scene::new();
    // Each link starts the next in a session of its own and ends: no process id lives for long.
    let marker = format!("link-{}", std::process::id());
    std::fs::write(scene.path(&marker), format!("setsid sh ./{marker} & exit 0"))
        .expect("the folder is ours");
    let run = scene.shell(
        &["term=1200", "kill=1200"],
        &format!("sh ./{marker}; exec sleep 600"),
    );
    assert_eq!(run.finish().code, Some(137));
    assert_eq!(running(&marker), 0);
}

/// How many processes have this word in their arguments.
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
    let scene = Scene::new();
    let mut run = scene.shell(&FAR, "(sleep 0.1 & echo $! > orphan); exec sleep 600");
    run.told("started");
    let orphan = scene.pids("orphan", 1)[0];
    wait_for("the orphan's burial", || {
        !std::path::Path::new(&format!("/proc/{orphan}")).exists()
    });
}

fn a_guardian_without_a_command_leaves_with_tenure() {
    let (ours, theirs) = UnixStream::pair().expect("a socket pair");
    let mut guardian = Command::new(env!("CARGO_BIN_EXE_tenure"))
        .arg0("tenure-guardian")
        .stdin(std::os::fd::OwnedFd::from(theirs))
        .spawn()
        .expect("the guardian starts");
    drop(ours);
    wait_for("its end", || {
        guardian
            .try_wait()
            .expect("our child")
            .is_some_and(|status| status.success())
    });
}

fn a_stub_whose_parent_is_not_the_guardian_never_runs_the_command() {
    let scene = Scene::new();
    let stub = |parent: u32| {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        // The descriptor that lets it run is there before it asks.
        give(&ours);
        let mut stub = Command::new(env!("CARGO_BIN_EXE_tenure"))
            .arg0("tenure-stub")
            .args([&parent.to_string(), "touch", "ran"])
            .current_dir(scene.folder.path())
            .stdin(std::os::fd::OwnedFd::from(theirs))
            .spawn()
            .expect("the stub starts");
        wait_for("its end", || stub.try_wait().expect("our child").is_some());
        scene.path("ran").exists()
    };
    let mut gone = Command::new("true").spawn().expect("true starts");
    gone.wait().expect("our child");
    assert!(!stub(gone.id()), "the parent had died");
    assert!(
        stub(std::process::id()),
        "the parent was alive: the test itself is sound"
    );
}

/// What the guardian sends to let a stub run: a standard input.
fn give(socket: &UnixStream) {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
    let input = std::fs::File::open("/dev/null").expect("the null device");
    let fds = [std::os::fd::AsFd::as_fd(&input)];
    let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(&fds)));
    sendmsg(
        socket,
        &[std::io::IoSlice::new(b"i")],
        &mut control,
        SendFlags::empty(),
    )
    .expect("it is sent");
}

fn signals_reach_the_group_or_the_leader_as_asked() {
    let scene = Scene::new();
    let listener = "for s in TERM HUP INT QUIT USR1 USR2; do trap \"echo $s >> $0\" $s; done; \
        echo $$ >> pids; while :; do sleep 0.02; done";
    let script = format!("sh -c '{listener}' child & exec sh -c '{listener}' leader");
    let mut run = scene.shell(&FAR, &script);
    run.told("started");
    scene.pids("pids", 2);
    // In the background a shell without job control ignores INT and QUIT, so the child hears neither.
    let sent = [
        (Signal::TERM, "TERM"),
        (Signal::HUP, "HUP"),
        (Signal::USR1, "USR1"),
        (Signal::USR2, "USR2"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
    ];
    let heard = |who: &str| std::fs::read_to_string(scene.path(who)).unwrap_or_default();
    for (signal, name) in sent {
        send(run.pid(), signal);
        wait_for(name, || heard("leader").lines().last() == Some(name));
    }
    // What comes close together is heard in any order, but USR1 and USR2 were the leader's alone.
    wait_for("the child's TERM and HUP", || {
        let mut child: Vec<String> = heard("child").lines().map(str::to_owned).collect();
        child.sort_unstable();
        child == ["HUP", "TERM"]
    });
}

fn the_guardian_is_deaf_to_what_a_terminal_sends() {
    let scene = Scene::new();
    let mut run = scene.start(&FAR, &["cat"]);
    let guardian = run.told("guardian");
    run.told("started");
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
    assert_eq!(outcome.code, Some(0), "{}", outcome.told);
    assert!(!outcome.told.contains("GuardianDied"), "{}", outcome.told);
}
