//! What the driver asks of a connection.

use std::future::Future;

use tenure_backend::{Finding, ServerClock};

use super::reply::{Outcome, Taken};
use super::statement::{Statement, Statements, Values};
use super::table::Widths;
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::Failure;

/// A connection that runs the statements of lease rows.
pub(crate) trait LeaseSession: Session {
    /// The statements that the server understands.
    fn statements(&self, config: &Config) -> Statements;

    /// Checks the table. Returns how much text its columns hold.
    fn check(&mut self, config: &Config) -> impl Future<Output = Result<Widths, Failure>> + Send;

    /// Runs statements without parameters.
    fn script(&mut self, script: &str) -> impl Future<Output = Result<(), Failure>> + Send;

    /// A lower bound of the server's clock, from the replies on this connection.
    fn clock(&self) -> &ServerClock;

    fn run(
        &mut self,
        statement: &Statement,
        values: &Values<'_>,
    ) -> impl Future<Output = Result<Outcome, Failure>> + Send;

    /// Takes the row of `values.key` for the claim, if it is free.
    fn take(
        &mut self,
        statements: &Statements,
        values: &Values<'_>,
    ) -> impl Future<Output = Result<Taken, Failure>> + Send;

    /// Looks for settings of the server that weaken the locks.
    fn examine(&mut self, config: &Config) -> impl Future<Output = Result<Vec<Finding>, Failure>> + Send;
}
