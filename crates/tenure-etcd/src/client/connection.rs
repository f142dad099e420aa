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
use tenure_endpoint::{Host, addresses};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tonic::body::Body;
use tonic::client::GrpcService;

use crate::error::{Words, deepest, invalid, unknown_host, unreachable};
use crate::tls::{Connector, secure};

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
    pub(super) async fn dial(tls: Option<&Connector>, host: &Host) -> Result<Self, BackendError> {
        let found = addresses(host).await;
        let found = found.map_err(|error| unknown_host(host, &error))?;
        let opened = TcpStream::connect(&*found).await;
        let opened = opened.and_then(|stream| stream.set_nodelay(true).map(|()| stream));
        let stream = opened.map_err(|error| unreachable(host, &error))?;
        let origin = |scheme| {
            let origin = format!("{scheme}://{host}").parse();
            origin.map_err(|_| invalid(format!("{host} is not the name of a host")))
        };
        // Go's HTTP/2 takes the user from the client's certificate only if the scheme is `https`.
        let opened = match tls {
            Some(tls) => Self::open(secure(tls, host, stream).await?, origin("https")?).await,
            None => Self::open(stream, origin("http")?).await,
        };
        opened.map_err(|error| unreachable(host, &error))
    }

    async fn open(
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        origin: Uri,
    ) -> hyper::Result<Self> {
        let opened = Builder::new(TokioExecutor::new())
            .timer(TokioTimer::new())
            .keep_alive_interval(PING_AFTER)
            .keep_alive_timeout(PING_LIMIT)
            .handshake(TokioIo::new(stream));
        let (requests, driver) = opened.await?;
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
