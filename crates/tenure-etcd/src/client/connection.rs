//! A connection of HTTP/2 that serves tonic. It says of each request that failed whether it was sent.

use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::{FutureExt, TryFutureExt};
use http::{Request, Response, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tenure_backend::BackendError;
use tenure_endpoint::{Dialer, Host};
use tonic::body::Body;
use tonic::client::GrpcService;

use crate::error::{Words, deepest, invalid};

/// A ping is sent when nothing has arrived for this time. etcd closes connections that ping more often than every 5 s, or
/// while no request and no stream is open.
const PING_AFTER: Duration = Duration::from_secs(6);

/// A connection ends when a ping is not answered within this time.
const PING_LIMIT: Duration = Duration::from_secs(2);

/// A connection. It ends when all copies and all its streams are dropped.
#[derive(Clone)]
pub(super) struct Connection {
    /// Scheme, host and port.
    pub(super) origin: Uri,
    requests: SendRequest<Body>,
}

impl Connection {
    /// Connects to a member. It may not answer yet.
    pub(super) async fn dial(dialer: &Dialer, is_secure: bool, host: &Host) -> Result<Self, BackendError> {
        // Go's HTTP/2 takes the user from the client's certificate only if the scheme is `https`.
        let scheme = if is_secure { "https" } else { "http" };
        let origin = format!("{scheme}://{host}").parse();
        let origin: Uri = origin.map_err(|_| invalid(format!("{host} is not the name of a host")))?;
        let stream = dialer.dial(host).await?;
        let opened = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_LIMIT)
            .handshake(TokioIo::new(stream));
        let (requests, driver) = opened.await.map_err(|error| dialer.unreachable(host, &error))?;
        // Its requests and streams report why it has ended.
        tokio::spawn(driver.map(drop));
        Ok(Connection { origin, requests })
    }
}

impl GrpcService<Body> for Connection {
    type ResponseBody = Incoming;
    type Error = Words;
    type Future = BoxFuture<'static, Result<Response<Incoming>, Words>>;

    /// A request that is sent too late fails in `call`.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Words>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let sending = self.requests.try_send_request(request);
        let sent = sending.map_err(|failed| Words {
            // The request comes back if it was not sent, because the connection had ended.
            was_sent: failed.message().is_none(),
            text: deepest(failed.error()).to_string(),
        });
        sent.boxed()
    }
}
