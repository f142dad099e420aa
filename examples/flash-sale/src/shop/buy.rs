//! `POST /buy/WAY/BUYER`: sells one item, under the lock of the chosen way to sell.

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

/// Default of how long a buyer waits for the lock: longer than it takes to sell the whole stock.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a buyer thinks before it takes an item: default and maximum.
const THINK: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);

/// State of a shop. Clones share it.
#[derive(Clone)]
pub(super) struct Shop {
    pub(super) till: Arc<Till>,
    pub(super) shelf: Mutex,
    pub(super) shelves: Striped,
}

struct Purchase {
    way: Way,
    buyer: String,
    think: Duration,
    patience: Duration,
}

/// Handles a buyer's request. Its headers `think` and `patience` say how long the buyer thinks and waits, such as
/// `5ms`.
///
/// The server drops this future when the client closes its connection. So the sale runs in a separate task: otherwise
/// the lock would be released in the middle of the sale.
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
    let purchase = Purchase {
        way,
        buyer,
        think: duration("think", THINK)?.min(LONGEST),
        patience: duration("patience", PATIENCE)?,
    };
    let bought = tokio::spawn(async move { shop.serve(&purchase).await });
    match bought.await.map_err(Fault::from).flatten() {
        Ok(sale) => Ok(answer(sale)),
        // The order may exist despite the error. A buyer that asks again with the same name gets it.
        Err(fault) => {
            eprintln!("a sale failed: {}", words(&*fault));
            Err((StatusCode::INTERNAL_SERVER_ERROR, format!("{fault}\n")))
        }
    }
}

/// Answer to a buyer. `sale` is `None` if the lock was busy for longer than the buyer waits.
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
    async fn serve(&self, purchase: &Purchase) -> Result<Option<Sale>, Fault> {
        match purchase.way {
            Way::Unlocked => self.sell(SHELF, purchase, None).await.map(Some),
            Way::Locked | Way::Fenced => self.sell_under(&self.shelf, purchase).await,
            Way::Striped => self.sell_from_any(purchase).await,
        }
    }

    /// Sells from the shelf that the buyer's name selects or, if that shelf is empty, from the first other shelf with
    /// an item.
    async fn sell_from_any(&self, purchase: &Purchase) -> Result<Option<Sale>, Fault> {
        let own = self.shelves.mutex(&purchase.buyer);
        for shelf in [own].into_iter().chain(self.shelves.stripes()) {
            match self.sell_under(shelf, purchase).await? {
                Some(Sale::SoldOut) if self.has_items().await? => {}
                sale => return Ok(sale),
            }
        }
        Ok(Some(Sale::SoldOut))
    }

    /// Sells under this lock. Returns `None` if the lock is busy for longer than the buyer waits.
    ///
    /// A lost lock is an error. A sale that has begun cannot be stopped, and goes on without the lock. Then only its
    /// token can make the database refuse it.
    async fn sell_under(&self, lock: &Mutex, purchase: &Purchase) -> Result<Option<Sale>, Fault> {
        let sold = lock.try_with_or_else(
            purchase.patience,
            async |guard| {
                let sale = self.sell(guard.key().as_str(), purchase, purchase.token(guard)?);
                sale.await.map(Some)
            },
            async || Ok(None),
        );
        sold.await
    }

    async fn sell(
        &self,
        shelf: &str,
        purchase: &Purchase,
        token: Option<FencingToken>,
    ) -> Result<Sale, Fault> {
        let (shelf, buyer, think) = (shelf.to_owned(), purchase.buyer.clone(), purchase.think);
        let sale = self.run(move |till| till.sell(&shelf, &buyer, token, think));
        Ok(sale.await?)
    }

    async fn has_items(&self) -> rusqlite::Result<bool> {
        self.run(|till| till.stock.books().map(|(_, left)| left > 0))
            .await
    }

    /// Runs a SQLite call, which blocks, on a thread for blocking work.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Till) -> rusqlite::Result<T> + Send + 'static,
    ) -> rusqlite::Result<T> {
        let till = self.till.clone();
        tokio::task::spawn_blocking(move || work(&till))
            .await
            .expect("no sale panics")
    }
}

impl Purchase {
    /// Token that fences the sale; `None` for a way to sell without a fence.
    fn token(&self, guard: &Guard) -> Result<Option<FencingToken>, tenure::Error> {
        match self.way {
            Way::Unlocked | Way::Locked => Ok(None),
            Way::Fenced | Way::Striped => guard.require_token().map(Some),
        }
    }
}
