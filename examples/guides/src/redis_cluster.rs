#![doc = include_str!("../../../docs/guides/redis-cluster.md")]
