//! The tables of the layouts.

use crate::lease_rows::Layout;
use crate::server::Config;

/// The collations that tell all keys apart, also those that differ in case or in trailing blanks.
pub(super) const EXACT_ON_MARIADB: &str = "utf8mb4_nopad_bin";
pub(super) const EXACT_ON_MYSQL: &str = "utf8mb4_0900_bin";

/// A column's name and definition. A text that `{exact}` ends has an exact collation.
pub(super) type Column = (&'static str, &'static str);

pub(super) const EXACT: &str = "{exact}";

/// The statements that create the table of a layout, if it is not there. One text serves both kinds of server: MariaDB reads
/// the comment that begins with `/*M!`, MySQL that with its version.
pub(crate) fn schema(config: &Config) -> String {
    let (table, layout) = (config.table_name(), config.layout);
    let exact =
        format!("CHARACTER SET utf8mb4 COLLATE /*M! {EXACT_ON_MARIADB} */ /*!80017 {EXACT_ON_MYSQL} */");
    let columns: Vec<String> = columns(layout)
        .iter()
        .map(|(name, definition)| format!("    {name} {}", definition.replace(EXACT, &exact)))
        .collect();
    let version = layout.version();
    let grants = match layout {
        Layout::Unique => "SELECT, INSERT, UPDATE, DELETE",
        Layout::Version | Layout::ShedLock => "SELECT, INSERT, UPDATE",
    };
    format!(
        "-- Layout `{name}`, version {version}. A user that locks needs: GRANT {grants} ON {table} TO user;\n\
         CREATE TABLE IF NOT EXISTS {table} (\n{columns}\n) ENGINE = InnoDB \
         COMMENT = 'Tenure: layout {name}, version {version}';\n",
        name = layout.name(),
        columns = columns.join(",\n"),
    )
}

/// The columns that the layout's table has.
pub(super) fn columns(layout: Layout) -> &'static [Column] {
    match layout {
        Layout::Unique => &UNIQUE,
        Layout::Version => &VERSION,
        Layout::ShedLock => &SHEDLOCK,
    }
}

const ID: Column = ("id", "BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY");

const UNIQUE: [Column; 5] = [
    ID,
    ("lock_key", "VARCHAR(200) {exact} NOT NULL UNIQUE"),
    ("lock_value", "VARCHAR(255) {exact} NOT NULL"),
    ("expire_time", "DATETIME(6) NOT NULL"),
    ("create_time", "DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"),
];

const VERSION: [Column; 7] = [
    ID,
    ("resource_key", "VARCHAR(200) {exact} NOT NULL UNIQUE"),
    ("version", "BIGINT NOT NULL DEFAULT 0"),
    ("locked", "BOOLEAN NOT NULL DEFAULT FALSE"),
    ("lock_holder", "VARCHAR(255) {exact}"),
    ("update_time", "DATETIME(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)"),
    ("expire_time", "DATETIME(6)"),
];

/// As ShedLock's documentation has it, but with an exact collation.
const SHEDLOCK: [Column; 4] = [
    ("name", "VARCHAR(64) {exact} NOT NULL PRIMARY KEY"),
    ("lock_until", "TIMESTAMP(3) NOT NULL"),
    ("locked_at", "TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3)"),
    ("locked_by", "VARCHAR(255) {exact} NOT NULL"),
];
