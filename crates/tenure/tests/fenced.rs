//! The text of every fenced statement in every dialect, what is refused, and the cell.
//! Not here: a database that runs them. SQLite does in `examples/fenced-write`; no test runs those of the others.

use tenure::FencingToken;
use tenure::fenced::{
    self, BadName, BadStatement, Dialect, Fence, FencedCell, Placeholders, Slot, Stale, applied,
};

fn token(number: u64) -> FencingToken {
    FencingToken::new(number).expect("the number is a token")
}

fn accounts(dialect: Dialect) -> Fence {
    Fence::new(dialect, "accounts", &["id"]).expect("the names are plain")
}

fn sql(statement: Result<fenced::Statement, BadStatement>) -> String {
    statement.expect("the names are plain").sql().to_owned()
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
fn every_style_of_placeholder_binds_columns_then_the_token_then_keys() {
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
        let update = accounts(Dialect::Sqlite).placeholders(style).update(&["balance"]);
        let update = update.expect("the names are plain");
        assert_eq!(update.sql(), text);
        let slots = [
            Slot::Column("balance".into()),
            Slot::Token,
            Slot::Key("id".into()),
        ];
        assert_eq!(update.slots(), slots);
        assert_eq!(update.params([100], token(7), [42]), [100_i64, 7, 42]);
    }
    let by_position = accounts(Dialect::Sqlite)
        .update(&["balance"])
        .expect("the names are plain");
    assert_eq!(by_position.params([100], token(7), [42]), [100_i64, 7, 42, 7]);
}

#[test]
fn several_keys_a_schema_and_another_name_for_the_fence_are_in_every_statement() {
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
fn an_upsert_is_refused_where_its_count_of_rows_says_nothing() {
    assert_eq!(
        accounts(Dialect::MySql).upsert(&["balance"]),
        Err(BadStatement::Upsert)
    );
    assert!(BadStatement::Upsert.to_string().contains("use `insert`"));
}

#[test]
fn a_row_can_be_fenced_without_writing_anything_else() {
    assert_eq!(
        sql(accounts(Dialect::Sqlite).update(&[])),
        "UPDATE `accounts` SET `fence` = ? WHERE `id` = ? AND `fence` <= ?"
    );
}

#[test]
fn no_name_can_be_more_than_a_name() {
    for bad in [
        "",
        "a b",
        "x; DROP TABLE y",
        "a\"",
        "a`",
        "a'",
        "a--",
        "a\0",
        "1a",
        "é",
    ] {
        for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
            assert!(Fence::new(dialect, bad, &["id"]).is_err(), "table {bad:?}");
            assert!(
                Fence::new(dialect, &format!("s.{bad}"), &["id"]).is_err(),
                "in a schema {bad:?}"
            );
            assert!(
                Fence::new(dialect, &format!("{bad}.t"), &["id"]).is_err(),
                "schema {bad:?}"
            );
            assert!(Fence::new(dialect, "t", &[bad]).is_err(), "key {bad:?}");
            assert!(accounts(dialect).column(bad).is_err(), "fence {bad:?}");
            assert!(accounts(dialect).update(&[bad]).is_err(), "column {bad:?}");
            assert!(accounts(dialect).insert(&[bad]).is_err(), "column {bad:?}");
        }
    }
    let error = Fence::new(Dialect::Sqlite, "x; DROP TABLE y", &["id"]).expect_err("it is no name");
    let found = BadName::Character {
        name: "x; DROP TABLE y".into(),
        found: ';',
    };
    assert_eq!(error, BadStatement::Name(found));
    assert!(error.to_string().contains("is not a plain name"), "{error}");
    assert!(matches!(
        Fence::new(Dialect::Sqlite, "a.b.c", &["id"]),
        Err(BadStatement::Name(BadName::Parts { .. }))
    ));
}

#[test]
fn a_column_is_a_key_or_is_written_or_is_the_fence_and_only_once() {
    let twice =
        |result: Result<_, BadStatement>| matches!(result.map(|_: String| ()), Err(BadStatement::Twice(_)));
    let fence = accounts(Dialect::Sqlite);
    for columns in [
        &["id"][..],
        &["fence"],
        &["balance", "balance"],
        &["balance", "BALANCE"],
    ] {
        assert!(
            twice(fence.update(columns).map(|s| s.sql().to_owned())),
            "{columns:?}"
        );
    }
    assert!(matches!(fence.column("ID"), Err(BadStatement::Twice(_))));
    assert!(matches!(
        Fence::new(Dialect::Sqlite, "t", &["fence"]),
        Err(BadStatement::Twice(_))
    ));
    assert!(matches!(
        Fence::new(Dialect::Sqlite, "t", &[]),
        Err(BadStatement::NoKey)
    ));
}

#[test]
#[should_panic(expected = "one value for each of its columns and keys")]
fn too_few_values_are_a_programmers_error() {
    let update = accounts(Dialect::Sqlite)
        .update(&["balance"])
        .expect("the names are plain");
    update.params::<i64>([], token(1), [1]);
}

#[test]
fn no_row_written_is_a_refusal_of_whatever_type_the_count_is() {
    assert_eq!(applied(1_usize), Ok(()));
    assert_eq!(applied(2_u64), Ok(()));
    assert_eq!(applied(1_i32), Ok(()));
    for refused in [applied(0_usize), applied(0_u64), applied(0_i32), applied(-1_i64)] {
        assert_eq!(refused, Err(Stale { newest: None }));
    }
    let sentence = Stale { newest: None }.to_string();
    assert_eq!(
        sentence,
        "the write was refused: a newer fencing token has written the row, or there is no such row"
    );
    let known = Stale {
        newest: Some(token(8)),
    }
    .to_string();
    assert_eq!(
        known,
        "the write was refused: its fencing token is older than 8, which has written since"
    );
}

#[test]
fn a_refusal_is_small_and_can_travel() {
    fn travels<T: Send + Sync + 'static>() {}
    travels::<Stale>();
    travels::<Fence>();
    travels::<fenced::Statement>();
    travels::<fenced::Trigger>();
    travels::<FencedCell<Vec<u8>>>();
    assert!(size_of::<Stale>() <= 16);
}

#[test]
fn a_cell_refuses_older_tokens_and_accepts_equal_ones() {
    let cell = FencedCell::new("nobody");
    assert_eq!((cell.read(), cell.newest()), ("nobody", None));
    assert_eq!(cell.write(token(5), "five"), Ok(()));
    assert_eq!(cell.write(token(5), "five again"), Ok(()));
    assert_eq!(
        cell.write(token(4), "four"),
        Err(Stale {
            newest: Some(token(5))
        })
    );
    assert_eq!((cell.read(), cell.newest()), ("five again", Some(token(5))));
    assert_eq!(cell.update(token(6), |text| text.len()), Ok(10));
    assert_eq!(
        cell.newest(),
        Some(token(6)),
        "whoever looks at it to change it has fenced it"
    );
}

#[test]
fn a_cell_shared_by_threads_never_goes_back_to_an_older_token() {
    let cell = FencedCell::new(0);
    std::thread::scope(|scope| {
        for writer in 1..=8 {
            let cell = &cell;
            scope.spawn(move || {
                for round in 0..500 {
                    let mine = round * 8 + writer;
                    // Refusals are the point: whatever is accepted is newer than what it replaces.
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
fn a_guard_in_sqlite_refuses_by_triggers_on_update_insert_and_delete() {
    let all = accounts(Dialect::Sqlite)
        .guard()
        .create()
        .expect("the names have room");
    let expected = [
        "CREATE TABLE `accounts_fence_brought` (`id`, PRIMARY KEY (`id`))",
        "CREATE TRIGGER `accounts_fence_bring` BEFORE UPDATE OF `fence` ON `accounts` FOR EACH ROW BEGIN \
         SELECT RAISE(ABORT, 'refused by fence: this write brings no token') \
         WHERE typeof(NEW.`fence`) <> 'integer' OR NEW.`fence` < 1; \
         SELECT RAISE(ABORT, 'refused by fence: a newer token has written this row') \
         WHERE NEW.`fence` < OLD.`fence`; \
         SELECT RAISE(ABORT, 'refused by fence: a changed key would forget its token') \
         WHERE NEW.`id` IS NOT OLD.`id`; \
         INSERT INTO `accounts_fence_brought` VALUES (NEW.`id`); END",
        "CREATE TRIGGER `accounts_fence_clear` BEFORE UPDATE ON `accounts` FOR EACH ROW BEGIN \
         DELETE FROM `accounts_fence_brought` WHERE `id` IS NEW.`id`; END",
        "CREATE TRIGGER `accounts_fence_check` AFTER UPDATE ON `accounts` FOR EACH ROW BEGIN \
         SELECT RAISE(ABORT, 'refused by fence: this write brings no token') \
         WHERE NOT EXISTS (SELECT 1 FROM `accounts_fence_brought` WHERE `id` IS NEW.`id`); \
         DELETE FROM `accounts_fence_brought` WHERE `id` IS NEW.`id`; END",
        "CREATE TRIGGER `accounts_fence_insert` BEFORE INSERT ON `accounts` FOR EACH ROW BEGIN \
         SELECT RAISE(ABORT, 'refused by fence: this write brings no token') \
         WHERE typeof(NEW.`fence`) <> 'integer' OR NEW.`fence` < 1; \
         SELECT RAISE(ABORT, 'refused by fence: a newer token has written this row') \
         WHERE EXISTS (SELECT 1 FROM `accounts` WHERE `id` = NEW.`id` AND NEW.`fence` < `fence`); END",
        "CREATE TRIGGER `accounts_fence_delete` BEFORE DELETE ON `accounts` FOR EACH ROW BEGIN \
         SELECT RAISE(ABORT, 'refused by fence: a deleted row would forget its token'); END",
    ];
    assert_eq!(all, expected);

    let free = accounts(Dialect::Sqlite).guard().once().allow_delete();
    let free = free.create().expect("the names have room");
    let unless_replaced = "SELECT RAISE(ABORT, 'refused by fence: a newer token has written this row') \
         WHERE EXISTS (SELECT 1 FROM `accounts` WHERE `id` = NEW.`id` AND NEW.`fence` <= `fence`);";
    for asks in [1, 4] {
        assert!(free[asks].contains(unless_replaced), "{}", free[asks]);
    }
    assert_eq!(free.len(), 5, "nobody refuses to delete");
    assert!(!free.concat().contains("forget its token"));
}

#[test]
fn a_guard_in_postgres_is_one_function_and_four_triggers() {
    let fence = Fence::new(Dialect::Postgres, "bank.accounts", &["id"]).expect("the names are plain");
    let all = fence.guard().create().expect("the names have room");
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
    let free = fence
        .guard()
        .allow_delete()
        .create()
        .expect("the names have room");
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
        fence.guard().create().expect("the names have room"),
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
    let once = fence.guard().once().create().expect("the names have room");
    assert!(once[0].contains("NEW.`fence` <= OLD.`fence`"), "{}", once[0]);
    let free = fence
        .guard()
        .allow_delete()
        .create()
        .expect("the names have room");
    assert!(!free.concat().contains("forget its token"));
}

#[test]
fn a_guard_whose_names_find_no_room_is_refused() {
    for dialect in [Dialect::Sqlite, Dialect::Postgres, Dialect::MySql] {
        let fence = Fence::new(dialect, &"t".repeat(60), &["id"]).expect("the table's own name has room");
        assert!(
            matches!(fence.guard().create(), Err(BadName::TooLong { .. })),
            "{dialect:?}"
        );
    }
}
