//! Bugs to be planted, so that it is known that a run finds them.

use serde::{Deserialize, Serialize};

/// A bug that a run is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Plant {
    /// Holders believe until they unlock, whatever the clock says.
    Believe,
    /// Every grant has the same token.
    Repeat,
    /// The fenced resource forgets which token was the greatest.
    Forget,
    /// A lock is never given back.
    Keep,
    /// Leases last a minute: the dead block the living.
    Linger,
    /// Waiters of fair locks do not queue.
    Barge,
    /// A lock is left in the store at the end.
    Litter,
}
