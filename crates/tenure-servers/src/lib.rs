//! Real servers for tests: each on a free port of the loopback, in a temporary folder, ended with the test that started it;
//! and the faults that can be done to them: pause, kill, restart with and without data, a clock that steps, and a proxy that
//! delays, holds, swallows and cuts what is on the wire.

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
