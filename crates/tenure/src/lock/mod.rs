//! The lock handles: a key, some options, and the methods that acquire.

pub(crate) mod any;
pub(crate) mod election;
pub(crate) mod multi;
pub(crate) mod mutex;
pub(crate) mod options;
pub(crate) mod rwlock;
pub(crate) mod scope;
pub(crate) mod semaphore;
pub(crate) mod striped;
