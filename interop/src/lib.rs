//! Other people's clients, driven by tests. Nothing here is for users.

pub mod redisson;
