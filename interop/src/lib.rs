//! Drives other lock clients, for tests. Not meant for users.

pub mod redisson;
