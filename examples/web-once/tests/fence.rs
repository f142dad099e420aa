//! The line of SQL that keeps an answer: a holder that was overtaken replaces nothing.
//! Not here: how a holder is overtaken; `leader-worker` shows that.

#[path = "../src/orders.rs"]
mod orders;

use orders::Orders;
use tenure::FencingToken;

#[tokio::test]
async fn the_answer_of_the_later_holder_stays() {
    let folder = tempfile::tempdir().unwrap();
    let orders = Orders::open(folder.path().join("shop.db").to_str().unwrap()).unwrap();
    let keep = async |answer: &str, token| {
        orders
            .keep("k", answer.to_owned(), FencingToken::new(token))
            .await
            .unwrap()
    };
    assert_eq!(orders.answer("k").await.unwrap(), None);
    let charges = (
        orders.charge("k", "socks").await.unwrap(),
        orders.charge("k", "socks").await.unwrap(),
    );
    assert_eq!(charges, (1, 2), "each holder that charges is counted");

    assert_eq!(keep("of 34", 34).await, "of 34");
    assert_eq!(keep("of 33", 33).await, "of 34", "33 was overtaken");
    assert_eq!(orders.answer("k").await.unwrap().as_deref(), Some("of 34"));
    assert_eq!(keep("of 35", 35).await, "of 35");
}
