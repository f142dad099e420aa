//! What the driver asks of a connection.

use std::future::Future;

use super::reply::Taken;
use super::statement::{Dialect, Statements, Values};
use super::table::Widths;
use crate::server::Config;
use crate::server::error::Failure;
use crate::server::findings::Examined;

/// A connection that runs the statements of lease rows.
pub(crate) trait LeaseSession: Examined {
    /// How the server wants to have the table and the statements of the layout.
    fn dialect(config: &Config) -> Dialect;

    /// Checks the table. Returns how much text its columns hold.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<Widths, Failure>> + Send;

    /// Takes the row of `values.key` for the claim, if it is free.
    fn take(
        &mut self,
        statements: &Statements,
        values: &Values<'_>,
    ) -> impl Future<Output = Result<Taken, Failure>> + Send;
}
