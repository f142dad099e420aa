//! The database that all shops share: the items on the shelves, and the orders. Its methods block.

use std::error::Error;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params, params_from_iter};
use tenure::FencingToken;
use tenure::fenced::{Dialect, Fence, Statement, applied};

/// Number of items in one sale.
pub(crate) const ITEMS: i64 = 100;

/// How long a statement waits for the statements of other shops.
const PATIENCE: Duration = Duration::from_secs(30);

const SCHEMA: &str = "
    PRAGMA journal_mode = WAL;
    CREATE TABLE IF NOT EXISTS stock (shelf TEXT PRIMARY KEY, items INTEGER NOT NULL, fence INTEGER NOT NULL DEFAULT 0);
    CREATE TABLE IF NOT EXISTS orders (number INTEGER PRIMARY KEY, buyer TEXT NOT NULL UNIQUE);";

/// Result of a buyer's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sale {
    /// A new order with this number.
    Sold(i64),
    /// The buyer already had the order with this number.
    Had(i64),
    SoldOut,
    /// A later holder of the lock has used the shelf: nothing was sold.
    Overtaken,
}

pub(crate) struct Stock {
    /// Locked only for a statement or transaction, and never while a buyer thinks.
    connection: Mutex<Connection>,
    look: Statement,
    take: Statement,
}

impl Stock {
    /// Opens the database, and adds a row without items for each of these shelves that has no row.
    pub(crate) fn open(path: &str, shelves: &[String]) -> Result<Stock, Box<dyn Error + Send + Sync>> {
        let fence = Fence::new(Dialect::Sqlite, "stock", &["shelf"])?;
        let connection = Connection::open(path)?;
        connection.busy_timeout(PATIENCE)?;
        let stock = Stock {
            connection: Mutex::new(connection),
            look: fence.update(&[])?,
            take: fence.update(&["items"])?,
        };
        stock.run(|connection| {
            connection.execute_batch(SCHEMA)?;
            let shelf = "INSERT INTO stock (shelf, items) VALUES (?1, 0) ON CONFLICT (shelf) DO NOTHING";
            let mut rows = connection.prepare(shelf)?;
            shelves
                .iter()
                .try_for_each(|shelf| rows.execute([shelf]).map(drop))
        })?;
        Ok(stock)
    }

    /// Starts a sale: spreads all items equally over these shelves, and deletes the orders.
    pub(crate) fn restock(&self, shelves: &[String]) -> rusqlite::Result<()> {
        // `ITEMS` is a multiple of the number of shelves, one or ten.
        let each = ITEMS / shelves.len() as i64;
        self.run(|connection| {
            let restock = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            restock.execute_batch("DELETE FROM orders; UPDATE stock SET items = 0")?;
            for shelf in shelves {
                restock.execute(
                    "UPDATE stock SET items = ?2 WHERE shelf = ?1",
                    params![shelf, each],
                )?;
            }
            restock.commit()
        })
    }

    /// Number of items on a shelf, or `None` if the shelf has a greater token or does not exist.
    ///
    /// Also puts `token` on the shelf, so that older holders can take nothing from it any more. Otherwise an older
    /// holder could take an item between this look and the update that follows it, and the number would be out of
    /// date.
    pub(crate) fn look(&self, shelf: &str, token: Option<FencingToken>) -> rusqlite::Result<Option<i64>> {
        let Some(token) = token else {
            let sql = "SELECT items FROM stock WHERE shelf = ?1";
            return self.run(|connection| connection.query_row(sql, [shelf], |row| row.get(0)).optional());
        };
        // UPDATE stock SET fence = ? WHERE shelf = ? AND fence <= ? RETURNING items
        let sql = format!("{} RETURNING items", self.look.sql());
        let values = self.look.params([], token, [Value::from(shelf.to_owned())]);
        self.run(|connection| {
            let look = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let items = look.query_row(&sql, params_from_iter(values), |row| row.get(0));
            let items = items.optional()?;
            look.commit()?;
            Ok(items)
        })
    }

    /// Sets the number of items on a shelf and inserts the order, but not if the shelf has a token greater than
    /// `token`, or the buyer already has an order.
    pub(crate) fn take(
        &self,
        shelf: &str,
        leave: i64,
        buyer: &str,
        token: Option<FencingToken>,
    ) -> rusqlite::Result<Sale> {
        self.run(|connection| {
            let taking = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some(token) = token {
                // The fenced statement is: UPDATE stock SET items = ?, fence = ? WHERE shelf = ? AND fence <= ?
                let shelf = Value::from(shelf.to_owned());
                let values = self.take.params([Value::from(leave)], token, [shelf]);
                let rows = taking.execute(self.take.sql(), params_from_iter(values))?;
                if applied(rows).is_err() {
                    return Ok(Sale::Overtaken);
                }
            } else {
                taking.execute(
                    "UPDATE stock SET items = ?2 WHERE shelf = ?1",
                    params![shelf, leave],
                )?;
            }
            let order =
                "INSERT INTO orders (buyer) VALUES (?1) ON CONFLICT (buyer) DO NOTHING RETURNING number";
            let Some(number) = taking.query_row(order, [buyer], |row| row.get(0)).optional()? else {
                // The buyer already has an order. Dropping the transaction undoes the update.
                return Ok(order_of(&taking, buyer)?.map_or(Sale::SoldOut, Sale::Had));
            };
            taking.commit()?;
            Ok(Sale::Sold(number))
        })
    }

    pub(crate) fn order_of(&self, buyer: &str) -> rusqlite::Result<Option<i64>> {
        self.run(|connection| order_of(connection, buyer))
    }

    /// Number of orders, and number of items left on all shelves together.
    pub(crate) fn books(&self) -> rusqlite::Result<(i64, i64)> {
        let sql = "SELECT (SELECT count(*) FROM orders), (SELECT coalesce(sum(items), 0) FROM stock)";
        self.run(|connection| connection.query_row(sql, [], |row| Ok((row.get(0)?, row.get(1)?))))
    }

    fn run<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> rusqlite::Result<T> {
        work(&mut self.connection.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn order_of(connection: &Connection, buyer: &str) -> rusqlite::Result<Option<i64>> {
    let sql = "SELECT number FROM orders WHERE buyer = ?1";
    connection.query_row(sql, [buyer], |row| row.get(0)).optional()
}
