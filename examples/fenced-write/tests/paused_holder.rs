//! A real process that is stopped beyond its lease and goes on: is its write refused?
//! Not here: what each trigger refuses, which is in `guard.rs`.

use std::process::Command;

use fenced_write::{Ending, Ledger, Writer, play};

/// Plays the story with that writer; answers how it ended, and the balance.
fn ending(writer: Writer) -> (Ending, i64) {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let ledger = Ledger::create(&folder.path().join("ledger.db"), writer).expect("SQLite makes a table");
    let holder = |balance: i64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fenced-write"));
        command.arg("hold").arg(folder.path());
        command.args([writer.name(), &balance.to_string()]);
        command
    };
    let ending = play(holder, |event| println!("{event}")).expect("both holders play");
    assert!(ending.new_token > ending.old_token, "{ending:?}");
    assert_eq!(ending.new_write, "written", "{ending:?}");
    (ending, ledger.balance().expect("SQLite answers"))
}

#[test]
fn without_a_fence_a_stale_write_gets_through() {
    let (ending, balance) = ending(Writer::Unfenced);
    assert_eq!((ending.old_write.as_str(), balance), ("written", 100));
}

#[test]
fn a_fenced_update_of_a_stale_holder_writes_no_row() {
    let (ending, balance) = ending(Writer::Fenced);
    assert!(
        ending
            .old_write
            .starts_with("refused: the write was refused: a newer fencing token"),
        "{ending:?}"
    );
    assert_eq!(balance, 200);
}

#[test]
fn the_guard_alone_refuses_a_stale_token() {
    let (ending, balance) = ending(Writer::Guarded);
    assert!(
        ending
            .old_write
            .contains("refused by fence: a newer token has written this row"),
        "{ending:?}"
    );
    assert_eq!(balance, 200);
}

#[test]
fn the_guard_refuses_a_writer_that_forgets_the_fence_whoever_it_is() {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let ledger =
        Ledger::create(&folder.path().join("ledger.db"), Writer::Forgetful).expect("SQLite makes a table");
    let token = tenure::FencingToken::new(7).expect("seven is a token");
    let refused = ledger
        .write(Writer::Forgetful, token, 1)
        .expect_err("it brings no token");
    assert!(
        refused
            .to_string()
            .contains("refused by fence: this write brings no token"),
        "{refused}"
    );
    ledger.write(Writer::Fenced, token, 2).expect("it brings one");
    ledger
        .write(Writer::Forgetful, token, 3)
        .expect_err("an equal token in the row is not one in the statement");
    assert_eq!(ledger.balance().expect("SQLite answers"), 2);
}
