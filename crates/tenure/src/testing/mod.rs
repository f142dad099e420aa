//! Support for tests of programs that use locks: an in-memory store that can lose locks, become unavailable and advance
//! its time. Locks, guards and the engine are the same as in production.
//!
//! **How to test that my job stops when its lock is lost.**
//! ```
//! use std::time::Duration;
//! use tenure::testing::Lab;
//! use tenure::{Client, Error};
//!
//! /// The program under test.
//! async fn job(client: Client) -> Result<(), Error> {
//!     let guard = client.mutex("nightly").lock().await?;
//!     guard.while_held(std::future::pending::<()>()).await?;
//!     guard.unlock().await
//! }
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() {
//! let lab = Lab::new();
//! let running = tokio::spawn(job(lab.client()));
//! lab.advance(Duration::from_secs(300)).await;
//! assert_eq!(lab.holders("nightly").len(), 1, "it renews its lease");
//!
//! lab.lose("nightly");
//! let stopped = running.await.expect("it does not panic");
//! assert!(matches!(stopped, Err(Error::Lost(_))));
//! # }
//! ```
//!
//! **How to test that my resource refuses stale tokens.** One lab can have many clients, each a service of its own:
//! ```
//! use tenure::fenced::FencedCell;
//! use tenure::testing::Lab;
//!
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tenure::Error> {
//! let lab = Lab::new();
//! let (paused, other) = (lab.client(), lab.client());
//! let balance = FencedCell::new(0); // the resource under test
//!
//! let old = paused.mutex("account:7").lock().await?;
//! lab.lose("account:7");
//! let new = other.mutex("account:7").lock().await?;
//! balance.write(new.token().unwrap(), 100).expect("the holder may write");
//! balance.write(old.token().unwrap(), 1).expect_err("an old holder may not");
//! assert_eq!(balance.read(), 100);
//! # Ok(()) }
//! ```

mod backend;
mod clock;
mod lab;

pub use lab::Lab;

use crate::settings::Settings;

/// Derives a client's ID and the jitter of its timers from `seed`, so that a test can be repeated exactly.
///
/// Two clients with the same seed have the same ID, and release each other's locks.
///
/// # Examples
/// ```
/// use tenure::{Settings, testing::seeded};
///
/// let settings = seeded(Settings::default(), [7; 16]);
/// ```
pub fn seeded(settings: Settings, seed: [u8; 16]) -> Settings {
    let seed = Some(seed);
    Settings { seed, ..settings }
}
