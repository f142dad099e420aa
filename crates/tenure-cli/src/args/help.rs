//! The parts of `--help` that do not describe single options: examples, exit codes, and the promise of `run`, which the
//! README repeats. The objects that verbs print for programs are described in `objects`.

/// Printed below `tenure -h`.
pub(super) const EXAMPLES: &str = "\
Examples:
  tenure run backup -- ./backup.sh             wait for the lock, run, release
  tenure run -n -E 0 backup -- ./backup.sh     for cron: elsewhere is fine too
  tenure ls                                    who holds what

More: `tenure --help`, `tenure run --help`.";

macro_rules! run_exit_codes {
    () => {
        "\
Exit codes of `run`:
  the command's own, or 128+n if signal n ended it: it ran under the lock
  123  the lock was lost (or --max-hold reached), the command was stopped or
       not started
  124  (or --busy-exit) not acquired in time; the command never ran
  125  our own failure: usage, store unreachable, wrong kind; it never ran
  126  the command could not be executed; the lock was released
  127  the command was not found; the lock was released"
    };
}

macro_rules! promise {
    ($exception:literal) => {
        concat!(
            "\
What is promised:
  A second small process, the guardian, holds the lock's deadline. If the
  lock cannot be renewed in time, it sends TERM to the command and to all that
  the command started, and KILL a grace later, both before the store may give
  the lock to another: also when tenure itself is stopped. If tenure is
  killed, the command is killed at once. When the command ends, what it left
  running is killed, and then the lock is released. No command starts once
  its lock is known to be lost.",
            $exception,
            "

Not promised:
  - A system call in progress (a disk or network file system that hangs) and
    requests that were already sent may still take effect.
  - If the machine was suspended or its virtual machine paused, the kill
    comes on waking. Another may have held the lock meanwhile: then only the
    fencing token (TENURE_TOKEN), checked by what you write to, protects it.
  - After an eviction, a lost session or lost data in the store, another may
    hold the lock before the command learns of it.
  - A process of another user (sudo, when you are not root) and work handed
    to another daemon or host (docker, systemd-run, ssh) are not reached.
  - If tenure and its guardian are both killed with KILL, only the command
    itself is sure to die.
  - Where the lock lives with a connection, killing tenure frees it at that
    moment; the kill of the command follows at once, but not provably first."
        )
    };
}

macro_rules! promise_of_run {
    () => {
        promise!(
            "
  With --on-lost ignore there is no deadline from the start of the command on,
  for as long as tenure lives."
        )
    };
}

/// Printed below `tenure --help`.
pub(super) const TENURE: &str = concat!(
    "\
Examples:
  tenure run backup -- ./backup.sh
  tenure run -n -E 0 backup -- ./backup.sh
  tenure --url redis://10.0.0.5 run deploy --wait 10m -- make deploy
  tenure --url redis+sentinel://10.0.0.1,10.0.0.2,10.0.0.3/mymaster doctor

The store is --url or --url-file; else TENURE_URL; else the first line of
$XDG_CONFIG_HOME/tenure/url, then of /etc/tenure/url, that is neither empty
nor begins with #; else a SQLite file of your own, which locks only between
your processes on this machine. Root uses no file in another user's home.
To share a file with a group of users, write sqlite:PATH?mode=0660.
Durations are written `500ms`, `5s`, `2m`, `1h30m`.

",
    promise_of_run!(),
    "\n\n",
    run_exit_codes!(),
    "

Exit codes of the other verbs (`tenure VERB --help` shows them in words):
  0 done · 1 busy, timed out or findings · 2 usage · 3 the store failed · 4 lock lost"
);

/// Printed below `tenure run -h`.
pub(super) const RUN_SHORT: &str = run_exit_codes!();

/// Printed below `tenure run --help`.
pub(super) const RUN: &str = concat!(
    "\
The command runs in a process group of its own with your stdin, stdout and
stderr, and sees TENURE_KEY, TENURE_TOKEN, TENURE_CLAIM and TENURE_STORE.
INT, TERM, HUP and QUIT are forwarded to its group, USR1 and USR2 to the
command alone. While still waiting for the lock, or for the guardian to start
the command, INT, TERM, HUP and QUIT give up: the command never runs. After a
second of waiting, a line on the terminal shows the holder, where the store
shows it; if stderr is no terminal, one line is printed after 10 s. With -q or
--json there is neither. Signals that you ignore stay ignored in the command,
except CHLD and PIPE, which have their default. What is printed on stdout is
the command's alone, also with --json.

",
    promise_of_run!(),
    "\n\n",
    run_exit_codes!()
);

macro_rules! elect_exit_codes {
    () => {
        "\
Exit codes of `elect`:
  the command's own, or 128+n if signal n ended it: it ran to its end as leader
  128+n  signal n came while another led: the command does not run; or INT,
         TERM or QUIT came while it ran, and the lead was lost before its end
  123    --max-hold was reached, the command was stopped
  125    our own failure: usage, store unreachable, wrong kind
  126    the command could not be executed
  127    the command was not found"
    };
}

/// Printed below `tenure elect -h`.
pub(super) const ELECT_SHORT: &str = elect_exit_codes!();

/// Printed below `tenure elect --help`.
pub(super) const ELECT: &str = concat!(
    "\
Of all candidates for NAME one leads and runs its command; the others wait, in
order where the store has fair locks. When the command ends by itself, elect
gives up the lead and ends. When the lead is lost, the command is stopped
(TERM, and KILL a grace later). Then elect campaigns again, and starts the
command again when it leads again; but if INT, TERM or QUIT came before, elect
ends. At --max-hold the command is stopped too, and elect ends. NAME is a key,
held as a mutex: `tenure show NAME` shows the leader and the candidates. The
command sees TENURE_KEY, TENURE_TOKEN, TENURE_CLAIM and TENURE_STORE; signals
reach it as under `run`.

",
    promise!(""),
    "\n\n",
    elect_exit_codes!()
);
