//! A long line to a server: what is said over it arrives later, both ways.

use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_servers::{Proxy, Way};
use tokio::sync::oneshot;

use crate::Fallible;

/// How much later it arrives at the least. The timers behind it are set to the millisecond: it may be another one.
const DELAY: Duration = Duration::from_millis(1);

/// It ends with this.
pub(crate) struct Line {
    address: SocketAddr,
    end: Option<oneshot::Sender<()>>,
    carrier: Option<JoinHandle<()>>,
}

impl Line {
    /// Lays a line to the server at that address, carried by a thread of its own.
    pub(crate) fn lay(server: SocketAddr) -> Fallible<Line> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let (laid, address) = std::sync::mpsc::channel();
        let (end, ended) = oneshot::channel();
        let carrier = std::thread::spawn(move || {
            runtime.block_on(async {
                let proxy = match Proxy::start(server).await {
                    Ok(proxy) => proxy,
                    Err(error) => return drop(laid.send(Err(error))),
                };
                proxy.delay(Way::ToServer, DELAY);
                proxy.delay(Way::ToClient, DELAY);
                let _ = laid.send(Ok(proxy.address()));
                let _ = ended.await;
            });
        });
        let address = address.recv().map_err(|_| "the line's thread has ended")??;
        Ok(Line {
            address,
            end: Some(end),
            carrier: Some(carrier),
        })
    }

    /// Where the server is to be called.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(carrier) = self.carrier.take() {
            let _ = carrier.join();
        }
    }
}
