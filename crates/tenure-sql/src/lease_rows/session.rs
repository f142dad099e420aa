//! What the driver asks of a connection.

use std::future::Future;

use tenure_backend::{Finding, ServerClock};

use super::reply::{Outcome, Taken};
use super::statement::{Statement, Statements, Values};
use crate::server::Config;
use crate::server::dial::Session;
use crate::server::error::Failure;

/// A connection that runs the statements of lease rows.
pub(crate) trait LeaseSession: Session {
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

/// How much text the columns hold, in characters.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Widths {
    pub(crate) key: usize,
    pub(crate) holder: usize,
}
