#![doc = include_str!("../../../docs/guides/sharing-with-redis-py.md")]
