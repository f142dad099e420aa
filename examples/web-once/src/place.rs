//! `POST /orders`: gives a repeated request the answer to the first, and never charges twice.

use std::fmt::Display;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tenure::{Client, Error, Guard};
use tokio_util::task::TaskTracker;

use crate::orders::Orders;

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) locks: Client,
    pub(crate) orders: Orders,
    /// The tasks that place orders. The program waits for them before it closes the client.
    pub(crate) placing: TaskTracker,
}

type Answer = (StatusCode, String);

/// Time limit for the lock, longer than a charge takes. After this time the client is asked to try again.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Handles a request. The client sends the same `Idempotency-Key` with each repetition of the request.
///
/// The server drops this future when the client closes its connection. So the work runs in a separate task: otherwise
/// the lock would be released in the middle of a charge, and the answer would not be stored.
pub(crate) async fn place_order(State(shop): State<Shop>, headers: HeaderMap, body: String) -> Answer {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "send an Idempotency-Key\n".to_owned());
    };
    let key = key.to_owned();
    let placing = shop.placing.clone();
    let placed = placing.spawn(async move { place(&shop, &key, &body).await });
    placed.await.unwrap_or_else(fault)
}

async fn place(shop: &Shop, key: &str, body: &str) -> Answer {
    let lock = shop.locks.mutex(format!("order:{key}"));
    let placed = lock.with_or_else(
        PATIENCE,
        async |guard| charge_once(&shop.orders, guard, key, body).await,
        async || (StatusCode::SERVICE_UNAVAILABLE, "busy: try again\n".to_owned()),
    );
    placed.await.unwrap_or_else(refusal)
}

/// Charges under the lock, unless an earlier request with this key has stored an answer.
async fn charge_once(orders: &Orders, guard: &Guard, key: &str, body: &str) -> Answer {
    let charged = async {
        if let Some(answer) = orders.answer(key).await? {
            return Ok(answer);
        }
        let (number, body) = orders.charge(key, body).await?;
        let answer = format!("charged: number {number} for {body}\n");
        orders.keep(key, answer, guard.token()).await
    };
    match charged.await {
        Ok(answer) => (StatusCode::CREATED, answer),
        Err(error) => fault(error),
    }
}

/// Answer to an error, which is printed for the operator. By repeating the request, the client learns whether the order
/// was charged.
fn fault(error: impl Display) -> Answer {
    eprintln!("error: {error}");
    (
        StatusCode::INTERNAL_SERVER_ERROR,
        "this failed: try again\n".to_owned(),
    )
}

/// Answer if the lock was not held to the end. After `Lost` and `Backend`, the order may have been charged: by
/// repeating the request, the client learns whether it was. The text of the error may name the store, so it is printed for
/// the operator, and the client gets another.
fn refusal(error: Error) -> Answer {
    eprintln!("error: {error}");
    let (status, text) = match error {
        Error::Invalid(_) => (StatusCode::BAD_REQUEST, "use another Idempotency-Key\n"),
        _ => (StatusCode::SERVICE_UNAVAILABLE, "unavailable: try again\n"),
    };
    (status, text.to_owned())
}
