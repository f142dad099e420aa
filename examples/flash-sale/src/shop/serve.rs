//! The HTTP server of a shop: its routes, and its shutdown.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::{get, post};
use tenure::{Client, Guarantee, Settings};
use tokio::net::TcpListener;

use super::buy::{Shop, buy};
use super::stock::Stock;
use super::till::Till;
use super::way::{SHELF, STRIPES, Way};
use crate::{Fault, program, stop};

/// Key of the lock under which a shop opens the database.
const OPENING: &str = "flash-sale:opening";

/// Serves until the process is asked to stop. If a shop hangs, others wait for its locks for at most `lease`.
pub(crate) async fn serve(address: &str, database: &str, lease: Duration) -> Result<(), Fault> {
    let store = program::named_store().unwrap_or_else(|| "redis://127.0.0.1:6379".to_owned());
    let locks = tenure::connect_with(&store, Settings::default().lease(lease)).await?;
    let served = sell(&locks, address, database).await;
    // The last step closes the client, which releases its locks. Otherwise they would stay until their leases end.
    let closed = locks.close(Duration::from_secs(5)).await;
    served.and(closed.map_err(Into::into))
}

async fn sell(locks: &Client, address: &str, database: &str) -> Result<(), Fault> {
    let asked_to_stop = stop::signals()?;
    locks.require(Guarantee::Fencing)?;
    let database = database.to_owned();
    let shelves = [Way::Locked, Way::Striped].map(Way::shelves).concat();
    let open = || tokio::task::spawn_blocking(move || Stock::open(&database, &shelves));
    // Several shops may start at the same time, but only one can create the database. Without this lock, SQLite would
    // make the others fail.
    let stock = locks
        .mutex(OPENING)
        .try_with(async |_| Ok::<_, Fault>(open().await??))
        .await?;
    let shop = Shop {
        till: Arc::new(Till::new(stock)),
        shelf: locks.mutex(SHELF),
        shelves: locks.striped(SHELF, STRIPES),
    };
    let listener = TcpListener::bind(address).await?;
    println!("listening on {}", listener.local_addr()?);
    let routes = Router::new()
        .route("/buy/{way}/{buyer}", post(buy))
        .route("/restock/{way}", post(restock))
        .route("/books", get(books))
        .route("/till", get(till))
        .with_state(shop);
    axum::serve(listener, routes)
        .with_graceful_shutdown(async { _ = asked_to_stop.await })
        .await?;
    Ok(())
}

type Answer = Result<String, (StatusCode, String)>;

/// `POST /restock/WAY`: starts a new sale. Puts all items on the one shelf, or the ten shelves, from which this `WAY`
/// sells.
async fn restock(State(shop): State<Shop>, Path(way): Path<Way>) -> Answer {
    let restocked = shop.run(move |till| till.restock(&way.shelves()));
    restocked.await.map_err(fault)?;
    Ok("restocked\n".to_owned())
}

/// `GET /books`: the number of orders of all shops, and the number of remaining items.
async fn books(State(shop): State<Shop>) -> Answer {
    let (sold, left) = shop.run(|till| till.stock.books()).await.map_err(fault)?;
    Ok(format!("sold {sold}\nleft {left}\n"))
}

/// `GET /till`: the counters of this shop.
async fn till(State(shop): State<Shop>) -> String {
    shop.till.report()
}

fn fault(error: rusqlite::Error) -> (StatusCode, String) {
    (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n"))
}
