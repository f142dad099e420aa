//! Redisson and Tenure on one Redis, beyond the cases of all clients in tests/clients. The names of the tests say which
//! side does what.

mod command;
mod eviction;
#[path = "../../../examples/fixture.rs"]
mod examples;
mod fair;
mod fixture;
mod lease;
mod mutex;
mod waiter;
mod waking;
mod wire;
