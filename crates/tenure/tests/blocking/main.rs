//! The blocking API: locks on threads, which never block an async worker, and guards whose drop never waits. The tests of
//! the engine cover what all APIs share.

mod changes;
mod election;
mod fixture;
mod locks;
mod loss;
mod workers;
