#![doc = include_str!("../../../docs/guides/redis-behind-sentinel.md")]
