//! A stream that reads what the server sent before it closed the connection.
//!
//! A server that refuses a client, such as `-DENIED Redis is running in protected mode`, sends the reason and closes the
//! connection. The client's first write then fails before it has read the reason.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Discards what is written after the server has closed the connection, so that its user goes on to read. A read then
/// returns what has arrived, and after that the end of the connection or an error.
pub(crate) struct ReadAfterClose<S>(pub(crate) S);

/// Returns `done` instead of the error of a connection that the server has closed.
fn unless_closed<T>(result: Poll<io::Result<T>>, done: T) -> Poll<io::Result<T>> {
    match result {
        Poll::Ready(Err(error))
            if matches!(
                error.kind(),
                io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
            ) =>
        {
            Poll::Ready(Ok(done))
        }
        other => other,
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for ReadAfterClose<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for ReadAfterClose<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        unless_closed(Pin::new(&mut self.0).poll_write(cx, bytes), bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_closed(Pin::new(&mut self.0).poll_flush(cx), ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_closed(Pin::new(&mut self.0).poll_shutdown(cx), ())
    }
}
