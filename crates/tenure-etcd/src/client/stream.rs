//! A stream in both directions: requests to a member, and its replies.

use std::pin::Pin;
use std::sync::Arc;

use futures_util::{Stream, StreamExt, TryFutureExt, stream};
use http::uri::PathAndQuery;
use tenure_backend::BackendError;
use tokio::sync::mpsc;
use tonic::Status;
use tonic_prost::ProstCodec;

use super::member::{Member, carry};
use crate::error::{Failure, Next, ended};

/// A stream of requests and replies. Dropping it ends the stream.
pub(super) struct Bidirectional<Q, A> {
    pub(super) member: Arc<Member>,
    /// Not bounded: a slow member would end the stream, and with it every watch. A watch or a lease has two requests at most.
    requests: mpsc::UnboundedSender<Q>,
    replies: Pin<Box<dyn Stream<Item = Result<A, Status>> + Send>>,
}

impl<Q, A> Bidirectional<Q, A>
where
    Q: prost::Message + 'static,
    A: prost::Message + Default + 'static,
{
    /// Opens a stream. It reaches the member when `next` is called. The member confirms it together with the first reply,
    /// so a failure is known only then.
    pub(super) async fn open(member: Arc<Member>, path: &'static str) -> Self {
        let (requests, waiting) = mpsc::unbounded_channel::<Q>();
        let waiting = stream::unfold(waiting, async |mut waiting| {
            waiting.recv().await.map(|request| (request, waiting))
        });
        let request = carry(waiting, member.token().await.as_ref());
        let mut grpc = member.grpc();
        let opening = async move {
            let path = PathAndQuery::from_static(path);
            let opened = grpc.streaming(request, path, ProstCodec::default()).await?;
            Ok::<_, Status>(opened.into_inner())
        };
        Bidirectional {
            member,
            requests,
            replies: Box::pin(opening.try_flatten_stream()),
        }
    }

    /// Queues a request. It is sent while a call of `next` waits. Fails if the stream has ended.
    pub(super) fn send(&self, request: Q) -> Result<(), BackendError> {
        self.requests.send(request).map_err(|_| ended())
    }

    /// Waits for a reply. After an error, the stream has ended. Dropping the future loses no reply.
    pub(super) async fn next(&mut self) -> Result<A, BackendError> {
        let failed = match self.replies.next().await {
            Some(Ok(reply)) => return Ok(reply),
            Some(Err(status)) => Failure::from(status),
            None => Failure {
                error: ended(),
                next: Next::Leave,
            },
        };
        // The replies of a broken connection would repeat its error.
        self.replies = Box::pin(stream::empty());
        if failed.next == Next::Leave {
            self.member.leave();
        }
        Err(failed.error)
    }
}
