//! Connects to a host that has several addresses, of which some may not answer.

use std::future::{Future, poll_fn};
use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time that an address has before the next one is tried too. RFC 8305 recommends 250 ms, and 100 ms at least: the shorter
/// one, because a caller's time limit may be short.
const HEAD_START: Duration = Duration::from_millis(100);

/// Connects to the first of a host's addresses that accepts, with `TCP_NODELAY`.
///
/// An address that drops packets would use up any time limit of the caller. So if an address has not answered after 100 ms,
/// the next one is tried as well, while the attempt at the first goes on. Once all attempts have failed, the next address is
/// tried at once.
///
/// Sets no time limit.
///
/// # Cancel safety
/// Dropping the future ends all attempts.
///
/// # Errors
/// The error of an address that refuses the connection; or else of the first one, such as that of a machine without a route
/// to it.
///
/// # Examples
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> std::io::Result<()> {
/// use tenure_endpoint::first_to_accept;
///
/// let server = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
/// let address = server.local_addr()?;
/// // No server listens on port 1.
/// let stream = first_to_accept(&["127.0.0.1:1".parse().expect("an address"), address]).await?;
/// assert_eq!(stream.peer_addr()?, address);
/// # Ok(()) }
/// ```
pub async fn first_to_accept(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let (mut attempts, mut failure) = (Vec::new(), None);
    for address in addresses {
        if !attempts.is_empty()
            && let Ok(Some(stream)) = timeout(HEAD_START, first_open(&mut attempts, &mut failure)).await
        {
            return Ok(stream);
        }
        attempts.push(Box::pin(open(*address)));
    }
    let opened = first_open(&mut attempts, &mut failure).await;
    let no_address = || io::Error::new(ErrorKind::InvalidInput, "the host has no address");
    opened.ok_or_else(|| failure.unwrap_or_else(no_address))
}

async fn open(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Waits for the first attempt that succeeds. Removes attempts that fail, and returns `None` once none is left.
async fn first_open<F: Future<Output = io::Result<TcpStream>>>(
    attempts: &mut Vec<Pin<Box<F>>>,
    failure: &mut Option<io::Error>,
) -> Option<TcpStream> {
    poll_fn(|context| {
        let mut at = 0;
        while let Some(attempt) = attempts.get_mut(at) {
            match attempt.as_mut().poll(context) {
                Poll::Ready(Ok(stream)) => return Poll::Ready(Some(stream)),
                Poll::Ready(Err(error)) => {
                    drop(attempts.remove(at));
                    if failure.as_ref().is_none_or(|earlier| tells_more(&error, earlier)) {
                        *failure = Some(error);
                    }
                }
                Poll::Pending => at += 1,
            }
        }
        match attempts.is_empty() {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    })
    .await
}

/// Returns whether an error says more about the server than an earlier one. Only a refusal comes from the server's machine;
/// the others, such as a missing route, are found on the way to it.
fn tells_more(error: &io::Error, earlier: &io::Error) -> bool {
    let is_refusal = |error: &io::Error| error.kind() == ErrorKind::ConnectionRefused;
    is_refusal(error) && !is_refusal(earlier)
}

#[cfg(test)]
mod tests {
    use tokio::net::{TcpListener, TcpSocket};

    use super::*;

    /// A limit that only a failing test reaches.
    const SOON: Duration = Duration::from_secs(10);

    /// An address that drops the packets of new connections: its queue of connections is full.
    struct Silent {
        address: SocketAddr,
        _listener: TcpListener,
        _queued: Vec<TcpStream>,
    }

    impl Silent {
        async fn new() -> Self {
            let socket = TcpSocket::new_v4().expect("a socket");
            let any = "127.0.0.1:0".parse().expect("an address");
            socket.bind(any).expect("a port is free");
            let listener = socket.listen(1).expect("it listens");
            let address = listener.local_addr().expect("it has an address");
            let mut queued = Vec::new();
            while let Ok(opened) = timeout(Duration::from_millis(500), TcpStream::connect(address)).await {
                queued.push(opened.expect("the queue has room"));
                assert!(queued.len() < 10, "the queue is never full");
            }
            Silent {
                address,
                _listener: listener,
                _queued: queued,
            }
        }
    }

    async fn serving() -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await;
        let listener = listener.expect("a port is free");
        let address = listener.local_addr().expect("it has an address");
        (listener, address)
    }

    async fn refusing() -> SocketAddr {
        serving().await.1
    }

    async fn connect(addresses: &[SocketAddr]) -> io::Result<SocketAddr> {
        let opened = timeout(SOON, first_to_accept(addresses)).await;
        opened.expect("it ends soon")?.peer_addr()
    }

    #[tokio::test]
    async fn an_address_that_drops_packets_is_passed_over() {
        let silent = Silent::new().await;
        let (_listener, address) = serving().await;
        for addresses in [
            &[silent.address, address][..],
            &[silent.address, refusing().await, silent.address, address],
            &[address, silent.address],
        ] {
            assert_eq!(connect(addresses).await.expect("one accepts"), address);
        }
    }

    /// A host far away may answer after the next address was tried.
    #[tokio::test]
    async fn an_address_that_answers_late_is_not_given_up() {
        let mut silent = Silent::new().await;
        let late = silent.address;
        let connecting = tokio::spawn(async move { connect(&[late, refusing().await]).await });
        // sleep: no event shows that the second address was tried.
        tokio::time::sleep(3 * HEAD_START).await;
        assert!(!connecting.is_finished());
        while silent._queued.pop().is_some() {
            silent._listener.accept().await.expect("a connection");
        }
        let connected = connecting.await.expect("no panic");
        assert_eq!(connected.expect("it answers at last"), late);
    }

    #[tokio::test]
    async fn a_refusal_hides_other_errors() {
        let refusing = refusing().await;
        // TCP cannot connect to all machines at once.
        let broadcast: SocketAddr = "255.255.255.255:1".parse().expect("an address");
        let error = connect(&[broadcast]).await.expect_err("none accepts");
        assert_ne!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        for addresses in [&[refusing, broadcast][..], &[broadcast, refusing]] {
            let error = connect(addresses).await.expect_err("none accepts");
            assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
        }
        let error = connect(&[]).await.expect_err("there is none");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
    }
}
