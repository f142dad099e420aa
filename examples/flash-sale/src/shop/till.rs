//! The till: a buyer looks at the shelf, thinks for a moment, and takes an item. Its methods block.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread::sleep;
use std::time::Duration;

use tenure::FencingToken;

use super::stock::{Sale, Stock};

/// Stock from which this shop sells, and the shop's counters.
pub(crate) struct Till {
    pub(crate) stock: Stock,
    thinking: AtomicU64,
    at_once: AtomicU64,
    overtaken: AtomicU64,
}

impl Till {
    pub(crate) fn new(stock: Stock) -> Till {
        Till {
            stock,
            thinking: AtomicU64::new(0),
            at_once: AtomicU64::new(0),
            overtaken: AtomicU64::new(0),
        }
    }

    /// Starts a sale on these shelves, and counts from 0.
    pub(crate) fn restock(&self, shelves: &[String]) -> rusqlite::Result<()> {
        self.at_once.store(0, Relaxed);
        self.overtaken.store(0, Relaxed);
        self.stock.restock(shelves)
    }

    /// Sells one item of a shelf, fenced if there is a token. A buyer that asks again gets the order that it has.
    pub(crate) fn sell(
        &self,
        shelf: &str,
        buyer: &str,
        token: Option<FencingToken>,
        think: Duration,
    ) -> rusqlite::Result<Sale> {
        if let Some(number) = self.stock.order_of(buyer)? {
            return Ok(Sale::Had(number));
        }
        match self.stock.look(shelf, token)? {
            None => Ok(self.noted(Sale::Overtaken)),
            Some(..=0) => Ok(Sale::SoldOut),
            Some(items) => {
                let _thinking = self.begin_to_think();
                // Stands for a slow step, such as a payment, which makes a sale much slower than its SQL.
                sleep(think);
                Ok(self.noted(self.stock.take(shelf, items - 1, buyer, token)?))
            }
        }
    }

    fn noted(&self, sale: Sale) -> Sale {
        if sale == Sale::Overtaken {
            self.overtaken.fetch_add(1, Relaxed);
        }
        sale
    }

    fn begin_to_think(&self) -> Thinking<'_> {
        let thinking = self.thinking.fetch_add(1, Relaxed) + 1;
        self.at_once.fetch_max(thinking, Relaxed);
        Thinking(&self.thinking)
    }

    /// One line each: the process ID, the number of buyers that think now, its maximum so far, and the number of
    /// overtaken sales, which failed because a later holder of the lock had used the shelf.
    pub(crate) fn report(&self) -> String {
        let [thinking, at_once, overtaken] =
            [&self.thinking, &self.at_once, &self.overtaken].map(|count| count.load(Relaxed));
        let pid = std::process::id();
        format!("pid {pid}\nthinking {thinking}\nat-once {at_once}\novertaken {overtaken}\n")
    }
}

/// A buyer that thinks between look and update. Counted until dropped.
struct Thinking<'a>(&'a AtomicU64);

impl Drop for Thinking<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
