//! How MySQL and MariaDB write the statements of each layout. The folder `sql` has the texts.

use crate::lease_rows::{Dialect, Layout};
use crate::server::Config;

/// The collations that tell all keys apart, also those that differ in case or in trailing blanks.
pub(super) const EXACT_ON_MARIADB: &str = "utf8mb4_nopad_bin";
pub(super) const EXACT_ON_MYSQL: &str = "utf8mb4_0900_bin";

/// How MySQL and MariaDB write the table and the statements of a layout.
pub(super) fn dialect(config: &Config) -> Dialect {
    let of_layout = match config.layout {
        Layout::Unique => include_str!("sql/unique.sql"),
        Layout::Version => include_str!("sql/version.sql"),
        Layout::ShedLock => include_str!("sql/shedlock.sql"),
    };
    let of_config = [
        // Quoted because either name may be a reserved word, such as `lock`.
        ("table", format!("`{}`", config.table_name().replace('.', "`.`"))),
        ("clock", config.server_clock.clone()),
        ("zone", config.time_zone.clone()),
        ("idle", config.sweep_after.as_micros().to_string()),
        ("exact_on_mariadb", EXACT_ON_MARIADB.to_owned()),
        ("exact_on_mysql", EXACT_ON_MYSQL.to_owned()),
    ];
    let files = [include_str!("sql/row.sql"), of_layout];
    Dialect::new(config.layout, None, files, of_config)
}
