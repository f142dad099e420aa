#![doc = include_str!("../../../docs/guides/choosing-a-lock.md")]
