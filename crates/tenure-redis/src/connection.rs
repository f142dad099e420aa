//! The connection to the server, from bytes to calls of scripts.
//!
//! `dial` finds the server, `stream` opens a TCP or TLS stream, `spin` polls it for quick replies, and
//! `read_after_close` reads why a server closed it. `driver` logs
//! in; `connect_error` has the errors of connecting. `wire` is one connection, on which calls are pipelined; `traffic` counts
//! them, and records when the server last sent something. `session` limits the calls of many callers, and `batch` puts many claims
//! into one call; `concurrency` limits the batches in flight. `greeting` has the first calls, and the server's role;
//! `recovery` lets a restarted server place no claim while claims that it has forgotten may be held. `link` replaces a session that ended. `sentinel` finds the master, and
//! notices when another server becomes the master. `acknowledge` asks replicas for acknowledgements.

pub(crate) mod acknowledge;
pub(crate) mod batch;
pub(crate) mod concurrency;
pub(crate) mod connect_error;
pub(crate) mod dial;
pub(crate) mod driver;
pub(crate) mod greeting;
pub(crate) mod link;
pub(crate) mod read_after_close;
pub(crate) mod recovery;
pub(crate) mod sentinel;
pub(crate) mod session;
pub(crate) mod spin;
pub(crate) mod stream;
pub(crate) mod traffic;
pub(crate) mod wire;
