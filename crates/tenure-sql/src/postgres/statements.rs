//! How PostgreSQL writes the statements of each layout. The folder `sql` has the texts.

use crate::lease_rows::{Dialect, Layout};
use crate::server::Config;
use crate::server::values::Value;

/// How PostgreSQL writes the table and the statements of a layout.
pub(super) fn dialect(config: &Config) -> Dialect {
    let of_layout = match config.layout {
        Layout::Unique => include_str!("sql/unique.sql"),
        Layout::Version => include_str!("sql/version.sql"),
        Layout::ShedLock => include_str!("sql/shedlock.sql"),
    };
    // A name that begins with a sign would be counted westwards, as POSIX does.
    let zone = match config.time_zone.starts_with(['+', '-']) {
        true => format!("interval '{}'", config.time_zone),
        false => format!("'{}'", config.time_zone),
    };
    let of_config = [
        ("table", config.table_name()),
        ("clock", config.server_clock.clone()),
        ("zone", zone),
        ("idle", config.sweep_after.as_micros().to_string()),
    ];
    let placeholder = |number, value: Value<'_>| match value {
        Value::Text(_) => format!("${number}::text"),
        Value::Number(_) => format!("${number}::bigint"),
    };
    let files = [include_str!("sql/row.sql"), of_layout];
    Dialect::new(config.layout, Some(placeholder), files, of_config)
}
