//! Tries several servers in turn until one serves the client.

use std::future::Future;
use std::time::Duration;

use tenure_backend::{BackendError, Fault};
use tokio::time::timeout;

use crate::error::invalid;

/// Why a server does not serve the client.
///
/// # Examples
/// See [`first_to_serve`].
#[derive(Clone, Debug)]
pub enum Refused {
    /// Another server may serve the client.
    Here(BackendError),
    /// Every server would refuse the client.
    Everywhere(BackendError),
}

impl Refused {
    /// The error, wherever it holds.
    #[must_use]
    pub fn into_error(self) -> BackendError {
        match self {
            Refused::Here(error) | Refused::Everywhere(error) => error,
        }
    }
}

/// A wrong password would be refused everywhere, and repeating it may lock the user out. Other errors hold for one server.
impl From<BackendError> for Refused {
    fn from(error: BackendError) -> Self {
        match error.fault() {
            Fault::Denied => Refused::Everywhere(error),
            _ => Refused::Here(error),
        }
    }
}

/// Tries places in turn until one serves the client.
///
/// Each place gets an equal part of the time limit, because a silent one must leave time for the others. `unanswered` makes
/// the error of a place that has used its part up. If one place may serve later, the failure is transient, whatever the others
/// say.
///
/// # Cancel safety
/// Dropping the future drops the attempt that is under way. Later places are not taken from the iterator.
///
/// # Errors
/// The error of the first place that refuses the client [everywhere](Refused::Everywhere); or else of the last one that may serve
/// later; or else of the first one.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Effect, Fault};
/// use tenure_endpoint::first_to_serve;
///
/// let is_down = |port: u16, _| BackendError::new(Fault::Unavailable, Effect::None, format!("{port} is down"));
/// let limit = Duration::from_secs(5);
/// let open = async |port| match port {
///     2 => Ok("connected"),
///     _ => Err(is_down(port, limit).into()),
/// };
/// let served = first_to_serve([1, 2, 3].into_iter(), limit, open, is_down).await;
/// assert_eq!(served.ok(), Some("connected"));
/// # }
/// ```
pub async fn first_to_serve<P: Copy, T, F: Future<Output = Result<T, Refused>>>(
    places: impl ExactSizeIterator<Item = P>,
    limit: Duration,
    mut open: impl FnMut(P) -> F,
    unanswered: impl Fn(P, Duration) -> BackendError,
) -> Result<T, Refused> {
    let share = limit / u32::try_from(places.len()).unwrap_or(u32::MAX).max(1);
    let mut failed: Option<BackendError> = None;
    for place in places {
        let opened = timeout(share, open(place)).await;
        match opened.unwrap_or_else(|_| Err(Refused::Here(unanswered(place, share)))) {
            Err(Refused::Here(error)) if error.is_transient() => failed = Some(error),
            Err(Refused::Here(error)) => failed = failed.or(Some(error)),
            ended => return ended,
        }
    }
    Err(Refused::Here(
        failed.unwrap_or_else(|| invalid("the URL names no host")),
    ))
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use tenure_backend::Effect;

    use super::*;

    fn error(fault: Fault) -> BackendError {
        BackendError::new(fault, Effect::None, "")
    }

    /// Tries servers that fail with these faults, and returns the fault of the whole, and how many were tried.
    async fn fault_of(faults: &[Fault]) -> (Fault, usize) {
        let mut tried = 0;
        let open = |fault: &Fault| {
            tried += 1;
            ready(Err::<(), _>(error(*fault).into()))
        };
        let unanswered = |_: &Fault, _| unreachable!("each one answers");
        let refused = first_to_serve(faults.iter(), Duration::MAX, open, unanswered).await;
        (refused.expect_err("none serves").into_error().fault(), tried)
    }

    #[tokio::test]
    async fn a_failure_that_may_pass_hides_others() {
        use Fault::{Denied, Invalid, Store, Unavailable};
        for (faults, expected) in [
            (&[Store, Invalid][..], (Store, 2)),
            (&[Store, Unavailable, Invalid], (Unavailable, 3)),
            (&[Unavailable, Denied, Store], (Denied, 2)),
            (&[], (Invalid, 0)),
        ] {
            assert_eq!(fault_of(faults).await, expected, "{faults:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_silent_server_leaves_time_for_the_others() {
        let open = async |number: u32| match number {
            3 => Ok(number),
            _ => pending().await,
        };
        let unanswered = |_, share| {
            assert_eq!(share, Duration::from_secs(2));
            error(Fault::Unavailable)
        };
        let served = first_to_serve([1, 2, 3].into_iter(), Duration::from_secs(6), open, unanswered);
        assert_eq!(served.await.ok(), Some(3));
    }
}
