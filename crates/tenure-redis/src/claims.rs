//! Claims as this client and Redis know them: the client's table, the names and slots of keys, the scripts, their
//! arguments and replies, and the server's refusals.

pub(crate) mod arguments;
pub(crate) mod names;
pub(crate) mod refusal;
pub(crate) mod reply;
pub(crate) mod script;
pub(crate) mod slot;
pub(crate) mod table;
