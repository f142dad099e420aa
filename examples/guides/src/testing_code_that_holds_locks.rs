#![doc = include_str!("../../../docs/guides/testing-code-that-holds-locks.md")]
