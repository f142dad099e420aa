//! Redisson and Tenure on one Redis: a Java fleet notices nothing. Each test says which side does what.

mod command;
mod counter;
mod eviction;
#[path = "../../../examples/scene.rs"]
mod examples;
mod fair;
mod lease;
mod mutex;
mod scene;
mod waiter;
mod waking;
mod wire;
