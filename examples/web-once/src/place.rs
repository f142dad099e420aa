//! `POST /orders`: answers a repeated request with the answer to the first, and never charges twice.
//! Not here: SQL (`orders`).

use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use tenure::{Client, Error, Guard};

use crate::orders::Orders;

/// What a server has.
#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) locks: Client,
    pub(crate) orders: Orders,
}

type Answer = (StatusCode, String);

/// Longer than a charge takes; then the client is asked to come back.
const PATIENCE: Duration = Duration::from_secs(10);

/// The handler. The client sends the same `Idempotency-Key` with each repetition of one request.
pub(crate) async fn place_order(State(shop): State<Shop>, headers: HeaderMap, body: String) -> Answer {
    let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
        return (StatusCode::BAD_REQUEST, "send an Idempotency-Key\n".to_owned());
    };
    let lock = shop.locks.mutex(format!("order:{key}"));
    let placed = lock.with_or_else(
        PATIENCE,
        async |guard| charge_once(&shop.orders, guard, key, &body).await,
        async || (StatusCode::SERVICE_UNAVAILABLE, "busy: try again\n".to_owned()),
    );
    placed.await.unwrap_or_else(refusal)
}

/// Under the lock: whoever waited for another finds its answer.
async fn charge_once(orders: &Orders, guard: &Guard, key: &str, body: &str) -> Answer {
    let charged = async {
        if let Some(answer) = orders.answer(key).await? {
            return Ok(answer);
        }
        let charge = orders.charge(key, body).await?;
        orders
            .keep(
                key,
                format!("charged: number {charge} for {body}\n"),
                guard.token(),
            )
            .await
    };
    match charged.await {
        Ok(answer) => (StatusCode::CREATED, answer),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
    }
}

/// Nothing was charged, but for `Lost` and `Backend`, which leave that open: the same request finds out.
fn refusal(error: Error) -> Answer {
    let status = match error {
        Error::Invalid(_) => StatusCode::BAD_REQUEST,
        _ => StatusCode::SERVICE_UNAVAILABLE,
    };
    (status, format!("{error}\n"))
}
