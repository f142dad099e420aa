#![doc = include_str!("../../../docs/guides/what-a-lock-cannot-do.md")]
