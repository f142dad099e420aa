#![doc = include_str!("../../../docs/guides/coming-from-redisson.md")]
