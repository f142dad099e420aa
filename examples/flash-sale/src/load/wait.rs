//! Waits for the shops: whoever starts them and the load together need not know when they listen.
//! Not here: what is asked of them then (`trial`).

use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::http::ask;
use crate::Fault;

/// How long a shop is waited for, and how often it is asked meanwhile. It may have to wait for others that open with it.
const OPENING: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(50);

/// Waits until each shop answers.
///
/// # Errors
/// If one does not within `OPENING`.
pub(crate) async fn until_all_answer(shops: &[String]) -> Result<(), Fault> {
    for shop in shops {
        let end = Instant::now() + OPENING;
        while let Err(error) = answers(shop, end).await {
            if Instant::now() >= end {
                let waited = OPENING.as_secs();
                return Err(format!("the shop {shop} has not answered for {waited} s: {error}").into());
            }
            sleep(PAUSE).await;
        }
    }
    Ok(())
}

async fn answers(shop: &str, by: Instant) -> Result<(), Fault> {
    timeout_at(by, ask(shop, "GET /till", &[])).await??;
    Ok(())
}
