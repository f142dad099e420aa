//! Runs the statements and triggers of `tenure::fenced` in a real SQLite. The tests of `tenure` check only their text.

use rusqlite::types::Value;
use rusqlite::{Connection, params_from_iter};
use tenure::FencingToken;
use tenure::fenced::{self, Dialect, Fence, Placeholders, Stale, Statement, Trigger};

const OLD: &str = "refused by fence: a newer token has written this row";
const NONE: &str = "refused by fence: this write brings no token";
const DELETED: &str = "refused by fence: a deleted row would forget its token";
const MOVED: &str = "refused by fence: a changed key would forget its token";

const STALE: Result<(), Stale> = Err(Stale::new(None));

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).unwrap()
}

fn fence() -> Fence {
    Fence::new(Dialect::Sqlite, "accounts", &["branch", "id"]).unwrap()
}

struct Accounts(Connection);

impl Accounts {
    fn unguarded() -> Accounts {
        let accounts = Accounts(Connection::open_in_memory().unwrap());
        let table = "CREATE TABLE accounts (branch TEXT, id INTEGER, balance INTEGER, owner TEXT UNIQUE,
            CHECK (balance >= 0), PRIMARY KEY (branch, id))";
        accounts.batch([table.to_owned(), fence().column_ddl()]);
        accounts
    }

    fn guarded(guard: &Trigger) -> Accounts {
        let accounts = Accounts::unguarded();
        accounts.batch(guard.create().unwrap());
        accounts
    }

    fn batch(&self, statements: impl IntoIterator<Item = String>) {
        for statement in statements {
            self.0.execute_batch(&statement).unwrap();
        }
    }

    /// Runs a fenced statement for account 7 with token `by`.
    fn run(&self, statement: &Statement, balance: i64, by: u64) -> Result<(), Stale> {
        let keys = [Value::from("north".to_owned()), Value::from(7)];
        let params = statement.params([Value::from(balance)], token(by), keys);
        let rows = self.0.execute(statement.sql(), params_from_iter(params));
        fenced::applied(rows.unwrap())
    }

    fn writes(&self, sql: &str, rows: usize) {
        assert_eq!(self.0.execute(sql, []), Ok(rows), "{sql}");
    }

    fn refuses(&self, sql: &str, with: &str) {
        let before = self.rows();
        let error = self.0.execute(sql, []).expect_err(sql).to_string();
        let is_refusal = error.contains(with) && with.starts_with(fenced::REFUSED);
        assert!(is_refusal, "{sql}: {error}");
        assert_eq!(self.rows(), before, "{sql}: what was refused has written nothing");
    }

    /// Number, balance and fencing token of each account.
    fn rows(&self) -> Vec<(i64, i64, i64)> {
        let sql = "SELECT id, balance, fence FROM accounts ORDER BY id";
        let mut rows = self.0.prepare(sql).unwrap();
        let rows = rows.query_map([], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)));
        rows.unwrap().map(Result::unwrap).collect()
    }

    /// Number of tokens that the guard's triggers have noted and no write has used yet.
    fn marks(&self) -> i64 {
        let sql = "SELECT count(*) FROM accounts_fence_brought";
        self.0.query_row(sql, [], |row| row.get(0)).unwrap()
    }
}

#[test]
fn writes_accept_only_equal_and_newer_tokens() {
    for style in [
        Placeholders::Question,
        Placeholders::Dollar,
        Placeholders::Colon,
        Placeholders::At,
    ] {
        let fence = fence().placeholders(style);
        let update = fence.update(&["balance"]).unwrap();
        let insert = fence.insert(&["balance"]).unwrap();
        let upsert = fence.upsert(&["balance"]).unwrap();
        let accounts = Accounts::unguarded();
        assert_eq!(accounts.run(&update, 1, 5), STALE, "{style:?}: there is no row");
        assert_eq!(accounts.run(&insert, 10, 5), Ok(()));
        assert_eq!(accounts.run(&insert, 11, 6), STALE, "{style:?}: it is there");
        assert_eq!(accounts.rows(), [(7, 10, 5)]);
        for write in [&update, &upsert] {
            assert_eq!(accounts.run(write, 20, 6), Ok(()));
            assert_eq!(
                accounts.run(write, 21, 6),
                Ok(()),
                "{style:?}: one holder writes often"
            );
            assert_eq!(accounts.run(write, 1, 5), STALE);
            assert_eq!(accounts.rows(), [(7, 21, 6)]);
        }
        accounts.writes("DELETE FROM accounts", 1);
        assert_eq!(accounts.run(&upsert, 30, 3), Ok(()));
        assert_eq!(
            accounts.rows(),
            [(7, 30, 3)],
            "{style:?}: a deleted row takes its fence along"
        );
    }
}

#[test]
fn the_stored_token_distinguishes_stale_from_missing_rows() {
    let accounts = Accounts::unguarded();
    let insert = fence().insert(&["balance"]).unwrap();
    accounts.run(&insert, 10, 5).unwrap();
    let read = fence().read();
    let newest = |branch: &str| {
        // The query for the stored token takes only the keys.
        let keys = [Value::from(branch.to_owned()), Value::from(7)];
        let newest = accounts
            .0
            .query_row(read.sql(), params_from_iter(keys), |row| row.get(0));
        newest.ok()
    };
    assert_eq!((newest("north"), newest("south")), (Some(5), None));
}

#[test]
fn a_guard_accepts_fenced_statements() {
    let accounts = Accounts::guarded(&fence().guard());
    let upsert = fence().upsert(&["balance"]).unwrap();
    let update = fence().update(&["balance"]).unwrap();
    assert_eq!(accounts.run(&upsert, 1, 5), Ok(()));
    assert_eq!(accounts.run(&upsert, 2, 5), Ok(()));
    assert_eq!(accounts.run(&update, 3, 5), Ok(()));
    assert_eq!(accounts.run(&update, 4, 6), Ok(()));
    assert_eq!(accounts.run(&update, 5, 5), STALE);
    assert_eq!(accounts.rows(), [(7, 4, 6)]);
    assert_eq!(accounts.marks(), 0, "no mark outlives a row that is written");
}

#[test]
fn a_guard_refuses_unfenced_statements() {
    let accounts = Accounts::guarded(&fence().guard());
    for id in 1..=3 {
        let row = format!("INSERT INTO accounts VALUES ('north', {id}, 0, NULL, {})", 4 + id);
        accounts.writes(&row, 1);
    }
    for (with, statements) in [
        (
            OLD,
            &[
                "UPDATE accounts SET balance = 9, fence = 4 WHERE id = 1",
                "UPDATE accounts SET balance = 9, fence = 6",
                "INSERT OR REPLACE INTO accounts VALUES ('north', 1, 9, NULL, 4)",
            ][..],
        ),
        (
            NONE,
            &[
                "UPDATE accounts SET balance = 9 WHERE id = 1",
                "UPDATE accounts SET balance = 9",
                "UPDATE OR IGNORE accounts SET balance = 9",
                "UPDATE accounts SET balance = 9, fence = NULL WHERE id = 1",
                "UPDATE accounts SET balance = 9, fence = 0 WHERE id = 1",
                "UPDATE accounts SET balance = 9, fence = -7 WHERE id = 1",
                "UPDATE accounts SET balance = 9, fence = 'z' WHERE id = 1",
                "UPDATE accounts SET balance = 9, fence = 9.5 WHERE id = 1",
                "UPDATE accounts SET id = 8 WHERE id = 1",
                "INSERT INTO accounts (branch, id, balance) VALUES ('north', 8, 1)",
                "INSERT INTO accounts VALUES ('north', 8, 1, NULL, 0)",
                "REPLACE INTO accounts (branch, id, balance) VALUES ('north', 1, 9)",
            ],
        ),
        (
            MOVED,
            &[
                "UPDATE accounts SET id = 8, fence = 9 WHERE id = 1",
                "UPDATE accounts SET id = id + 10, fence = 9",
                "UPDATE accounts SET branch = 'south', fence = 9 WHERE id = 1",
                "UPDATE OR REPLACE accounts SET id = 3, fence = 5 WHERE id = 1",
            ],
        ),
        (
            DELETED,
            &["DELETE FROM accounts WHERE id = 1", "DELETE FROM accounts"],
        ),
    ] {
        for sql in statements {
            accounts.refuses(sql, with);
        }
    }
    accounts.writes("UPDATE accounts SET balance = 1, fence = 7", 3);
    accounts.writes("REPLACE INTO accounts VALUES ('north', 1, 9, NULL, 8)", 1);
    assert_eq!(accounts.rows(), [(1, 9, 8), (2, 1, 7), (3, 1, 7)]);
}

#[test]
fn a_token_of_a_skipped_row_serves_no_later_statement() {
    let failed = "CHECK constraint failed: balance >= 0".to_owned();
    for (skips, rows) in [("IGNORE", Ok(0)), ("FAIL", Err(failed))] {
        let accounts = Accounts::guarded(&fence().guard());
        accounts.writes("INSERT INTO accounts VALUES ('north', 7, 10, NULL, 9)", 1);
        for token in [9, 10] {
            let skipped = format!("UPDATE OR {skips} accounts SET balance = -1, fence = {token}");
            for _ in 0..2 {
                let written = accounts.0.execute(&skipped, []);
                assert_eq!(written.map_err(|error| error.to_string()), rows);
                assert_eq!(accounts.marks(), 1, "{skipped}: that is the danger");
            }
            for forgetful in [
                "UPDATE accounts SET balance = 1",
                "UPDATE OR IGNORE accounts SET balance = 1",
                "INSERT INTO accounts VALUES ('north', 7, 1, NULL, 9) ON CONFLICT DO UPDATE SET balance = 1",
            ] {
                accounts.refuses(forgetful, NONE);
            }
        }
        accounts.writes("UPDATE accounts SET balance = 2, fence = 9", 1);
        assert_eq!(accounts.marks(), 0);
    }
}

#[test]
fn replacing_by_another_unique_index_is_refused() {
    let accounts = Accounts::guarded(&fence().guard());
    accounts.batch(["PRAGMA recursive_triggers = ON".to_owned()]);
    accounts.writes("INSERT INTO accounts VALUES ('north', 1, 0, 'ann', 9)", 1);
    accounts.writes("INSERT INTO accounts VALUES ('north', 2, 0, 'bob', 5)", 1);
    for replacement in [
        "INSERT OR REPLACE INTO accounts VALUES ('north', 3, 0, 'ann', 1)",
        "UPDATE OR REPLACE accounts SET owner = 'ann', fence = 5 WHERE id = 2",
    ] {
        accounts.refuses(replacement, DELETED);
    }
    accounts.writes("UPDATE accounts SET balance = 1, fence = 9", 2);
}

#[test]
fn a_guard_for_single_writes_refuses_equal_tokens() {
    let accounts = Accounts::guarded(&fence().guard().once());
    accounts.writes("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 5)", 1);
    for equal in [
        "UPDATE accounts SET balance = 1, fence = 5",
        "INSERT OR REPLACE INTO accounts VALUES ('north', 7, 1, NULL, 5)",
        "INSERT INTO accounts VALUES ('north', 7, 1, NULL, 5)
         ON CONFLICT DO UPDATE SET balance = excluded.balance, fence = excluded.fence",
    ] {
        accounts.refuses(equal, OLD);
    }
    accounts.writes("UPDATE accounts SET balance = 1, fence = 6", 1);
}

#[test]
fn a_guard_can_allow_deletion_and_be_dropped() {
    let guard = fence().guard().allow_delete();
    let accounts = Accounts::guarded(&guard);
    accounts.writes("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 5)", 1);
    accounts.refuses("UPDATE accounts SET balance = 1", NONE);
    accounts.writes("INSERT INTO accounts VALUES ('north', 8, 0, NULL, 4)", 1);
    let onto = |token: i64| format!("UPDATE OR REPLACE accounts SET id = 7, fence = {token} WHERE id = 8");
    accounts.refuses(&onto(4), OLD);
    // With `allow_delete`, a statement whose token is not older may move a row onto the key of another row.
    accounts.writes(&onto(5), 1);
    assert_eq!(accounts.rows(), [(7, 0, 5)]);
    accounts.writes("DELETE FROM accounts", 1);
    accounts.batch(guard.drop().unwrap());
    accounts.writes("INSERT INTO accounts VALUES ('north', 7, 0, NULL, 0)", 1);
    // Works only if nothing of the old guard is left.
    accounts.batch(fence().guard().create().unwrap());
}

#[test]
fn a_guard_uses_its_tables_schema_and_quotes_names() {
    let shop = Accounts(Connection::open_in_memory().unwrap());
    let table = "CREATE TABLE `order`.`table` (`select` INTEGER PRIMARY KEY, `where` INTEGER)";
    shop.batch(["ATTACH ':memory:' AS `order`", table].map(str::to_owned));
    let fence = Fence::new(Dialect::Sqlite, "order.table", &["select"]).unwrap();
    let fence = fence.column("group").unwrap();
    shop.batch([fence.column_ddl()]);
    shop.batch(fence.guard().create().unwrap());
    let upsert = fence.upsert(&["where"]).unwrap();
    let write = |by| {
        let params = upsert.params([1_i64], token(by), [1]);
        shop.0.execute(upsert.sql(), params_from_iter(params))
    };
    assert_eq!((write(5), write(6)), (Ok(1), Ok(1)));
    let error = write(5).expect_err("the guard sees the insert first").to_string();
    assert!(error.contains(OLD), "{error}");
}

#[test]
fn a_misspelt_column_is_an_error() {
    let accounts = Accounts::unguarded();
    let fence = Fence::new(Dialect::Sqlite, "accounts", &["idd"]).unwrap();
    let update = fence.update(&["balance"]).unwrap();
    let params = update.params([Value::from(1)], token(1), [Value::from("idd".to_owned())]);
    let error = accounts.0.execute(update.sql(), params_from_iter(params));
    let error = error.expect_err("there is no such column").to_string();
    assert!(error.contains("no such column"), "{error}");
}
