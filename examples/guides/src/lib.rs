//! Compiles and runs the Rust code of `docs/guides` and of the README, each page as the documentation of a module.
//! `tests/commands.rs` runs the shell commands of the guides.

mod choosing_a_lock;
mod coming_from_curator;
mod coming_from_flock;
mod coming_from_redisson;
mod readme;
mod redis_behind_sentinel;
mod redis_cluster;
mod sharing_with_redis_py;
mod sharing_with_spring;
mod testing_code_that_holds_locks;
mod what_a_lock_cannot_do;
