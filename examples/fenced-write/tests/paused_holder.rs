//! A holder's process is stopped for longer than its lease, and continued. Only a fence refuses its late write.

use std::process::Command;

use fenced_write::{Ledger, Writer, play};

#[test]
fn a_stale_write_succeeds_only_without_a_fence() {
    let refused_by_update = "the write was refused: a newer fencing token";
    let refused_by_guard = "refused by fence: a newer token has written this row";
    for (writer, old_write, balance) in [
        (Writer::Unfenced, "written", 100),
        (Writer::Fenced, refused_by_update, 200),
        (Writer::Guarded, refused_by_guard, 200),
    ] {
        let folder = tempfile::tempdir().expect("there is a temporary folder");
        let ledger = Ledger::create(&folder.path().join("ledger.db"), writer).expect("SQLite makes a table");
        let holder = |balance: i64| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_fenced-write"));
            command.arg("hold").arg(folder.path());
            command.args([writer.name(), &balance.to_string()]);
            command
        };
        let ending = play(holder, |event| println!("{event}"));
        assert!(ending.new_token > ending.old_token, "{writer:?}: {ending:?}");
        assert_eq!(ending.new_write, "written", "{writer:?}: {ending:?}");
        assert!(ending.old_write.contains(old_write), "{writer:?}: {ending:?}");
        assert_eq!(ledger.balance().expect("SQLite answers"), balance, "{writer:?}");
    }
}

#[test]
fn the_guard_refuses_writers_without_a_fence() {
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

#[test]
fn help_shows_the_usage() {
    let help = Command::new(env!("CARGO_BIN_EXE_fenced-write"))
        .arg("--help")
        .output();
    let help = help.expect("the program starts");
    assert!(help.status.success(), "{help:?}");
    assert!(help.stdout.starts_with(b"usage: fenced-write"), "{help:?}");
}
