//! The SQL of the stock: once a later holder of the lock has looked at a shelf, an older holder can take nothing from
//! it.

#[path = "../src/shop/stock.rs"]
#[allow(dead_code, reason = "`sale.rs` uses the rest")]
mod stock;

use stock::{ITEMS, Sale, Stock};
use tempfile::TempDir;
use tenure::FencingToken;

/// A stock with one full shelf and one empty shelf.
fn open(folder: &TempDir) -> Stock {
    let shelves = ["full", "empty"].map(str::to_owned);
    let path = folder.path().join("shop.db");
    let stock = Stock::open(path.to_str().unwrap(), &shelves).unwrap();
    stock.restock(&shelves[..1]).unwrap();
    stock
}

#[test]
fn a_look_of_a_new_holder_stops_older_ones() {
    let folder = tempfile::tempdir().unwrap();
    let stock = open(&folder);
    let [old, new] = [5, 6].map(FencingToken::new);
    assert_eq!(stock.look("full", old).unwrap(), Some(ITEMS));
    assert_eq!(stock.look("full", new).unwrap(), Some(ITEMS));
    assert_eq!(
        stock.take("full", ITEMS - 1, "ann", old).unwrap(),
        Sale::Overtaken
    );
    assert_eq!(stock.books().unwrap(), (0, ITEMS), "nor is there an order");
    assert_eq!(stock.take("full", ITEMS - 1, "bob", new).unwrap(), Sale::Sold(1));
    assert_eq!(stock.look("full", old).unwrap(), None, "nor does it look again");
    assert_eq!(stock.books().unwrap(), (1, ITEMS - 1));
}

#[test]
fn a_new_sale_keeps_the_fence_of_the_shelf() {
    let folder = tempfile::tempdir().unwrap();
    let stock = open(&folder);
    let [old, new] = [5, 6].map(FencingToken::new);
    assert_eq!(stock.look("full", new).unwrap(), Some(ITEMS));
    stock.restock(&["full".to_owned()]).unwrap();
    assert_eq!(
        stock.take("full", ITEMS - 1, "ann", old).unwrap(),
        Sale::Overtaken
    );
}

#[test]
fn a_second_order_of_a_buyer_returns_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let stock = open(&folder);
    assert_eq!(stock.take("full", ITEMS - 1, "ann", None).unwrap(), Sale::Sold(1));
    assert_eq!(stock.take("full", ITEMS - 2, "ann", None).unwrap(), Sale::Had(1));
    assert_eq!(stock.books().unwrap(), (1, ITEMS - 1));
    assert_eq!(stock.look("empty", None).unwrap(), Some(0));
}
