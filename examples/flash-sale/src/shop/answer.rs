//! What a buyer is told.
//! Not here: who decides it (`buy`, `stock`).

use axum::http::StatusCode;
use axum::http::header::RETRY_AFTER;
use axum::response::{IntoResponse, Response};

use super::stock::Sale;

/// What a buyer is told.
#[derive(Debug)]
pub(crate) enum Answer {
    /// How the sale went.
    Sale(Sale),
    /// The lock was busy for longer than the buyer waits.
    Busy,
    /// Whether there is an order is open: who asks again under the same name finds out.
    Open(String),
    /// This makes no sense.
    Bad(String),
}

impl IntoResponse for Answer {
    fn into_response(self) -> Response {
        match self {
            Answer::Sale(Sale::Sold(number)) => {
                (StatusCode::CREATED, format!("order {number}\n")).into_response()
            }
            Answer::Sale(Sale::Had(number)) => format!("order {number}, as before\n").into_response(),
            Answer::Sale(Sale::SoldOut) => (StatusCode::GONE, "sold out\n").into_response(),
            Answer::Sale(Sale::Overtaken) => {
                (StatusCode::CONFLICT, "overtaken: nothing was sold\n").into_response()
            }
            Answer::Busy => {
                let hint = [(RETRY_AFTER, "1")];
                (StatusCode::SERVICE_UNAVAILABLE, hint, "sold out, try later\n").into_response()
            }
            Answer::Open(why) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{why}\n")).into_response(),
            Answer::Bad(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        }
    }
}
