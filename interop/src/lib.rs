//! Lets tests control the lock clients of other projects. Not meant for users.

pub mod redisson;
