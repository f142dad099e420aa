//! A stream that keeps what the server said before it closed the connection.
//!
//! A server that refuses a client, such as `-DENIED Redis is running in protected mode`, sends the reason and closes the
//! connection. The client's login, a pipeline of calls, then fails with the end of the connection, or even before it has
//! read the reason.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use redis::RedisError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::stream::Stream;

/// The first bytes that the server sent.
#[derive(Clone, Default)]
pub(crate) struct FirstBytes(Arc<OnceLock<Vec<u8>>>);

impl FirstBytes {
    /// The server's first reply, if it was an error.
    pub(crate) fn refusal(&self) -> Option<RedisError> {
        let reply = redis::parse_redis_value(self.0.get()?).ok()?;
        reply.extract_error().err()
    }
}

/// Keeps the first bytes that are read. Discards what is written after the server has closed the connection, so that its
/// user goes on to read: a read then returns what has arrived, and after that the end of the connection or an error.
pub(crate) struct ReadAfterClose {
    stream: Stream,
    /// `None` once they were read.
    first: Option<FirstBytes>,
}

impl ReadAfterClose {
    pub(crate) fn new(stream: Stream, first: FirstBytes) -> Self {
        let first = Some(first);
        ReadAfterClose { stream, first }
    }
}

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

impl AsyncRead for ReadAfterClose {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if read.is_ready()
            && let Some(first) = self.first.take()
        {
            let _ = first.0.set(buffer.filled()[before..].to_vec());
        }
        read
    }
}

impl AsyncWrite for ReadAfterClose {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        unless_closed(Pin::new(&mut self.stream).poll_write(cx, bytes), bytes.len())
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_closed(Pin::new(&mut self.stream).poll_flush(cx), ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        unless_closed(Pin::new(&mut self.stream).poll_shutdown(cx), ())
    }
}
