//! Redisson and Tenure on one Redis: Java clients see no difference. The names of the tests say which side does what.

mod command;
mod counter;
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
