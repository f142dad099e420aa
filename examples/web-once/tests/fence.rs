//! The SQL that charges and that stores an answer: an overtaken holder cannot charge twice or replace an answer.

#[path = "../src/orders.rs"]
mod orders;

use orders::Orders;
use tempfile::TempDir;
use tenure::FencingToken;

fn open(folder: &TempDir) -> Orders {
    Orders::open(folder.path().join("shop.db").to_str().unwrap()).unwrap()
}

#[tokio::test]
async fn a_key_is_charged_once_by_any_holder() {
    let folder = tempfile::tempdir().unwrap();
    let (orders, overtaken) = (open(&folder), open(&folder));
    let first = (1, "socks".to_owned());
    assert_eq!(orders.charge("k", "socks").await.unwrap(), first);
    assert_eq!(overtaken.charge("k", "shoes").await.unwrap(), first);
    assert_eq!(
        orders.charge("l", "shoes").await.unwrap(),
        (2, "shoes".to_owned())
    );
}

#[tokio::test]
async fn the_answer_of_the_later_holder_stays() {
    let folder = tempfile::tempdir().unwrap();
    let orders = open(&folder);
    let keep = async |answer: &str, token| {
        orders
            .keep("k", answer.to_owned(), FencingToken::new(token))
            .await
            .unwrap()
    };
    assert_eq!(orders.answer("k").await.unwrap(), None);
    assert_eq!(keep("of 34", 34).await, "of 34");
    assert_eq!(keep("of 33", 33).await, "of 34", "33 was overtaken");
    assert_eq!(orders.answer("k").await.unwrap().as_deref(), Some("of 34"));
    assert_eq!(keep("of 35", 35).await, "of 35");
}
