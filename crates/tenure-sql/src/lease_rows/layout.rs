//! The tables that other programs share, and how each is used.

/// A lock table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `distributed_lock`: a row is there while its key is held.
    Unique,
    /// `resource_lock`: the row stays, and its version is the fencing token.
    Version,
    /// `shedlock`, the table of Java's ShedLock: the row stays.
    ShedLock,
}

/// What a layout's table is called, and its columns.
#[derive(Debug)]
pub(crate) struct Form {
    pub(crate) name: &'static str,
    /// The table's usual name.
    pub(crate) table: &'static str,
    pub(crate) key: &'static str,
    pub(crate) holder: &'static str,
    /// End of the lease.
    pub(crate) ends: &'static str,
    /// When the row was taken, or released.
    pub(crate) changed: &'static str,
    /// All columns, with their definitions. The dialect knows the expressions.
    pub(crate) columns: &'static [(&'static str, &'static str)],
}

impl Layout {
    pub(crate) const ALL: [Layout; 3] = [Layout::Unique, Layout::Version, Layout::ShedLock];

    /// Version of the tables' definitions.
    pub(crate) const VERSION: u32 = 1;

    pub(crate) const fn form(self) -> &'static Form {
        match self {
            Layout::Unique => &Form {
                name: "unique",
                table: "distributed_lock",
                key: "lock_key",
                holder: "lock_value",
                ends: "expire_time",
                changed: "create_time",
                columns: &[
                    ("id", "bigint {numbered} PRIMARY KEY"),
                    ("lock_key", "varchar(200) {exact} NOT NULL UNIQUE"),
                    ("lock_value", "varchar(255) {text} NOT NULL"),
                    ("expire_time", "{time} NOT NULL"),
                    ("create_time", "{time} NOT NULL {now_by_default}"),
                ],
            },
            Layout::Version => &Form {
                name: "version",
                table: "resource_lock",
                key: "resource_key",
                holder: "lock_holder",
                ends: "expire_time",
                changed: "update_time",
                columns: &[
                    ("id", "bigint {numbered} PRIMARY KEY"),
                    ("resource_key", "varchar(200) {exact} NOT NULL UNIQUE"),
                    ("version", "bigint NOT NULL DEFAULT 0"),
                    ("locked", "boolean NOT NULL DEFAULT false"),
                    ("lock_holder", "varchar(255) {text}"),
                    ("update_time", "{time} NOT NULL {now_by_default}"),
                    ("expire_time", "{time}"),
                ],
            },
            // As ShedLock's documentation has it, but on MySQL with an exact collation, and with times that have no zone.
            Layout::ShedLock => &Form {
                name: "shedlock",
                table: "shedlock",
                key: "name",
                holder: "locked_by",
                ends: "lock_until",
                changed: "locked_at",
                columns: &[
                    ("name", "varchar(64) {text} NOT NULL PRIMARY KEY"),
                    ("lock_until", "{time} NOT NULL"),
                    ("locked_at", "{time} NOT NULL {now_by_default}"),
                    ("locked_by", "varchar(255) {text} NOT NULL"),
                ],
            },
        }
    }

    /// Whether a release writes a token into the row.
    pub(crate) fn has_tokens(self) -> bool {
        self == Layout::Version
    }
}
