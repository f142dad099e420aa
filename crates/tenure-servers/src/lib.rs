//! Real servers for tests, each on a free port of the loopback and in a temporary folder, which end with their test. Tests
//! can inject faults: pause, kill, restart with or without data, a clock that steps, and a proxy that delays, holds, drops
//! and cuts the traffic.

mod clock;
mod needs;
mod process;
mod proxy;
mod redis;

pub use clock::SteppedClock;
pub use needs::{is_installed, needs};
pub use process::Process;
pub use proxy::{Proxy, Way};
pub use redis::{Data, Disk, Redis};
