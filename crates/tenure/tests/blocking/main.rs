//! The blocking API: locks on threads, calls that never block an async worker, and guards whose drop never waits. The
//! tests in `tests/engine` cover what the blocking and the async API share.

mod changes;
mod election;
mod fixture;
mod locks;
mod loss;
mod twins;
mod workers;
