//! What a backend's methods return: futures that own all they need, so that the engine can move them about.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::Stream;
use smallvec::SmallVec;

use crate::BackendError;

/// Elements of one request, in order. A batch of one takes no allocation.
pub type Batch<T> = SmallVec<[T; 1]>;

/// One request on its way to the store.
///
/// It borrows nothing: the engine polls it in place, and moves it to the watchdog if its caller goes away. It
/// does nothing until it is first polled. A backend whose answer is at hand uses [`Call::ready`], which
/// allocates nothing.
#[must_use = "a call does nothing unless it is polled"]
pub struct Call<T>(Inner<Result<T, BackendError>>);

/// One request for a batch, answered element by element, in order: failure is an element's own.
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
