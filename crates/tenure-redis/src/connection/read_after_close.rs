//! A stream that keeps what the server said before it closed the connection.
//!
//! A server that refuses a client, such as `-DENIED Redis is running in protected mode`, sends the reason and closes the
//! connection. The client's login, a pipeline of calls, then fails with the end of the connection, or even before it has
//! read the reason. With TLS 1.3 the reason can be an alert: a server judges a client's certificate after the handshake.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use tenure_backend::BackendError;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::connection::connect_error::{ConnectError, certificate_refused};
use crate::connection::stream::Stream;

/// What the first read returned: bytes, or an alert about the client's certificate. Empty after any other error.
#[derive(Clone, Default)]
pub(crate) struct FirstRead(Arc<OnceLock<Result<Vec<u8>, BackendError>>>);

impl FirstRead {
    /// The server's refusal: its alert, or its first reply if that was an error.
    pub(crate) fn refusal(&self) -> Option<ConnectError> {
        match self.0.get()? {
            Err(alert) => Some(alert.clone().into()),
            Ok(bytes) => {
                let reply = redis::parse_redis_value(bytes).ok()?;
                reply.extract_error().err().map(ConnectError::from)
            }
        }
    }
}

/// Keeps what the first read returns. Discards what is written after the server has closed the connection, so that its
/// user goes on to read: a read then returns what has arrived, and after that the end of the connection or an error.
pub(crate) struct ReadAfterClose {
    stream: Stream,
    /// `None` once they were read.
    first: Option<FirstRead>,
}

impl ReadAfterClose {
    pub(crate) fn new(stream: Stream, first: FirstRead) -> Self {
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
        if let Poll::Ready(done) = &read
            && let Some(first) = self.first.take()
        {
            let kept = match done {
                Ok(()) => Some(Ok(buffer.filled()[before..].to_vec())),
                Err(error) => certificate_refused(error).map(Err),
            };
            kept.map(|kept| first.0.set(kept));
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
