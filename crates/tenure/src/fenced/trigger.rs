//! Triggers that refuse writes with an old token, or without one, even by statements without a fencing condition. The
//! databases differ in what they can refuse: see the table at [`Trigger`].

use super::dialect::Dialect;
use super::fence::Fence;
use super::name::{InvalidName, Name};
use super::stale::REFUSED;

const OLD: &str = "a newer token has written this row";
const NONE: &str = "this write brings no token";
const DELETED: &str = "a deleted row would forget its token";
const MOVED: &str = "a changed key would forget its token";

/// Triggers on a fenced table, as DDL. Send each statement separately, in one transaction if the database supports DDL
/// in transactions.
///
/// | a write | SQLite | PostgreSQL | MySQL |
/// |---|---|---|---|
/// | with an older token than the row's | refused | refused | refused |
/// | `UPDATE` that does not set the token | refused | refused | **accepted as if it had the row's token**, unless [`once`](Trigger::once) |
/// | `INSERT` without a token | refused | refused | refused |
/// | `UPDATE` that changes a key, unless [`allow_delete`](Trigger::allow_delete) | refused | refused | refused |
/// | `REPLACE`, `INSERT OR REPLACE` | refused if older than the row of its keys | – | refused if the row exists; with [`allow_delete`](Trigger::allow_delete) **accepted**, however old |
/// | `DELETE` (`TRUNCATE`), unless [`allow_delete`](Trigger::allow_delete) | refused | refused (both) | refused (`DELETE` alone) |
///
/// A refusal is an error of the database whose message begins with [`REFUSED`](crate::fenced::REFUSED); nothing is
/// written. The triggers do not protect against a user who drops them, changes the table's definition or restores a
/// backup. On MySQL they do not protect against a foreign key's `ON DELETE` or `ON UPDATE` action either, because it
/// fires no triggers.
///
/// On SQLite, `REPLACE` and every `OR REPLACE` also remove rows that have the new row's value in *another* unique
/// index, without firing a trigger and regardless of their token. If the keys are not the only unique index, set
/// `PRAGMA recursive_triggers = ON` on each connection: every replacement of a row then fires the triggers for
/// `DELETE`.
///
/// # Examples
/// ```
/// use tenure::fenced::{Dialect, Fence};
///
/// let guard = Fence::new(Dialect::Sqlite, "accounts", &["id"])?.guard();
/// for statement in guard.create()? {
///     println!("{statement};");
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a guard is DDL to be executed: see `create`"]
pub struct Trigger {
    fence: Fence,
    once: bool,
    deletes: bool,
}

impl Fence {
    /// Triggers on the table that refuse stale writes even by statements without a fencing condition.
    pub fn guard(&self) -> Trigger {
        Trigger::new(self.clone())
    }
}

impl Trigger {
    pub(crate) fn new(fence: Fence) -> Self {
        Trigger {
            fence,
            once: false,
            deletes: false,
        }
    }

    /// Refuses an equal token too: each hold of the lock can then update an existing row at most once. Without this
    /// option, MySQL does not notice an update that does not set the token.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }

    /// Allows deleting rows and changing their keys. Any holder, even an old one, may then insert a row again under the
    /// old key.
    pub fn allow_delete(mut self) -> Self {
        self.deletes = true;
        self
    }

    /// The statements that create the triggers. They fail if the triggers exist already.
    ///
    /// # Errors
    /// [`InvalidName::TooLong`] if the table's name is too long for the names of the triggers, which contain it.
    pub fn create(&self) -> Result<Vec<String>, InvalidName> {
        match self.fence.dialect {
            Dialect::Sqlite => self.sqlite(),
            Dialect::Postgres => self.postgres(),
            Dialect::MySql => self.mysql(),
        }
    }

    /// The statements that drop the triggers, if they exist.
    ///
    /// # Errors
    /// Those of [`create`](Trigger::create).
    pub fn drop(&self) -> Result<Vec<String>, InvalidName> {
        let Fence { dialect, table, .. } = &self.fence;
        if *dialect == Dialect::Postgres {
            return Ok(vec![format!(
                "DROP FUNCTION IF EXISTS {} CASCADE",
                self.quoted("fence")?
            )]);
        }
        let suffixes: &[&str] = match dialect {
            Dialect::Sqlite => &[
                "fence_bring",
                "fence_clear",
                "fence_check",
                "fence_insert",
                "fence_delete",
            ],
            _ => &["fence_update", "fence_insert", "fence_delete"],
        };
        let mut all = Vec::new();
        for suffix in suffixes {
            let name = dialect.quote_beside(table, &self.name(suffix)?);
            all.push(format!("DROP TRIGGER IF EXISTS {name}"));
        }
        if *dialect == Dialect::Sqlite {
            all.push(format!("DROP TABLE IF EXISTS {}", self.quoted("fence_brought")?));
        }
        Ok(all)
    }

    /// SQLite has triggers for updates that set a column (`UPDATE OF`), but none for updates that do not set it. The
    /// trigger `bring`, which fires only if the token is set, therefore inserts a mark for the row. The trigger `check`,
    /// which fires after `bring` on every update, requires that mark.
    ///
    /// If the row is not written after all (`UPDATE OR IGNORE`, `OR FAIL`), its mark outlives the statement; the trigger
    /// `clear` deletes the mark before the next update of the row. `clear` must fire before `bring`, and does, because
    /// SQLite begins with the trigger that was created last. SQLite does not promise this order: in the opposite one,
    /// every update would be refused.
    fn sqlite(&self) -> Result<Vec<String>, InvalidName> {
        let dialect = self.fence.dialect;
        let table = dialect.quote(&self.fence.table.name);
        let fence = dialect.quote(&self.fence.fence);
        // A trigger's body cannot qualify the names of tables: SQLite looks for them in the trigger's schema.
        let brought = dialect.quote(&self.name("fence_brought")?);
        let keys: Vec<_> = self.fence.keys.iter().map(|key| dialect.quote(key)).collect();
        let new_keys: Vec<_> = keys.iter().map(|key| format!("NEW.{key}")).collect();
        let same = |operator: &str| -> String {
            let pairs: Vec<_> = keys
                .iter()
                .map(|key| format!("{key} {operator} NEW.{key}"))
                .collect();
            pairs.join(" AND ")
        };
        let too_old = if self.once { "<=" } else { "<" };
        // Refuses an `OR REPLACE` that would remove a row whose token is newer.
        let unless_replaced = format!(
            "SELECT RAISE(ABORT, '{REFUSED}: {OLD}') WHERE EXISTS \
             (SELECT 1 FROM {table} WHERE {} AND NEW.{fence} {too_old} {fence})",
            same("=")
        );
        let key_changes = if self.deletes {
            unless_replaced.clone()
        } else {
            let changed = self.changed(|key| format!("NEW.{key} IS NOT OLD.{key}"));
            format!("SELECT RAISE(ABORT, '{REFUSED}: {MOVED}') WHERE {changed}")
        };
        // In SQLite a text is greater than every number, so only an integer is accepted as a token.
        let no_token = format!("typeof(NEW.{fence}) <> 'integer' OR NEW.{fence} < 1");
        let mut all = vec![
            format!(
                "CREATE TABLE {} ({}, PRIMARY KEY ({}))",
                self.quoted("fence_brought")?,
                keys.join(", "),
                keys.join(", ")
            ),
            format!(
                "CREATE TRIGGER {} BEFORE UPDATE OF {fence} ON {table} FOR EACH ROW BEGIN \
                 SELECT RAISE(ABORT, '{REFUSED}: {NONE}') WHERE {no_token}; \
                 SELECT RAISE(ABORT, '{REFUSED}: {OLD}') WHERE NEW.{fence} {too_old} OLD.{fence}; \
                 {key_changes}; INSERT INTO {brought} VALUES ({}); END",
                self.quoted("fence_bring")?,
                new_keys.join(", ")
            ),
            format!(
                "CREATE TRIGGER {} BEFORE UPDATE ON {table} FOR EACH ROW BEGIN \
                 DELETE FROM {brought} WHERE {}; END",
                self.quoted("fence_clear")?,
                same("IS")
            ),
            format!(
                "CREATE TRIGGER {} AFTER UPDATE ON {table} FOR EACH ROW BEGIN \
                 SELECT RAISE(ABORT, '{REFUSED}: {NONE}') WHERE NOT EXISTS (SELECT 1 FROM {brought} WHERE {same}); \
                 DELETE FROM {brought} WHERE {same}; END",
                self.quoted("fence_check")?,
                same = same("IS")
            ),
            // Also checks the row that `INSERT OR REPLACE` would remove: by default, the removal fires no DELETE trigger.
            format!(
                "CREATE TRIGGER {} BEFORE INSERT ON {table} FOR EACH ROW BEGIN \
                 SELECT RAISE(ABORT, '{REFUSED}: {NONE}') WHERE {no_token}; \
                 {unless_replaced}; END",
                self.quoted("fence_insert")?
            ),
        ];
        if !self.deletes {
            all.push(format!(
                "CREATE TRIGGER {} BEFORE DELETE ON {table} FOR EACH ROW BEGIN \
                 SELECT RAISE(ABORT, '{REFUSED}: {DELETED}'); END",
                self.quoted("fence_delete")?
            ));
        }
        Ok(all)
    }

    /// PostgreSQL fires triggers in the order of their names, and each sees the row as the previous one left it.
    /// `fence_1_bring`, which fires only if the token is set, negates the token. `fence_2_check`, which always fires,
    /// requires a negated token and negates it back.
    fn postgres(&self) -> Result<Vec<String>, InvalidName> {
        let dialect = self.fence.dialect;
        let table = dialect.quote_table(&self.fence.table);
        let fence = dialect.quote(&self.fence.fence);
        let function = self.quoted("fence")?;
        let too_old = if self.once { "<=" } else { "<" };
        let raise = |what: &str| format!("RAISE EXCEPTION '{REFUSED}: {what}'");
        let unless_moved = if self.deletes {
            String::new()
        } else {
            let changed = self.changed(|key| format!("NEW.{key} IS DISTINCT FROM OLD.{key}"));
            format!("IF {changed} THEN {}; END IF; ", raise(MOVED))
        };
        let body = format!(
            "CREATE FUNCTION {function}() RETURNS trigger LANGUAGE plpgsql AS $fence$ BEGIN \
             IF TG_ARGV[0] = 'delete' THEN {deleted}; END IF; \
             IF TG_ARGV[0] = 'check' THEN \
             IF NEW.{fence} IS NULL OR NEW.{fence} >= 0 THEN {none}; END IF; \
             NEW.{fence} := -NEW.{fence}; RETURN NEW; END IF; \
             IF NEW.{fence} IS NULL OR NEW.{fence} < 1 THEN {none}; END IF; \
             IF TG_ARGV[0] = 'bring' THEN \
             IF NEW.{fence} {too_old} OLD.{fence} THEN {old}; END IF; \
             {unless_moved}NEW.{fence} := -NEW.{fence}; END IF; \
             RETURN NEW; END $fence$",
            deleted = raise(DELETED),
            none = raise(NONE),
            old = raise(OLD),
        );
        let mut triggers = vec![
            ("fence_1_bring", format!("UPDATE OF {fence}"), "ROW", "bring"),
            ("fence_2_check", "UPDATE".to_owned(), "ROW", "check"),
            ("fence_insert", "INSERT".to_owned(), "ROW", "insert"),
        ];
        if !self.deletes {
            triggers.push((
                "fence_delete",
                "DELETE OR TRUNCATE".to_owned(),
                "STATEMENT",
                "delete",
            ));
        }
        let mut all = vec![body];
        for (suffix, event, each, part) in triggers {
            let name = dialect.quote(&self.name(suffix)?);
            all.push(format!(
                "CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH {each} \
                 EXECUTE FUNCTION {function}('{part}')"
            ));
        }
        Ok(all)
    }

    fn mysql(&self) -> Result<Vec<String>, InvalidName> {
        let dialect = self.fence.dialect;
        let table = dialect.quote_table(&self.fence.table);
        let fence = dialect.quote(&self.fence.fence);
        let too_old = if self.once { "<=" } else { "<" };
        let signal = |what: &str| format!("SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = '{REFUSED}: {what}';");
        let unless_token = format!(
            "IF NEW.{fence} IS NULL OR NEW.{fence} < 1 THEN {} END IF;",
            signal(NONE)
        );
        let unless_newer = format!(
            "IF NEW.{fence} {too_old} OLD.{fence} THEN {} END IF;",
            signal(OLD)
        );
        let mut update = format!("{unless_token} {unless_newer}");
        if !self.deletes {
            let changed = self.changed(|key| format!("NOT (NEW.{key} <=> OLD.{key})"));
            update += &format!(" IF {changed} THEN {} END IF;", signal(MOVED));
        }
        let mut triggers = vec![
            ("fence_update", "UPDATE", update),
            ("fence_insert", "INSERT", unless_token),
        ];
        if !self.deletes {
            // `REPLACE` fires this trigger too.
            triggers.push(("fence_delete", "DELETE", signal(DELETED)));
        }
        let mut all = Vec::new();
        for (suffix, event, body) in triggers {
            all.push(format!(
                "CREATE TRIGGER {} BEFORE {event} ON {table} FOR EACH ROW BEGIN {body} END",
                self.quoted(suffix)?
            ));
        }
        Ok(all)
    }

    /// The SQL condition that any key has changed. `differs` makes the comparison for one quoted key column.
    fn changed(&self, differs: impl Fn(String) -> String) -> String {
        let Fence { dialect, keys, .. } = &self.fence;
        let each: Vec<_> = keys.iter().map(|key| differs(dialect.quote(key))).collect();
        each.join(" OR ")
    }

    /// The name of one of these triggers, or of a function or table that they use.
    fn name(&self, suffix: &str) -> Result<Name, InvalidName> {
        Name::new(&format!("{}_{suffix}", self.fence.table.name.as_str()))
    }

    /// The quoted [`name`](Self::name), with the schema of the fenced table.
    fn quoted(&self, suffix: &str) -> Result<String, InvalidName> {
        Ok(self
            .fence
            .dialect
            .quote_beside(&self.fence.table, &self.name(suffix)?))
    }
}
