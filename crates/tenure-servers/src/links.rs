//! The network between the members of a cluster, which a test can cut. Every member knows every other by one address, so
//! each connection is led through a proxy of its own pair of members, by the process that opened it.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, spawn_blocking};

use crate::proxy::{Proxy, Way};

/// The proxies between members. Dropping this closes their connections.
#[derive(Debug)]
pub(crate) struct Links {
    /// For each member and each other one, the proxy for connections that the first opens to the second.
    proxies: Vec<Vec<Proxy>>,
    processes: Arc<Mutex<Vec<u32>>>,
    accepting: Vec<AbortHandle>,
}

impl Links {
    /// Starts proxies for members that listen at these addresses. Returns them, and the addresses at which the members can
    /// reach each other.
    pub(crate) async fn start(members: &[SocketAddr]) -> io::Result<(Links, Vec<SocketAddr>)> {
        let mut proxies = Vec::new();
        for _ in members {
            let mut of_member = Vec::new();
            for other in members {
                of_member.push(Proxy::start(*other).await?);
            }
            proxies.push(of_member);
        }
        let processes: Arc<Mutex<Vec<u32>>> = Arc::new(Mutex::new(vec![0; members.len()]));
        let (mut accepting, mut addresses) = (Vec::new(), Vec::new());
        for number in 0..members.len() {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
            addresses.push(listener.local_addr()?);
            let ways = proxies
                .iter()
                .map(|of_member| of_member[number].address())
                .collect();
            let accept = accept(listener, ways, processes.clone());
            accepting.push(tokio::spawn(accept).abort_handle());
        }
        let links = Links {
            proxies,
            processes,
            accepting,
        };
        Ok((links, addresses))
    }

    /// Notes the process of a member. Until then, the member reaches no other.
    pub(crate) fn set_process(&self, number: usize, process: u32) {
        self.processes.lock()[number] = process;
    }

    /// Keeps back what a member and the others send to each other, until `heal`.
    pub(crate) fn cut_off(&self, number: usize) {
        for other in 0..self.proxies.len() {
            for proxy in [&self.proxies[number][other], &self.proxies[other][number]] {
                proxy.hold(Way::ToServer);
                proxy.hold(Way::ToClient);
            }
        }
    }

    pub(crate) fn heal(&self) {
        self.proxies.iter().flatten().for_each(Proxy::heal);
    }
}

impl Drop for Links {
    fn drop(&mut self) {
        self.accepting.iter().for_each(AbortHandle::abort);
    }
}

/// Leads each connection to the proxy for the member that opened it.
async fn accept(listener: TcpListener, ways: Vec<SocketAddr>, processes: Arc<Mutex<Vec<u32>>>) {
    while let Ok((mut from, address)) = listener.accept().await {
        let (processes, ways) = (processes.lock().clone(), ways.clone());
        tokio::spawn(async move {
            // The system's table is long after many tests, so reading it must not hold up the other connections.
            let opener = spawn_blocking(move || opener(&processes, address)).await;
            let Ok(Some(member)) = opener else {
                return Ok((0, 0));
            };
            let mut to = TcpStream::connect(ways[member]).await?;
            let _ = (from.set_nodelay(true), to.set_nodelay(true));
            tokio::io::copy_bidirectional(&mut from, &mut to).await
        });
    }
}

/// The process among these that has a connection with this local address.
fn opener(processes: &[u32], local: SocketAddr) -> Option<usize> {
    let SocketAddr::V4(local) = local else {
        return None;
    };
    // The system shows the address as a number of this machine, and the port as its digits.
    let local = format!(
        "{:08X}:{:04X}",
        u32::from_ne_bytes(local.ip().octets()),
        local.port()
    );
    let table = std::fs::read_to_string("/proc/self/net/tcp").ok()?;
    // Only the line that is looked for is split into its columns: the table is long after many tests.
    let mut lines = table.lines().filter_map(|line| line.split_once(": "));
    let (_, line) = lines.find(|(_, line)| line.starts_with(&local))?;
    let socket = format!("socket:[{}]", line.split_whitespace().nth(8)?);
    let owns = |process: &u32| {
        let open = std::fs::read_dir(format!("/proc/{process}/fd"));
        let mut open = open.into_iter().flatten().flatten();
        open.any(|file| std::fs::read_link(file.path()).is_ok_and(|target| target.as_os_str() == &*socket))
    };
    processes.iter().position(owns)
}
