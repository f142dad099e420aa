//! Ports for servers. Test programs run in parallel, so a port is reserved among all of them: no two servers get the
//! same port, and a server that is down for a while keeps its own.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};

/// Ports below those that the system gives to outgoing connections. Otherwise a client that connects to a stopped
/// server could get the server's own port, connect to itself, and block the server's restart. The port that is
/// [`BUS`] above each belongs to it, and is not given to outgoing connections either.
const PORTS: Range<u16> = 12_000..22_000;

/// Distance from the port of a node of a Redis Cluster to that of its cluster bus.
pub(crate) const BUS: u16 = 10_000;

/// Number of ports to try.
const TRIES: u32 = 100;

/// A free port of the loopback. Until this is dropped, no other `Port` of any process has the same number.
#[derive(Debug)]
pub struct Port {
    address: SocketAddr,
    /// An abstract Unix socket named after the port: a second bind of its name fails in every process, and the system
    /// closes it when this process ends.
    _reservation: UnixListener,
}

impl Port {
    /// Reserves a random port that no process listens on.
    ///
    /// # Errors
    /// The system's last error, if no port of those that were tried is free.
    pub fn reserve() -> io::Result<Port> {
        let mut last = io::Error::other("no port was tried");
        for _ in 0..TRIES {
            let chance = RandomState::new().hash_one(0) % u64::from(PORTS.end - PORTS.start);
            match Self::reserve_this(PORTS.start + chance as u16) {
                Ok(port) => return Ok(port),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn reserve_this(number: u16) -> io::Result<Port> {
        let name = UnixAddr::from_abstract_name(format!("tenure-servers-port-{number}"))?;
        let reservation = UnixListener::bind_addr(&name)?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, number));
        // Fails if another program listens there.
        TcpListener::bind(address)?;
        Ok(Port {
            address,
            _reservation: reservation,
        })
    }

    /// The loopback address with this port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_reserved_until_it_is_dropped() {
        let port = Port::reserve().unwrap();
        let number = port.address().port();
        let refused = Port::reserve_this(number).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(port);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, number)).unwrap();
        assert_eq!(
            Port::reserve_this(number).unwrap_err().kind(),
            io::ErrorKind::AddrInUse
        );
        drop(listener);
        Port::reserve_this(number).unwrap();
    }
}
