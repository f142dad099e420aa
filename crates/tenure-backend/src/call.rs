//! What a backend's methods return: futures that own all they need, so that the engine can move them about.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use smallvec::SmallVec;

use crate::BackendError;

/// Elements of one request, in order. A batch of one takes no allocation.
///
/// # Examples
/// ```
/// use tenure_backend::Batch;
///
/// let one = Batch::from_iter(["claim 1"]);
/// let many = Batch::from_iter(["claim 1", "claim 2"]);
/// assert!(!one.spilled() && many.spilled());
/// ```
pub type Batch<T> = SmallVec<[T; 1]>;

/// One request on its way to the store.
///
/// It borrows nothing: the engine polls it in place, and moves it to the watchdog if its caller goes away. It
/// does nothing until it is first polled. A backend whose answer is at hand uses [`Call::ready`], which
/// allocates nothing.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::Call;
/// use tokio::sync::oneshot;
///
/// let (store, reply) = oneshot::channel();
/// let mut call = Call::new(async { Ok(reply.await.expect("the store answers")) });
/// // Its caller polls it in place, and gives up before the answer is there.
/// assert!(tokio::time::timeout(Duration::from_millis(1), &mut call).await.is_err());
/// // It is moved, not dropped: somebody else learns what became of it.
/// let finishing = tokio::spawn(call);
/// store.send("granted").expect("somebody listens");
/// assert!(matches!(finishing.await, Ok(Ok("granted"))));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct Call<T>(Inner<Result<T, BackendError>>);

/// One request for a batch, answered element by element, in order: failure is an element's own.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use std::time::Duration;
/// use tenure_backend::{BackendError, Batch, Each, Effect, Fault, Instant, Renewed};
///
/// let alive = Renewed::Alive { held_from: Instant::from_nanos(1), lease: Duration::from_secs(30) };
/// let down = BackendError::new(Fault::Unavailable, Effect::Unknown, "shard 2 did not answer");
/// let each = Each::new(async { Batch::from_iter([alive, Renewed::Unknown(down)]) });
/// // One answer for each claim: the second shard's silence says nothing of the first claim.
/// assert!(matches!(each.await[..], [Renewed::Alive { .. }, Renewed::Unknown(_)]));
/// # }
/// ```
#[must_use = "a call does nothing unless it is polled"]
pub struct Each<T>(Inner<Batch<T>>);

enum Inner<T> {
    Ready(Option<T>),
    Pending(Pin<Box<dyn Future<Output = T> + Send>>),
}

impl<T> Inner<T> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        match self {
            Inner::Ready(answer) => {
                Poll::Ready(answer.take().expect("a call is not polled after its answer"))
            }
            Inner::Pending(future) => future.as_mut().poll(cx),
        }
    }
}

impl<T> Call<T> {
    /// A call that is answered already. What it did is done when it is made, whether it is polled or not.
    pub fn ready(answer: Result<T, BackendError>) -> Self {
        Call(Inner::Ready(Some(answer)))
    }

    /// A call carried out by `future`.
    pub fn new(future: impl Future<Output = Result<T, BackendError>> + Send + 'static) -> Self {
        Call(Inner::Pending(Box::pin(future)))
    }
}

impl<T> Each<T> {
    /// A call that is answered already.
    pub fn ready(answers: Batch<T>) -> Self {
        Each(Inner::Ready(Some(answers)))
    }

    /// A call carried out by `future`.
    pub fn new(future: impl Future<Output = Batch<T>> + Send + 'static) -> Self {
        Each(Inner::Pending(Box::pin(future)))
    }
}

impl<T> Unpin for Call<T> {}
impl<T> Unpin for Each<T> {}

impl<T> Future for Call<T> {
    type Output = Result<T, BackendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl<T> Future for Each<T> {
    type Output = Batch<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl<T> fmt::Debug for Call<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Call(..)")
    }
}

impl<T> fmt::Debug for Each<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Each(..)")
    }
}

/// Hints that a claim may stand differently than before: armed until dropped.
///
/// A hint may come early, spuriously, or never; whoever listens polls the claim after each, and without one
/// when `poll_after` has passed. When the stream ends, wake-ups have ended and only polling is left.
///
/// # Examples
/// ```
/// # use std::{future::poll_fn, pin::Pin, task::{Context, Poll}};
/// # #[tokio::main(flavor = "current_thread")] async fn main() {
/// use futures_core::Stream;
/// use tenure_backend::Wakes;
/// use tokio::sync::mpsc;
///
/// struct Messages(mpsc::Receiver<()>);
///
/// impl Stream for Messages {
///     type Item = ();
///     fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
///         self.0.poll_recv(cx)
///     }
/// }
/// let (wake, messages) = mpsc::channel(1);
/// let mut wakes = Wakes::new(Messages(messages));
/// wake.try_send(()).expect("there is room for one");
/// drop(wake);
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, Some(()), "poll the claim: it may stand differently");
/// let hint = poll_fn(|cx| Pin::new(&mut wakes).poll_next(cx)).await;
/// assert_eq!(hint, None, "nothing more will be heard: poll by the clock");
/// # }
/// ```
#[must_use = "wake-ups end when this is dropped"]
pub struct Wakes(Pin<Box<dyn Stream<Item = ()> + Send>>);

impl Wakes {
    /// Wake-ups from a stream.
    pub fn new(stream: impl Stream<Item = ()> + Send + 'static) -> Self {
        Wakes(Box::pin(stream))
    }
}

impl Stream for Wakes {
    type Item = ();

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<()>> {
        self.0.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Wakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wakes(..)")
    }
}
