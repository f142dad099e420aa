//! What the statements and triggers of `tenure::fenced` do in a real SQLite.
//! Not here: their text, which is in the tests of `tenure`.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tenure::FencingToken;
use tenure::fenced::{self, Dialect, Fence, Placeholders, Stale, Statement, Trigger};

const OLD: &str = "refused by fence: a newer token has written this row";
const NONE: &str = "refused by fence: this write brings no token";
const DELETED: &str = "refused by fence: a deleted row would forget its token";
const MOVED: &str = "refused by fence: a changed key would forget its token";

const CHECK: &str = "CHECK constraint failed: balance >= 0";

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("the number is a token")
}

fn fence() -> Fence {
    Fence::new(Dialect::Sqlite, "accounts", &["branch", "id"]).expect("the names are plain")
}

/// A table of accounts, with a guard if one is given.
fn accounts(guard: Option<&Trigger>) -> Connection {
    let connection = Connection::open_in_memory().expect("SQLite has memory");
    let table = "CREATE TABLE accounts (branch TEXT, id INTEGER, balance INTEGER, owner TEXT UNIQUE,
        CHECK (balance >= 0), PRIMARY KEY (branch, id))";
    connection.execute_batch(table).expect("it is SQL");
    connection
        .execute_batch(&fence().column_ddl())
        .expect("it is SQL");
    for statement in guard
        .into_iter()
        .flat_map(|guard| guard.create().expect("the names have room"))
    {
        connection.execute_batch(&statement).expect("it is SQL");
    }
    connection
}

fn run(
    connection: &Connection,
    statement: &Statement,
    balance: i64,
    by: u64,
) -> rusqlite::Result<Result<(), Stale>> {
    let keys = [Value::from("north".to_owned()), Value::from(7)];
    let params = statement.params([Value::from(balance)], token(by), keys);
    connection
        .execute(statement.sql(), params_from_iter(params))
        .map(fenced::applied)
}

/// The balance and the fence of the one account.
fn stored(connection: &Connection) -> (i64, i64) {
    let both = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
    connection
        .query_row("SELECT balance, fence FROM accounts", [], both)
        .expect("there is one account")
}

fn refused(connection: &Connection, sql: &str, with: &str) {
    let before = dump(connection);
    let error = connection.execute(sql, []).expect_err(sql).to_string();
    assert!(
        error.contains(with) && with.starts_with(fenced::REFUSED),
        "{sql}: {error}"
    );
    assert_eq!(
        dump(connection),
        before,
        "{sql}: what was refused has written nothing"
    );
}

fn marks(connection: &Connection) -> i64 {
    let sql = "SELECT count(*) FROM accounts_fence_brought";
    connection
        .query_row(sql, [], |row| row.get(0))
        .expect("SQLite answers")
}

fn dump(connection: &Connection) -> Vec<(i64, i64, i64)> {
    let mut all = connection
        .prepare("SELECT id, balance, fence FROM accounts ORDER BY id")
        .expect("it is SQL");
    let rows = all.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
    rows.expect("SQLite answers")
        .map(|row| row.expect("SQLite answers"))
        .collect()
}

#[test]
fn an_update_an_insert_and_an_upsert_accept_equal_and_newer_tokens_alone() {
    for style in [
        Placeholders::Question,
        Placeholders::Dollar,
        Placeholders::Colon,
        Placeholders::At,
    ] {
        let fence = fence().placeholders(style);
        let [update, insert, upsert] = [
            fence.update(&["balance"]),
            fence.insert(&["balance"]),
            fence.upsert(&["balance"]),
        ]
        .map(|statement| statement.expect("the names are plain"));
        let connection = accounts(None);
        let stale = Ok(Err(Stale { newest: None }));
        assert_eq!(
            run(&connection, &update, 1, 5),
            stale,
            "{style:?}: there is no row"
        );
        assert_eq!(run(&connection, &insert, 10, 5), Ok(Ok(())));
        assert_eq!(run(&connection, &insert, 11, 6), stale, "{style:?}: it is there");
        assert_eq!(stored(&connection), (10, 5));
        for write in [&update, &upsert] {
            assert_eq!(run(&connection, write, 20, 6), Ok(Ok(())));
            assert_eq!(
                run(&connection, write, 21, 6),
                Ok(Ok(())),
                "{style:?}: one holder writes often"
            );
            assert_eq!(run(&connection, write, 1, 5), stale);
            assert_eq!(stored(&connection), (21, 6));
        }
        connection
            .execute("DELETE FROM accounts", [])
            .expect("there is no guard");
        assert_eq!(run(&connection, &upsert, 30, 3), Ok(Ok(())));
        assert_eq!(
            stored(&connection),
            (30, 3),
            "{style:?}: a deleted row takes its fence along"
        );
    }
}

#[test]
fn after_a_refusal_the_stored_token_tells_a_stale_write_from_a_missing_row() {
    let connection = accounts(None);
    let insert = fence().insert(&["balance"]).expect("the names are plain");
    run(&connection, &insert, 10, 5)
        .expect("SQLite answers")
        .expect("there is no row");
    let read = fence().read();
    let newest = |branch: &str| {
        let keys = [Value::from(branch.to_owned()), Value::from(7)];
        // A reading binds keys alone.
        connection
            .query_row(read.sql(), params_from_iter(keys), |row| row.get::<_, i64>(0))
            .ok()
    };
    assert_eq!((newest("north"), newest("south")), (Some(5), None));
}

#[test]
fn a_guard_lets_fenced_statements_through() {
    let connection = accounts(Some(&fence().guard()));
    let upsert = fence().upsert(&["balance"]).expect("the names are plain");
    let update = fence().update(&["balance"]).expect("the names are plain");
    assert_eq!(run(&connection, &upsert, 1, 5), Ok(Ok(())));
    assert_eq!(run(&connection, &upsert, 2, 5), Ok(Ok(())));
    assert_eq!(run(&connection, &update, 3, 5), Ok(Ok(())));
    assert_eq!(run(&connection, &update, 4, 6), Ok(Ok(())));
    assert_eq!(run(&connection, &update, 5, 5), Ok(Err(Stale { newest: None })));
    assert_eq!(stored(&connection), (4, 6));
    assert_eq!(marks(&connection), 0, "no mark outlives a row that is written");
}

#[test]
fn a_guard_refuses_whatever_does_not_fence_itself() {
    let connection = accounts(Some(&fence().guard()));
    for id in 1..=3 {
        let row = format!("INSERT INTO accounts VALUES ('north', {id}, 0, NULL, {})", 4 + id);
        connection.execute(&row, []).expect("it brings a token");
    }
    for (sql, with) in [
        ("UPDATE accounts SET balance = 9, fence = 4 WHERE id = 1", OLD),
        ("UPDATE accounts SET balance = 9, fence = 6", OLD),
        ("UPDATE accounts SET balance = 9 WHERE id = 1", NONE),
        ("UPDATE accounts SET balance = 9", NONE),
        ("UPDATE OR IGNORE accounts SET balance = 9", NONE),
        ("UPDATE accounts SET balance = 9, fence = NULL WHERE id = 1", NONE),
        ("UPDATE accounts SET balance = 9, fence = 0 WHERE id = 1", NONE),
        ("UPDATE accounts SET balance = 9, fence = -7 WHERE id = 1", NONE),
        ("UPDATE accounts SET balance = 9, fence = 'z' WHERE id = 1", NONE),
        ("UPDATE accounts SET balance = 9, fence = 9.5 WHERE id = 1", NONE),
        (
            "INSERT INTO accounts (branch, id, balance) VALUES ('north', 8, 1)",
            NONE,
        ),
        ("INSERT INTO accounts VALUES ('north', 8, 1, NULL, 0)", NONE),
        (
            "INSERT OR REPLACE INTO accounts VALUES ('north', 1, 9, NULL, 4)",
            OLD,
        ),
        (
            "REPLACE INTO accounts (branch, id, balance) VALUES ('north', 1, 9)",
            NONE,
        ),
        ("UPDATE accounts SET id = 8, fence = 9 WHERE id = 1", MOVED),
        ("UPDATE accounts SET id = id + 10, fence = 9", MOVED),
        (
            "UPDATE accounts SET branch = 'south', fence = 9 WHERE id = 1",
            MOVED,
        ),
        ("UPDATE accounts SET id = 8 WHERE id = 1", NONE),
        (
            "UPDATE OR REPLACE accounts SET id = 3, fence = 5 WHERE id = 1",
            MOVED,
        ),
        ("DELETE FROM accounts WHERE id = 1", DELETED),
        ("DELETE FROM accounts", DELETED),
    ] {
        refused(&connection, sql, with);
    }
    assert_eq!(
        connection.execute("UPDATE accounts SET balance = 1, fence = 7", []),
        Ok(3)
    );
    assert_eq!(
        connection.execute("REPLACE INTO accounts VALUES ('north', 1, 9, NULL, 8)", []),
        Ok(1)
    );
    assert_eq!(dump(&connection), [(1, 9, 8), (2, 1, 7), (3, 1, 7)]);
}

#[test]
fn a_row_that_was_skipped_or_failed_lends_its_token_to_no_later_statement() {
    for (skips, rows) in [("IGNORE", Ok(0)), ("FAIL", Err(CHECK))] {
        let connection = accounts(Some(&fence().guard()));
        connection
            .execute("INSERT INTO accounts VALUES ('north', 7, 10, NULL, 9)", [])
            .expect("it brings a token");
        for token in [9, 10] {
            let skipped = format!("UPDATE OR {skips} accounts SET balance = -1, fence = {token}");
            for _ in 0..2 {
                let written = connection
                    .execute(&skipped, [])
                    .map_err(|error| error.to_string());
                assert_eq!(written.as_ref().map(|rows| *rows).map_err(String::as_str), rows);
                assert_eq!(marks(&connection), 1, "{skipped}: that is the danger");
            }
            for forgetful in [
                "UPDATE accounts SET balance = 1",
                "UPDATE OR IGNORE accounts SET balance = 1",
                "INSERT INTO accounts VALUES ('north', 7, 1, NULL, 9) ON CONFLICT DO UPDATE SET balance = 1",
            ] {
                refused(&connection, forgetful, NONE);
            }
        }
        assert_eq!(
            connection.execute("UPDATE accounts SET balance = 2, fence = 9", []),
            Ok(1)
        );
        assert_eq!(marks(&connection), 0);
    }
}

#[test]
fn a_replacement_by_another_unique_index_is_refused_where_triggers_are_asked() {
    let connection = accounts(Some(&fence().guard()));
    connection
        .execute_batch("PRAGMA recursive_triggers = ON")
        .expect("it is SQL");
    for row in ["1, 0, 'ann', 9", "2, 0, 'bob', 5"] {
        let row = format!("INSERT INTO accounts VALUES ('north', {row})");
        connection.execute(&row, []).expect("it brings a token");
    }
    for replacement in [
        "INSERT OR REPLACE INTO accounts VALUES ('north', 3, 0, 'ann', 1)",
        "UPDATE OR REPLACE accounts SET owner = 'ann', fence = 5 WHERE id = 2",
    ] {
        refused(&connection, replacement, DELETED);
    }
    assert_eq!(
        connection.execute("UPDATE accounts SET balance = 1, fence = 9", []),
        Ok(2)
    );
}

#[test]
fn a_guard_for_one_write_each_refuses_equal_tokens() {
    let connection = accounts(Some(&fence().guard().once()));
    connection
        .execute("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 5)", [])
        .expect("it brings a token");
    for equal in [
        "UPDATE accounts SET balance = 1, fence = 5",
        "INSERT OR REPLACE INTO accounts VALUES ('north', 7, 1, NULL, 5)",
        "INSERT INTO accounts VALUES ('north', 7, 1, NULL, 5)
         ON CONFLICT DO UPDATE SET balance = excluded.balance, fence = excluded.fence",
    ] {
        refused(&connection, equal, OLD);
    }
    assert_eq!(
        connection.execute("UPDATE accounts SET balance = 1, fence = 6", []),
        Ok(1)
    );
}

#[test]
fn a_guard_may_allow_deletion_and_can_be_taken_away() {
    let guard = fence().guard().allow_delete();
    let connection = accounts(Some(&guard));
    connection
        .execute("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 5)", [])
        .expect("it brings a token");
    refused(&connection, "UPDATE accounts SET balance = 1", NONE);
    let other = "INSERT INTO accounts VALUES ('north', 8, 0, NULL, 4)";
    assert_eq!(connection.execute(other, []), Ok(1));
    let onto = |token: i64| format!("UPDATE OR REPLACE accounts SET id = 7, fence = {token} WHERE id = 8");
    refused(&connection, &onto(4), OLD);
    assert_eq!(connection.execute(&onto(5), []), Ok(1), "a key may change too");
    assert_eq!(dump(&connection), [(7, 0, 5)]);
    assert_eq!(connection.execute("DELETE FROM accounts", []), Ok(1));
    for statement in guard.drop().expect("the names have room") {
        connection.execute_batch(&statement).expect("it is SQL");
    }
    connection
        .execute("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 0)", [])
        .expect("there is no guard");
    for statement in fence().guard().create().expect("the names have room") {
        connection
            .execute_batch(&statement)
            .expect("nothing of the old guard is left");
    }
}

#[test]
fn a_guard_stands_in_the_schema_of_its_table_and_survives_reserved_words() {
    let connection = Connection::open_in_memory().expect("SQLite has memory");
    connection
        .execute_batch("ATTACH ':memory:' AS `order`")
        .expect("it is SQL");
    connection
        .execute_batch("CREATE TABLE `order`.`table` (`select` INTEGER PRIMARY KEY, `where` INTEGER)")
        .expect("it is SQL");
    let fence = Fence::new(Dialect::Sqlite, "order.table", &["select"])
        .and_then(|fence| fence.column("group"))
        .expect("reserved words are names");
    connection.execute_batch(&fence.column_ddl()).expect("it is SQL");
    for statement in fence.guard().create().expect("the names have room") {
        connection.execute_batch(&statement).expect("it is SQL");
    }
    let upsert = fence.upsert(&["where"]).expect("reserved words are names");
    let write = |by: u64| {
        connection.execute(
            upsert.sql(),
            params_from_iter(upsert.params([1_i64], token(by), [1])),
        )
    };
    assert_eq!(write(5), Ok(1));
    assert_eq!(write(6), Ok(1));
    let error = write(5).expect_err("the guard sees the insert first").to_string();
    assert!(error.contains(OLD), "{error}");
}

#[test]
fn a_misspelt_column_is_an_error_and_not_a_text() {
    let connection = accounts(None);
    let fence = Fence::new(Dialect::Sqlite, "accounts", &["idd"]).expect("the name is plain");
    let update = fence.update(&["balance"]).expect("the name is plain");
    let params = update.params([Value::from(1)], token(1), [Value::from("idd".to_owned())]);
    let error = connection
        .execute(update.sql(), params_from_iter(params))
        .expect_err("there is no such column");
    assert!(error.to_string().contains("no such column"), "{error}");
}
