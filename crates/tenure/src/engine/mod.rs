//! Everything below the lock handles: queues, calls, renewals and releases of one client.
//!
//! Imports run one way, from left to right: `attempt` -> `own_call` -> `queue` -> `poller`, `releaser`, `renewer` ->
//! `in_flight` -> `hold` -> `context` -> the store.

pub(crate) mod attempt;
pub(crate) mod context;
pub(crate) mod deadline;
pub(crate) mod hold;
pub(crate) mod in_flight;
pub(crate) mod invalidated;
pub(crate) mod invalidations;
pub(crate) mod own_call;
pub(crate) mod own_thread;
pub(crate) mod owner;
pub(crate) mod poller;
pub(crate) mod queue;
pub(crate) mod releaser;
pub(crate) mod renewer;
pub(crate) mod request;
pub(crate) mod root;
pub(crate) mod schedule;
pub(crate) mod services;
pub(crate) mod store;
pub(crate) mod tasks;
pub(crate) mod timer;
pub(crate) mod wheel;

pub(crate) use root::Engine;
