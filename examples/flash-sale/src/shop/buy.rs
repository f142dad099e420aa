//! `POST /buy/WAY/BUYER`: sells one item, under the lock that the way asks for.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use tenure::{FencingToken, Guard, Mutex, Striped, parse_duration};

use super::stock::Sale;
use super::till::Till;
use super::way::{SHELF, Way};
use crate::Fault;
use crate::program::words;

/// How long a buyer waits for the lock unless he says so: longer than a whole sale.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a buyer thinks at the shelf unless he says so, and how long he may.
const THINK: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);

/// What a shop has; clones share it.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) till: Arc<Till>,
    /// The lock of the one shelf.
    pub(super) shelf: Mutex,
    /// The locks of ten.
    pub(super) shelves: Striped,
}

/// What a buyer asks for.
struct Wish {
    way: Way,
    buyer: String,
    think: Duration,
    patience: Duration,
}

/// The handler. The headers `think` and `patience` say how long this buyer does either: `5ms`, `2s`.
///
/// When a client closes its connection, the server drops the handler's future. The sale runs in a task of its own, which
/// that does not end: else the lock would be given back in the middle of it.
pub(super) async fn buy(
    State(shop): State<Shop>,
    Path((way, buyer)): Path<(Way, String)>,
    headers: HeaderMap,
) -> Result<Response, (StatusCode, String)> {
    let duration = |name: &str, usual| {
        let said = headers.get(name).map(|said| said.to_str().unwrap_or_default());
        let duration = said.map_or(Ok(usual), parse_duration);
        duration.map_err(|error| (StatusCode::BAD_REQUEST, format!("{name}: {error}\n")))
    };
    let wish = Wish {
        way,
        buyer,
        think: duration("think", THINK)?.min(LONGEST),
        patience: duration("patience", PATIENCE)?,
    };
    let bought = tokio::spawn(async move { shop.serve(&wish).await });
    match bought.await.map_err(Fault::from).flatten() {
        Ok(sale) => Ok(answer(sale)),
        // Whether there is an order is open: a buyer who asks again under the same name finds out.
        Err(fault) => {
            eprintln!("a sale failed: {}", words(&*fault));
            Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{fault}\n")))
        }
    }
}

/// What a buyer is told of his sale; there is none if the lock was busy for longer than he waits.
fn answer(sale: Option<Sale>) -> Response {
    match sale {
        Some(Sale::Sold(number)) => (StatusCode::CREATED, format!("order {number}\n")).into_response(),
        Some(Sale::Had(number)) => format!("order {number}, as before\n").into_response(),
        Some(Sale::SoldOut) => (StatusCode::GONE, "sold out\n").into_response(),
        Some(Sale::Overtaken) => (StatusCode::CONFLICT, "overtaken: nothing was sold\n").into_response(),
        None => {
            let hint = [(RETRY_AFTER, "1")];
            (StatusCode::SERVICE_UNAVAILABLE, hint, "sold out, try later\n").into_response()
        }
    }
}

impl Shop {
    async fn serve(&self, wish: &Wish) -> Result<Option<Sale>, Fault> {
        match wish.way {
            Way::Unlocked => self.sell(SHELF, wish, None).await.map(Some),
            Way::Locked | Way::Fenced => self.sell_under(&self.shelf, wish).await,
            Way::Striped => self.sell_from_any(wish).await,
        }
    }

    /// Sells from the shelf that is this buyer's, and when that is empty, from any that still has one.
    async fn sell_from_any(&self, wish: &Wish) -> Result<Option<Sale>, Fault> {
        let own = self.shelves.mutex(&wish.buyer);
        for shelf in [own].into_iter().chain(self.shelves.stripes()) {
            match self.sell_under(shelf, wish).await? {
                Some(Sale::SoldOut) if self.has_items().await? => {}
                sale => return Ok(sale),
            }
        }
        Ok(Some(Sale::SoldOut))
    }

    /// Sells under that lock; `None` if it is busy for longer than the buyer waits.
    ///
    /// When the lock is lost, that is the error: a sale that has begun is not called back, and goes on without it. Only the
    /// token is against it then.
    async fn sell_under(&self, lock: &Mutex, wish: &Wish) -> Result<Option<Sale>, Fault> {
        let sold = lock.try_with_or_else(
            wish.patience,
            async |guard| {
                let sale = self.sell(guard.key().as_str(), wish, wish.token(guard)?);
                sale.await.map(Some)
            },
            async || Ok(None),
        );
        sold.await
    }

    async fn sell(&self, shelf: &str, wish: &Wish, token: Option<FencingToken>) -> Result<Sale, Fault> {
        let (shelf, buyer, think) = (shelf.to_owned(), wish.buyer.clone(), wish.think);
        let sale = self.run(move |till| till.sell(&shelf, &buyer, token, think));
        Ok(sale.await?)
    }

    async fn has_items(&self) -> rusqlite::Result<bool> {
        self.run(|till| till.stock.books().map(|(_, left)| left > 0))
            .await
    }

    /// SQLite blocks, so it works on a thread that may.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Till) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let till = self.till.clone();
        tokio::task::spawn_blocking(move || work(&till))
            .await
            .expect("nobody panics at a till")
    }
}

impl Wish {
    /// What fences the sale; `None` for a way that does without.
    fn token(&self, guard: &Guard) -> Result<Option<FencingToken>, tenure::Error> {
        match self.way {
            Way::Unlocked | Way::Locked => Ok(None),
            Way::Fenced | Way::Striped => guard.require_token().map(Some),
        }
    }
}
