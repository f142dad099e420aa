#![doc = include_str!("../../../docs/guides/sharing-with-spring.md")]
