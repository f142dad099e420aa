//! The text of fenced statements in every dialect, the statements that are refused, and `FencedCell`.
//! The tests of `examples/fenced-write` run the statements for SQLite; no test runs those for the other databases.

use tenure::FencingToken;
use tenure::fenced::{
    Dialect, Fence, FencedCell, InvalidName, InvalidStatement, Placeholders, Slot, Stale, Statement, Trigger,
    applied,
};

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("the number is a token")
}

fn accounts(dialect: Dialect) -> Fence {
    Fence::new(dialect, "accounts", &["id"]).expect("the names are plain")
}

fn plain(statement: Result<Statement, InvalidStatement>) -> Statement {
    statement.expect("the names are plain")
}

fn sql(statement: Result<Statement, InvalidStatement>) -> String {
    plain(statement).sql().to_owned()
}

fn ddl(guard: &Trigger) -> Vec<String> {
    guard.create().expect("the names have room")
}

#[test]
fn an_update_writes_only_where_no_newer_token_has_written() {
    for (dialect, text) in [
        (
            Dialect::Sqlite,
            "UPDATE `accounts` SET `balance` = ?, `fence` = ? WHERE `id` = ? AND `fence` <= ?",
        ),
        (
            Dialect::MySql,
            "UPDATE `accounts` SET `balance` = ?, `fence` = ? WHERE `id` = ? AND `fence` <= ?",
        ),
        (
            Dialect::Postgres,
            r#"UPDATE "accounts" SET "balance" = $1, "fence" = $2 WHERE "id" = $3 AND "fence" <= $2"#,
        ),
    ] {
        assert_eq!(sql(accounts(dialect).update(&["balance"])), text);
    }
}

#[test]
fn placeholders_bind_columns_then_token_then_keys() {
    for (style, text) in [
        (
            Placeholders::Dollar,
            "UPDATE `accounts` SET `balance` = $1, `fence` = $2 WHERE `id` = $3 AND `fence` <= $2",
        ),
        (
            Placeholders::Colon,
            "UPDATE `accounts` SET `balance` = :balance, `fence` = :fence WHERE `id` = :id AND `fence` <= :fence",
        ),
        (
            Placeholders::At,
            "UPDATE `accounts` SET `balance` = @p1, `fence` = @p2 WHERE `id` = @p3 AND `fence` <= @p2",
        ),
    ] {
        let fence = accounts(Dialect::Sqlite).placeholders(style);
        let update = plain(fence.update(&["balance"]));
        assert_eq!(update.sql(), text);
        let slots = [
            Slot::Column("balance".into()),
            Slot::Token,
            Slot::Key("id".into()),
        ];
        assert_eq!(update.slots(), slots);
        assert_eq!(update.params([100], token(7), [42]), [100_i64, 7, 42]);
    }
    let by_position = plain(accounts(Dialect::Sqlite).update(&["balance"]));
    assert_eq!(by_position.params([100], token(7), [42]), [100_i64, 7, 42, 7]);
}

#[test]
fn statements_contain_all_keys_schema_and_fence_name() {
    let fence = Fence::new(Dialect::Postgres, "bank.accounts", &["branch", "id"])
        .and_then(|fence| fence.column("written_by"))
        .expect("the names are plain");
    assert_eq!(
        sql(fence.update(&["balance", "owner"])),
        "UPDATE \"bank\".\"accounts\" SET \"balance\" = $1, \"owner\" = $2, \"written_by\" = $3 \
         WHERE \"branch\" = $4 AND \"id\" = $5 AND \"written_by\" <= $3"
    );
    assert_eq!(
        sql(fence.upsert(&["balance"])),
        "INSERT INTO \"bank\".\"accounts\" (\"balance\", \"written_by\", \"branch\", \"id\") VALUES ($1, $2, $3, $4) \
         ON CONFLICT (\"branch\", \"id\") DO UPDATE SET \"balance\" = excluded.\"balance\", \
         \"written_by\" = excluded.\"written_by\" WHERE \"accounts\".\"written_by\" <= excluded.\"written_by\""
    );
    assert_eq!(
        fence.read().sql(),
        "SELECT \"written_by\" FROM \"bank\".\"accounts\" WHERE \"branch\" = $1 AND \"id\" = $2"
    );
    assert_eq!(
        fence.column_ddl(),
        "ALTER TABLE \"bank\".\"accounts\" ADD COLUMN \"written_by\" BIGINT NOT NULL DEFAULT 0"
    );
}

#[test]
fn an_insert_writes_only_where_there_is_no_row() {
    assert_eq!(
        sql(accounts(Dialect::Sqlite).insert(&["balance"])),
        "INSERT INTO `accounts` (`balance`, `fence`, `id`) VALUES (?, ?, ?) ON CONFLICT (`id`) DO NOTHING"
    );
    assert_eq!(
        sql(accounts(Dialect::MySql).insert(&["balance"])),
        "INSERT IGNORE INTO `accounts` (`balance`, `fence`, `id`) VALUES (?, ?, ?)"
    );
}

#[test]
fn an_upsert_is_refused_if_row_counts_are_ambiguous() {
    assert_eq!(
        accounts(Dialect::MySql).upsert(&["balance"]),
        Err(InvalidStatement::Upsert)
    );
    assert!(InvalidStatement::Upsert.to_string().contains("use `insert`"));
}

#[test]
fn a_row_can_be_fenced_without_other_writes() {
    assert_eq!(
        sql(accounts(Dialect::Sqlite).update(&[])),
        "UPDATE `accounts` SET `fence` = ? WHERE `id` = ? AND `fence` <= ?"
    );
}

#[test]
fn names_with_sql_syntax_are_refused() {
    // The tests of `fenced/name.rs` cover valid characters.
    for bad in ["", "a b", "x; DROP TABLE y", "a\"", "1a"] {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
            assert!(Fence::new(dialect, bad, &["id"]).is_err(), "table {bad:?}");
            let (in_schema, schema) = (format!("s.{bad}"), format!("{bad}.t"));
            assert!(Fence::new(dialect, &in_schema, &["id"]).is_err(), "{in_schema:?}");
            assert!(Fence::new(dialect, &schema, &["id"]).is_err(), "{schema:?}");
            assert!(Fence::new(dialect, "t", &[bad]).is_err(), "key {bad:?}");
            assert!(accounts(dialect).column(bad).is_err(), "fence {bad:?}");
            assert!(accounts(dialect).update(&[bad]).is_err(), "column {bad:?}");
            assert!(accounts(dialect).insert(&[bad]).is_err(), "column {bad:?}");
        }
    }
    let error = Fence::new(Dialect::Sqlite, "x; DROP TABLE y", &["id"]).expect_err("it is no name");
    let found = InvalidName::Character {
        name: "x; DROP TABLE y".into(),
        found: ';',
    };
    assert_eq!(error, InvalidStatement::Name(found));
    assert!(error.to_string().contains("is not a plain name"), "{error}");
    assert!(matches!(
        Fence::new(Dialect::Sqlite, "a.b.c", &["id"]),
        Err(InvalidStatement::Name(InvalidName::Parts { .. }))
    ));
}

#[test]
fn each_column_has_one_role() {
    let new = |keys: &[&str]| Fence::new(Dialect::Sqlite, "t", keys).map(|_| ());
    let fence = accounts(Dialect::Sqlite);
    for columns in [
        &["id"][..],
        &["fence"],
        &["balance", "balance"],
        &["balance", "BALANCE"],
    ] {
        let twice = fence.update(columns);
        assert!(matches!(twice, Err(InvalidStatement::Twice(_))), "{columns:?}");
    }
    assert!(matches!(fence.column("ID"), Err(InvalidStatement::Twice(_))));
    assert!(matches!(new(&["fence"]), Err(InvalidStatement::Twice(_))));
    assert_eq!(new(&[]), Err(InvalidStatement::NoKey));
}

#[test]
#[should_panic(expected = "one value for each of its columns and keys")]
fn too_few_values_panic() {
    let update = plain(accounts(Dialect::Sqlite).update(&["balance"]));
    update.params::<i64>([], token(1), [1]);
}

#[test]
fn zero_rows_written_is_a_refusal_for_every_count_type() {
    assert_eq!(applied(1_usize), Ok(()));
    assert_eq!(applied(2_u64), Ok(()));
    assert_eq!(applied(1_i32), Ok(()));
    for refused in [applied(0_usize), applied(0_u64), applied(0_i32), applied(-1_i64)] {
        assert_eq!(refused, Err(Stale::new(None)));
    }
    assert_eq!(
        Stale::new(None).to_string(),
        "the write was refused: a newer fencing token has written the row, or there is no such row"
    );
    let newest = Some(token(8));
    assert_eq!(
        Stale::new(newest).to_string(),
        "the write was refused: its fencing token is older than 8, which has written since"
    );
}

#[test]
fn a_refusal_is_small() {
    assert!(size_of::<Stale>() <= 16);
}

#[test]
fn a_cell_refuses_older_and_accepts_equal_tokens() {
    let cell = FencedCell::new("initial");
    assert_eq!((cell.read(), cell.newest()), ("initial", None));
    assert_eq!(cell.write(token(5), "five"), Ok(()));
    assert_eq!(cell.write(token(5), "five again"), Ok(()));
    let newest = Some(token(5));
    assert_eq!(cell.write(token(4), "four"), Err(Stale::new(newest)));
    assert_eq!((cell.read(), cell.newest()), ("five again", newest));
    // An update records its token even if it changes nothing.
    assert_eq!(cell.update(token(6), |text| text.len()), Ok(10));
    assert_eq!(cell.newest(), Some(token(6)));
}

#[test]
fn a_shared_cell_never_returns_to_an_older_token() {
    let cell = FencedCell::new(0);
    std::thread::scope(|scope| {
        for writer in 1..=8 {
            let cell = &cell;
            scope.spawn(move || {
                for round in 0..500 {
                    let mine = round * 8 + writer;
                    // Some updates are refused. Each accepted one must be newer than the value that it replaces.
                    let _ = cell.update(token(mine), |written| {
                        assert!(*written < mine, "{mine} replaces {written}");
                        *written = mine;
                    });
                }
            });
        }
    });
    assert_eq!((cell.read(), cell.newest()), (4_000, Some(token(4_000))));
}

#[test]
fn a_guard_in_postgres_is_one_function_and_four_triggers() {
    let fence = Fence::new(Dialect::Postgres, "bank.accounts", &["id"]).expect("the names are plain");
    let all = ddl(&fence.guard());
    assert_eq!(
        all[0],
        "CREATE FUNCTION \"bank\".\"accounts_fence\"() RETURNS trigger LANGUAGE plpgsql AS $fence$ BEGIN \
         IF TG_ARGV[0] = 'delete' THEN RAISE EXCEPTION 'refused by fence: a deleted row would forget its token'; END IF; \
         IF TG_ARGV[0] = 'check' THEN \
         IF NEW.\"fence\" IS NULL OR NEW.\"fence\" >= 0 THEN RAISE EXCEPTION 'refused by fence: this write brings no token'; END IF; \
         NEW.\"fence\" := -NEW.\"fence\"; RETURN NEW; END IF; \
         IF NEW.\"fence\" IS NULL OR NEW.\"fence\" < 1 THEN RAISE EXCEPTION 'refused by fence: this write brings no token'; END IF; \
         IF TG_ARGV[0] = 'bring' THEN \
         IF NEW.\"fence\" < OLD.\"fence\" THEN RAISE EXCEPTION 'refused by fence: a newer token has written this row'; END IF; \
         IF NEW.\"id\" IS DISTINCT FROM OLD.\"id\" THEN RAISE EXCEPTION 'refused by fence: a changed key would forget its token'; END IF; \
         NEW.\"fence\" := -NEW.\"fence\"; END IF; RETURN NEW; END $fence$"
    );
    let on = "ON \"bank\".\"accounts\" FOR EACH";
    let run = "EXECUTE FUNCTION \"bank\".\"accounts_fence\"";
    assert_eq!(
        all[1..],
        [
            format!(
                "CREATE TRIGGER \"accounts_fence_1_bring\" BEFORE UPDATE OF \"fence\" {on} ROW {run}('bring')"
            ),
            format!("CREATE TRIGGER \"accounts_fence_2_check\" BEFORE UPDATE {on} ROW {run}('check')"),
            format!("CREATE TRIGGER \"accounts_fence_insert\" BEFORE INSERT {on} ROW {run}('insert')"),
            format!(
                "CREATE TRIGGER \"accounts_fence_delete\" BEFORE DELETE OR TRUNCATE {on} STATEMENT {run}('delete')"
            ),
        ]
    );
    let free = ddl(&fence.guard().allow_delete());
    assert!(!free[0].contains("changed key") && free.len() == 4);
    let drop = fence.guard().drop().expect("the names have room");
    assert_eq!(
        drop,
        ["DROP FUNCTION IF EXISTS \"bank\".\"accounts_fence\" CASCADE"]
    );
}

#[test]
fn a_guard_in_mysql_signals() {
    let fence = Fence::new(Dialect::MySql, "bank.accounts", &["branch", "id"]).expect("the names are plain");
    let none = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by fence: this write brings no token';";
    let old =
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by fence: a newer token has written this row';";
    let gone = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by fence: a deleted row would forget its token';";
    let moved = "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'refused by fence: a changed key would forget its token';";
    let unless_token = format!("IF NEW.`fence` IS NULL OR NEW.`fence` < 1 THEN {none} END IF;");
    let on = "ON `bank`.`accounts` FOR EACH ROW BEGIN";
    assert_eq!(
        ddl(&fence.guard()),
        [
            format!(
                "CREATE TRIGGER `bank`.`accounts_fence_update` BEFORE UPDATE {on} {unless_token} \
                 IF NEW.`fence` < OLD.`fence` THEN {old} END IF; \
                 IF NOT (NEW.`branch` <=> OLD.`branch`) OR NOT (NEW.`id` <=> OLD.`id`) THEN {moved} END IF; END"
            ),
            format!("CREATE TRIGGER `bank`.`accounts_fence_insert` BEFORE INSERT {on} {unless_token} END"),
            format!("CREATE TRIGGER `bank`.`accounts_fence_delete` BEFORE DELETE {on} {gone} END"),
        ]
    );
    let once = ddl(&fence.guard().once());
    assert!(once[0].contains("NEW.`fence` <= OLD.`fence`"), "{}", once[0]);
    let free = ddl(&fence.guard().allow_delete());
    assert!(!free.concat().contains("forget its token"));
}

#[test]
fn a_guard_with_names_that_are_too_long_is_refused() {
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
        let fence = Fence::new(dialect, &"t".repeat(60), &["id"]).expect("the table's own name has room");
        let guard = fence.guard().create();
        assert!(matches!(guard, Err(InvalidName::TooLong { .. })), "{dialect:?}");
    }
}
