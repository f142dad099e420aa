//! Ports that nobody listens on.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// A free port of the loopback. Somebody else may take it before it is used: then starting fails, and another is tried.
pub(crate) fn free() -> io::Result<SocketAddr> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()
}
