//! A real process that is stopped beyond its lease and goes on: is its write through sqlx refused?
//! Not here: a write without any fence, and what each trigger refuses, which are in the tests of `fenced-write`.

use std::process::Command;

use fenced_write_sqlx::{Ending, Ledger, Writer, play};

/// Plays the story with that writer; answers how it ended, and the balance.
async fn ending(writer: Writer) -> (Ending, i64) {
    let folder = tempfile::tempdir().expect("there is a temporary folder");
    let ledger = Ledger::create(&folder.path().join("ledger.db"), writer)
        .await
        .expect("SQLite makes a table");
    let holder = |balance: i64| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fenced-write-sqlx"));
        command.arg("hold").arg(folder.path());
        command.args([writer.name(), &balance.to_string()]);
        command
    };
    let ending = play(holder, |event| println!("{event}")).expect("both holders play");
    assert!(ending.new_token > ending.old_token, "{ending:?}");
    assert_eq!(ending.new_write, "written", "{ending:?}");
    (ending, ledger.balance().await.expect("SQLite answers"))
}

#[tokio::test]
async fn a_fenced_update_of_a_stale_holder_writes_no_row() {
    let (ending, balance) = ending(Writer::Fenced).await;
    assert!(
        ending
            .old_write
            .starts_with("refused: the write was refused: a newer fencing token"),
        "{ending:?}"
    );
    assert_eq!(balance, 200);
}

#[tokio::test]
async fn the_guard_alone_refuses_a_stale_token() {
    let (ending, balance) = ending(Writer::Guarded).await;
    assert!(
        ending
            .old_write
            .contains("refused by fence: a newer token has written this row"),
        "{ending:?}"
    );
    assert_eq!(balance, 200);
}
