//! The group `lease`: leases, their renewal, and the local deadline that a client derives from them.

mod deadline;
mod expiry;

pub use deadline::*;
pub use expiry::*;
