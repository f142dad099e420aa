//! `POST /buy/WAY/BUYER`: sells one item, under the lock that the way asks for.
//! Not here: what is done under it (`till`), and what the buyer is told (`answer`).

use std::time::Duration;

use axum::extract::{Path, State};
use axum::http::HeaderMap;
use tenure::{FencingToken, Guard, Mutex, parse_duration};

use super::answer::Answer;
use super::open::Shop;
use super::shelves::SHELF;
use super::stock::Sale;
use crate::Fault;
use crate::program::words;
use crate::way::Way;

/// How long a buyer waits for the lock unless he says so: longer than a whole sale.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long a buyer thinks at the shelf unless he says so, and how long he may.
const THINK: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(60);

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
    Path((way, buyer)): Path<(String, String)>,
    headers: HeaderMap,
) -> Answer {
    let wish = match Wish::read(&way, buyer, &headers) {
        Ok(wish) => wish,
        Err(why) => return Answer::Bad(why),
    };
    let bought = tokio::spawn(async move { shop.serve(&wish).await });
    match bought.await {
        Ok(Ok(answer)) => answer,
        Ok(Err(fault)) => {
            eprintln!("a sale failed: {}", words(&*fault));
            Answer::Open(fault.to_string())
        }
        Err(ended) => Answer::Open(ended.to_string()),
    }
}

impl Wish {
    fn read(way: &str, buyer: String, headers: &HeaderMap) -> Result<Wish, String> {
        let duration = |name: &str, usual: Duration| {
            let Some(said) = headers.get(name) else {
                return Ok(usual);
            };
            let said = said.to_str().map_err(|error| format!("{name}: {error}"))?;
            parse_duration(said).map_err(|error| format!("{name}: {error}"))
        };
        Ok(Wish {
            way: way.parse()?,
            buyer,
            think: duration("think", THINK)?.min(LONGEST),
            patience: duration("patience", PATIENCE)?,
        })
    }
}

impl Shop {
    async fn serve(&self, wish: &Wish) -> Result<Answer, Fault> {
        match wish.way {
            Way::Unlocked => self.sell(SHELF, wish, None).await,
            Way::Locked | Way::Fenced => self.sell_under(&self.shelf, wish).await,
            Way::Striped => self.sell_from_any(wish).await,
        }
    }

    /// Sells from the shelf that is this buyer's, and when that is empty, from any that still has one.
    async fn sell_from_any(&self, wish: &Wish) -> Result<Answer, Fault> {
        let own = self.shelves.mutex(&wish.buyer);
        for shelf in [own].into_iter().chain(self.shelves.stripes()) {
            match self.sell_under(shelf, wish).await? {
                Answer::Sale(Sale::SoldOut) if self.has_items().await? => {}
                answer => return Ok(answer),
            }
        }
        Ok(Answer::Sale(Sale::SoldOut))
    }

    /// Sells under that lock, or says "try later" if it is busy for longer than the buyer waits.
    ///
    /// When the lock is lost, that is the error: a sale that has begun is not called back, and goes on without it. Only the
    /// token is against it then.
    async fn sell_under(&self, lock: &Mutex, wish: &Wish) -> Result<Answer, Fault> {
        let sold = lock.with_or_else(
            wish.patience,
            async |guard| self.sell(guard.key().as_str(), wish, wish.token(guard)?).await,
            async || Ok(Answer::Busy),
        );
        sold.await?
    }

    async fn sell(&self, shelf: &str, wish: &Wish, token: Option<FencingToken>) -> Result<Answer, Fault> {
        let (shelf, buyer, think) = (shelf.to_owned(), wish.buyer.clone(), wish.think);
        let sale = self.run(move |till| till.sell(&shelf, &buyer, token, think));
        Ok(Answer::Sale(sale.await?))
    }

    async fn has_items(&self) -> rusqlite::Result<bool> {
        self.run(|till| till.stock.books().map(|(_, left)| left > 0))
            .await
    }
}

impl Wish {
    /// What fences the sale; `None` for a way that does without.
    fn token(&self, guard: &Guard) -> Result<Option<FencingToken>, tenure::Error> {
        match self.way {
            Way::Unlocked | Way::Locked => Ok(None),
            Way::Fenced | Way::Striped => guard.fence().map(Some),
        }
    }
}
