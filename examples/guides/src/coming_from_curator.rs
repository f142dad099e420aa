#![doc = include_str!("../../../docs/guides/coming-from-curator.md")]
