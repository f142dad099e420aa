//! The store under test, as its author hands it to the suite.
//! What the suite does with it lives in `trial.rs`.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock};

/// A store under test: fresh and empty, made anew for each case.
///
/// The suite asks for as many clients as a case needs, lets time pass through [`pass`](Subject::pass) alone, and
/// drops the subject when the case has ended.
pub trait Subject: Send + Sync + 'static {
    /// A new client of the store, with its own connection.
    fn client(&self) -> Call<Arc<dyn Backend>>;

    /// Lets this much time pass, for the store and for the clocks of its clients.
    ///
    /// A store that reads an injected clock moves that clock; a store with a clock of its own sleeps.
    fn pass(&self, time: Duration) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;

    /// A new client whose own clock is `clock`, and whose store reads it too; `None` where the store's clock is
    /// its own.
    ///
    /// It may be the only client of a store of its own: a case that asks for it uses no other one.
    fn client_on(&self, clock: Arc<dyn Clock>) -> Option<Call<Arc<dyn Backend>>>;

    /// Ends the store orderly and starts it again on what it kept; `None` where it keeps nothing, or where that
    /// cannot be tried. A store of one machine restarts with the machine. Clients made before need not work
    /// afterwards.
    fn restart(&self) -> Option<Call<()>> {
        None
    }
}
