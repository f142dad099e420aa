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

/// The columns that all layouts have, by their meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Columns {
    pub(crate) key: &'static str,
    pub(crate) holder: &'static str,
    /// End of the lease.
    pub(crate) ends: &'static str,
    /// When the row was taken, or released.
    pub(crate) changed: &'static str,
}

impl Layout {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Layout::Unique => "unique",
            Layout::Version => "version",
            Layout::ShedLock => "shedlock",
        }
    }

    /// The table's usual name.
    pub(crate) fn table(self) -> &'static str {
        match self {
            Layout::Unique => "distributed_lock",
            Layout::Version => "resource_lock",
            Layout::ShedLock => "shedlock",
        }
    }

    pub(crate) fn columns(self) -> Columns {
        match self {
            Layout::Unique => Columns {
                key: "lock_key",
                holder: "lock_value",
                ends: "expire_time",
                changed: "create_time",
            },
            Layout::Version => Columns {
                key: "resource_key",
                holder: "lock_holder",
                ends: "expire_time",
                changed: "update_time",
            },
            Layout::ShedLock => Columns {
                key: "name",
                holder: "locked_by",
                ends: "lock_until",
                changed: "locked_at",
            },
        }
    }

    /// Version of the table's definition.
    pub(crate) fn version(self) -> u32 {
        1
    }

    /// Whether a release writes a token into the row.
    pub(crate) fn has_tokens(self) -> bool {
        self == Layout::Version
    }
}
