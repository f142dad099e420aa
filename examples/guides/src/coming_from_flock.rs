#![doc = include_str!("../../../docs/guides/coming-from-flock.md")]
