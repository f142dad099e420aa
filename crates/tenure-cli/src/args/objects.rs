//! The part of `--help` for programs: the fields of the objects that each verb prints. Each constant is printed below
//! the `--help` of its verb. The objects are defined in `output` and `verbs`; a test compares them with this text.

macro_rules! key_fields {
    () => {
        "  key           as it was written
  kind          mutex, read-write or semaphore; null while the key has neither
                a holder nor a waiter
  holders       the holders: a list, each with
    claim         what `tenure evict KEY --claim` takes
    foreign       true for another kind of client's
    label         the label of its client; null if unknown
    mode          exclusive, read, write or permits
    permits       how many it has of a semaphore; null of others
    token         its fencing token, or the first of its run; null where there
                  is none
    remaining_ms  until its lease ends; null where there is no time limit, or
                  the store cannot tell another's
  waiters       the queue in order, null where the store cannot tell: a list,
                each with claim, foreign, label and mode as above, and
    position      its place, from 0"
    };
}

macro_rules! exit_codes {
    () => {
        "Exit codes: 0 done · 2 usage · 3 the store failed"
    };
}

macro_rules! queue {
    () => {
        "\
Only fair waiters (`--fair`, `elect`) stand in the store's queue. Other waiters
are not shown: there may be waiters although the queue is empty."
    };
}

pub(super) const LS: &str = concat!(
    "\
A row for each holder, and one for a key that has only a queue.

",
    queue!(),
    "

With --json: an object a line for each key, with the fields
",
    key_fields!(),
    "\n\n",
    exit_codes!()
);

pub(super) const SHOW: &str = concat!(
    queue!(),
    "

With --json: one object, with the fields
",
    key_fields!(),
    "\n\n",
    exit_codes!()
);

pub(super) const WATCH: &str = concat!(
    "\
Looks at the store once a second and prints each difference: `held`, `freed`,
`holders` (the set of holders changed), `waiters` (the queue changed), and
`unavailable` and `available` when the store stops and starts to answer. It
begins with the present state. Changes between two looks are not seen. Ends
with exit 0 on INT, TERM, HUP or QUIT, and when its output has no reader.

With --json: an object a line, with the fields of `tenure show --json`, which
`tenure show --help` explains (key, kind, holders, waiters; none of them of
`unavailable` and `available`), and
  time          when the change was seen, in UTC
  change        one of the six words above
  message       of `unavailable` alone: why

",
    exit_codes!()
);

pub(super) const EVICT: &str = "\
With --json: one object, with the fields
  key           as it was written
  freed         the claims that it was taken from: a list; empty if there was
                no such holder or waiter

Exit codes: 0 freed · 1 nothing to free · 2 usage · 3 the store failed";

pub(super) const DOCTOR: &str = "\
Each finding is a line: its severity, what was found, and what follows for the
locks. What every store of that kind risks, however it is set up, is no
finding but a note on stderr. The last line on stderr is a summary, except with
-q or --json.

With --json: an object a line for each finding, with the fields
  severity      note (good to know), warning (a promise holds less often than
                it might) or danger (a promise does not hold)
  what          what was found
  consequence   what follows for the locks

Exit codes: 0 no findings · 1 findings · 2 usage · 3 the store failed";

pub(super) const SCHEMA: &str = concat!(
    "\
With --json: one object, with the fields
  store         the scheme of the store's URL, such as sqlite
  statements    the SQL that makes the tables
  applied       whether it was carried out (--apply)

",
    exit_codes!()
);

pub(super) const COMPLETIONS: &str = "\
With --json: one object, with the fields
  shell         for which shell
  script        the script

Exit codes: 0 done · 2 usage";

pub(super) const MAN: &str = "\
With --out, writes the page of tenure and those of all verbs as files, such as
tenure-run.1, and prints their names. A folder named man1 below a folder of
MANPATH suits.

With --json: one object a page, with the fields
  verb          whose page it is; null for the command's own
  page          the page, as roff reads it; with --out, its file

Exit codes: 0 done · 2 usage · 3 a page cannot be written";

pub(super) const HOLD: &str = "\
Holds until stdin ends, or INT, TERM, HUP or QUIT comes, then releases. Where
stdin is the null device, as under a service manager, say --no-stdin.

Prints one JSON object a line, with or without --json. What happened is in its
field `event`:
  waiting       not granted at once; at most one such event: key, claim
  acquired      the lock is held: key, claim, mode, token, lease_ms, valid_ms,
                waited_ms, store; several keys have members instead of key,
                claim and token
  renewed       the store confirmed a renewal: valid_ms
  lost          the lock was lost: cause; exit 4
  released      the lock was released; exit 0
  busy          another client holds it, and --no-wait was given: holder; exit 1
  timeout       it was busy for all of --wait: holder; exit 1
  cancelled     stdin ended, or one of these signals came, while waiting; exit 1
  error         our own failure: message; exit 3

If the output ends without `released`, the lock is lost: stop at once. The same
holds when valid_ms have passed since you read the last acquired or renewed:
count them down on a monotonic clock of your own. So you stop in time even if
`tenure hold` itself was stopped or killed.

The fields:
  event         one of the words above
  v             the version of this protocol, 1; of the first event only
  key           as it was written
  claim         our claim on it, which `tenure evict KEY --claim` takes
  mode          exclusive, read, write or permits
  token         the fencing token; null where the store has none
  members       of several keys: a list, each with key, claim and token
  lease_ms      what the store gave; null where it has no time limit
  valid_ms      time left in which the lock is surely held, counted from before
                the request to the store was sent
  waited_ms     from the first attempt to the grant
  store         the kind of store, such as sqlite
  holder        the label of a holder; null where the store cannot tell
  cause         expired, evicted, session, missing, unreachable or max_hold
  message       what, why and what to do

Exit codes: 0 released · 1 not acquired · 2 usage, without an event · 3 our own
failure · 4 the lock was lost";
