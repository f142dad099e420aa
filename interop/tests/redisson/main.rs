//! Redisson and Tenure on one Redis: a Java fleet notices nothing. Each test says which side does what.

mod command;
mod counter;
mod eviction;
mod fair;
mod lease;
mod mutex;
#[path = "../../../examples/scene.rs"]
mod process;
mod scene;
mod waiter;
mod waking;
mod wire;
