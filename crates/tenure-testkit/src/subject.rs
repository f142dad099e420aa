//! The store under test, as its author hands it to the suite, and what may be wrong with it.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use tenure_backend::{Backend, Call, Clock, Fault};

/// A store under test: fresh and empty, made anew for each case.
///
/// The suite asks for as many clients as a case needs, lets time pass through [`pass`](Subject::pass) alone, and
/// drops the subject when the case has ended.
///
/// # Examples
/// See [`conformance!`](crate::conformance); the tutorial of `tenure-backend` has a whole one.
pub trait Subject: Send + Sync + 'static {
    /// A new client of the store, with its own connection.
    fn client(&self) -> Call<Arc<dyn Backend>>;

    /// Lets this much time pass, for the store and for the clocks of its clients.
    ///
    /// A store that reads an injected clock moves that clock; a store with a clock of its own sleeps.
    ///
    /// # Cancel safety
    /// Dropping the future may leave less time passed than was asked for; the suite never drops it.
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

    /// Makes the store unwell, for every client of this subject, or well again with `None`. `None` where that cannot
    /// be tried.
    fn ail(&self, ailment: Option<Ailment>) -> Option<Call<()>> {
        let _ = ailment;
        None
    }

    /// A new client behind a door that can be made slow; `None` where nothing can be delayed.
    fn slow(&self) -> Option<Call<Slow>> {
        None
    }
}

/// A client whose requests and answers can be made to come late.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use tenure_testkit::Slow;
///
/// /// As if everything that this client asks were long on its way.
/// fn far_away(slow: &Slow) {
///     slow.door.delay(Duration::from_millis(300), Duration::ZERO);
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Slow {
    /// The client.
    pub backend: Arc<dyn Backend>,
    /// What stands between it and the store.
    pub door: Arc<dyn Door>,
}

/// What stands between a client and its store, and can be made slow.
///
/// # Examples
/// See [`Slow`].
pub trait Door: fmt::Debug + Send + Sync + 'static {
    /// From now on requests arrive at the store so much later, and answers at the client. The time that passes meanwhile
    /// passes on both their clocks.
    fn delay(&self, requests: Duration, answers: Duration);
}

/// In which way a store is unwell, beyond weather.
///
/// # Examples
/// ```
/// use tenure_backend::Fault;
/// use tenure_testkit::Ailment;
///
/// assert_eq!(Ailment::Denies.fault(), Fault::Denied);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ailment {
    /// It refuses its clients' rights: a password was changed, a file belongs to another user.
    Denies,
    /// It answers, but is not in order: a table is gone, a disk is full.
    OutOfOrder,
}

impl Ailment {
    /// What every call is answered then.
    pub const fn fault(self) -> Fault {
        match self {
            Ailment::Denies => Fault::Denied,
            Ailment::OutOfOrder => Fault::Store,
        }
    }
}
