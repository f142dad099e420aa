//! The statements of the stock: who was overtaken takes nothing, from the moment on at which another has looked.

#[path = "../src/shop/stock.rs"]
#[allow(dead_code, reason = "the books are `sale.rs`'s")]
mod stock;

use stock::{ITEMS, Sale, Stock};
use tempfile::TempDir;
use tenure::FencingToken;

/// One shelf with all items, and another that is empty.
fn open(folder: &TempDir) -> Stock {
    let shelves = ["full", "empty"].map(str::to_owned);
    let path = folder.path().join("shop.db");
    let stock = Stock::open(path.to_str().unwrap(), &shelves).unwrap();
    stock.restock(&shelves[..1]).unwrap();
    stock
}

#[test]
fn who_was_overtaken_takes_nothing_although_the_new_holder_has_only_looked() {
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
fn a_new_sale_keeps_the_fence_of_the_last() {
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
fn a_second_order_of_one_buyer_is_his_first_and_takes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let stock = open(&folder);
    assert_eq!(stock.take("full", ITEMS - 1, "ann", None).unwrap(), Sale::Sold(1));
    assert_eq!(stock.take("full", ITEMS - 2, "ann", None).unwrap(), Sale::Had(1));
    assert_eq!(stock.books().unwrap(), (1, ITEMS - 1));
    assert_eq!(stock.look("empty", None).unwrap(), Some(0));
}
