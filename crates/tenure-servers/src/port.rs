//! Ports that nobody listens on.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};

/// Below those that the system gives to outgoing connections: a client that tries a server which is down could otherwise be
/// given that very port, and connect to itself, and the server could not come back.
const PORTS: std::ops::Range<u16> = 12_000..32_000;

/// How many ports are tried.
const TRIES: u32 = 100;

/// A free port of the loopback. Somebody else may take it before it is used: then starting fails, and another is tried.
pub(crate) fn free() -> io::Result<SocketAddr> {
    let mut last = io::Error::other("no port was tried");
    for _ in 0..TRIES {
        let chance = RandomState::new().hash_one(0) % u64::from(PORTS.end - PORTS.start);
        let port = PORTS.start + chance as u16;
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return listener.local_addr(),
            Err(error) => last = error,
        }
    }
    Err(last)
}
