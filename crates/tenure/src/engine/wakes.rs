//! Waiting for a store's wake-ups.

use std::future::{pending, poll_fn};
use std::pin::Pin;

use futures_core::Stream;
use tenure_backend::Wakes;

/// Waits for the next wake-up. Returns false when the store sends no more. Without any it never returns.
pub(crate) async fn next_wake(wakes: &mut Option<Wakes>) -> bool {
    match wakes {
        Some(wakes) => poll_fn(|cx| Pin::new(&mut *wakes).poll_next(cx)).await.is_some(),
        None => pending().await,
    }
}
